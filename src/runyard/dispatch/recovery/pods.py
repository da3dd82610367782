"""Pods against slots, both ways, once a minute.

One way: a Pod that carries an owner's stamp while no claim speaks for it is retired, and the
sweeper then reaps it. The other way: an open slot whose Pod is not in the list, or has ended, is a
hint, and the proof is asked for. The list of Pods is taken first; a failed list raises and judges
nobody, and so does an empty one.
"""

import msgspec

from runyard.clock import Clock
from runyard.db.contract import Database, Row, Tx
from runyard.dispatch.plans.stamped import Leak, PodView, SlotView, find_leaks
from runyard.dispatch.recovery.proofs import ENDED
from runyard.dispatch.recovery.sweeping import Sweeper
from runyard.dispatch.settings import Settings
from runyard.dispatch.store import SQL, Store
from runyard.kube.client import Kube
from runyard.kube.kinds import PODS
from runyard.kube.objects import Pod
from runyard.telemetry.catalogue import TUIST_RUNNERS_RECOVERY_COUNT
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter
from runyard.wire.instants import from_rfc3339
from runyard.wire.names import POOL_OWNER, RUNNER, RUNNER_POOL


class PodReconciler:
    """Compares the cluster's runner Pods with the slots."""

    def __init__(
        self,
        *,
        kube: Kube,
        database: Database,
        store: Store,
        sweeper: Sweeper,
        clock: Clock,
        meter: Meter,
        log: Logger,
        settings: Settings,
    ) -> None:
        self._kube = kube
        self._database = database
        self._store = store
        self._sweeper = sweeper
        self._clock = clock
        self._meter = meter
        self._log = log
        self._settings = settings

    async def step(self) -> None:
        """One comparison."""
        listed = await self._kube.list_as(
            PODS, Pod, namespace=self._settings.namespace, labels=f"{RUNNER}=true"
        )
        if not listed:
            return
        pods = tuple(_view(pod) for pod in listed)
        slots, unseen = await self._database.transact(
            lambda tx: self._slots(tx, pods), name="pods against slots"
        )
        leaks = find_leaks(
            pods,
            slots,
            now=self._clock.now(),
            grace=self._settings.stamped_grace,
            limit=self._settings.recover_limit,
        )
        for leak in leaks:
            await self._retire(leak)
        for row in unseen[: self._settings.recover_limit]:
            await self._sweeper.close_if_gone(pod_name=row["pod_name"], pod_uid=row["pod_uid"])

    async def _slots(
        self, tx: Tx, pods: tuple[PodView, ...]
    ) -> tuple[tuple[SlotView, ...], list[Row]]:
        known = await tx.all(SQL.slots_of_pods, pod_uids=[pod.uid for pod in pods])
        alive = {pod.uid for pod in pods if not pod.ending}
        opened = await tx.all(SQL.slots_open)
        unseen = [row for row in opened if row["pod_uid"] not in alive]
        return tuple(msgspec.convert(row, SlotView) for row in known), unseen

    async def _retire(self, leak: Leak) -> None:
        decision = await self._store.about_slot(leak.uid, leak.event, name="retire leaked Pod")
        outcome = decision.refused or "retired"
        self._log.warning(
            "leaked stamped Pod",
            pod=leak.event.pod_name,
            age_seconds=round(leak.age),
            grace_seconds=self._settings.stamped_grace,
            reason=leak.event.why,
            outcome=outcome,
        )
        if not decision.refused:
            self._meter.inc(TUIST_RUNNERS_RECOVERY_COUNT, kind="orphaned_stamped_pod")


def _view(pod: Pod) -> PodView:
    meta = pod.metadata
    return PodView(
        uid=meta.uid,
        name=meta.name,
        pool=meta.labels.get(RUNNER_POOL, ""),
        owner=meta.labels.get(POOL_OWNER, ""),
        created_at=from_rfc3339(meta.creation_timestamp),
        ending=bool(meta.deletion_timestamp) or pod.status.phase in ENDED,
    )
