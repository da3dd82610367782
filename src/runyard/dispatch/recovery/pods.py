"""Pods against slots, both ways, once a minute.

One way: a Pod that carries an owner's stamp while no claim speaks for it is retired, and the
sweeper then reaps it. The other way: an open slot whose Pod is not in the list, or has ended, is a
hint, and the proof is asked for. The list of Pods is taken first; a failed list raises and judges
nobody, and so does an empty one.
"""

import msgspec

from runyard.clock import Clock
from runyard.db.contract import Database, Row, Tx
from runyard.dispatch.machine.events import FenceAnswer
from runyard.dispatch.plans.silent import Watched, judge_silence
from runyard.dispatch.plans.stamped import Leak, PodView, SlotView, find_leaks
from runyard.dispatch.recovery.fencing import Fencer
from runyard.dispatch.recovery.proofs import ENDED
from runyard.dispatch.recovery.sweeping import Sweeper
from runyard.dispatch.settings import Settings
from runyard.dispatch.store import SQL, Store
from runyard.github.scope import parse
from runyard.http.errors import TransportError
from runyard.kube.client import Kube
from runyard.kube.errors import KubeError
from runyard.kube.kinds import PODS
from runyard.kube.objects import Meta, Pod
from runyard.telemetry.catalogue import TUIST_RUNNERS_RECOVERY_COUNT
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter
from runyard.wire.instants import from_rfc3339
from runyard.wire.names import POOL_OWNER, RUNNER, RUNNER_POOL, runner_name


class PodReconciler:
    """Compares the cluster's runner Pods with the slots."""

    def __init__(
        self,
        *,
        kube: Kube,
        database: Database,
        store: Store,
        sweeper: Sweeper,
        fencer: Fencer,
        clock: Clock,
        meter: Meter,
        log: Logger,
        settings: Settings,
    ) -> None:
        self._kube = kube
        self._database = database
        self._store = store
        self._sweeper = sweeper
        self._fencer = fencer
        self._clock = clock
        self._meter = meter
        self._log = log
        self._settings = settings
        self._watched: tuple[Watched, ...] = ()

    async def step(self) -> None:
        """One comparison."""
        watched, self._watched = self._watched, ()  # a look that fails starts every count anew
        listed = await self._kube.list_as(
            PODS, Pod, namespace=self._settings.namespace, labels=f"{RUNNER}=true"
        )
        if not listed:
            return
        pods = tuple(_view(pod, self._clock.now()) for pod in listed)
        slots, unseen, era = await self._database.transact(
            lambda tx: self._slots(tx, pods), name="pods against slots"
        )
        # First the slots that may be closed: a leaked Pod can have the name of one of them.
        for row in unseen[: self._settings.recover_limit]:
            await self._close_if_gone(row)
        leaks = find_leaks(
            pods,
            slots,
            now=self._clock.now(),
            grace=self._settings.stamped_grace,
            limit=self._settings.recover_limit,
        )
        for leak in leaks:
            await self._retire(leak, kind="orphaned_stamped_pod", era=era)
        verdict = judge_silence(
            pods,
            slots,
            watched=watched,
            now=self._clock.monotonic(),
            grace=self._settings.silent_grace,
            limit=self._settings.silent_limit,
        )
        for leak in verdict.leaks:
            await self._retire(leak, kind="silent_pod", era=era)
        self._watched = verdict.watched

    async def _slots(
        self, tx: Tx, pods: tuple[PodView, ...]
    ) -> tuple[tuple[SlotView, ...], list[Row], str]:
        known = await tx.all(
            SQL.slots_of_pods,
            pod_uids=[pod.uid for pod in pods],
            silent_after=self._settings.deadlines.idle,
        )
        alive = {pod.uid for pod in pods if not pod.over}  # a Pod that is going is not gone
        opened = await tx.all(SQL.slots_open)
        unseen = [row for row in opened if row["pod_uid"] not in alive]
        views = tuple(msgspec.convert(row, SlotView) for row in known)
        return views, unseen, await self._store.era(tx)

    async def _close_if_gone(self, row: Row) -> None:
        """Ask for one proof; a Pod that cannot be looked at does not keep the others from it."""
        try:
            await self._sweeper.close_if_gone(pod_name=row["pod_name"], pod_uid=row["pod_uid"])
        except (KubeError, TransportError) as error:
            self._log.warning("Pod not looked at", pod=row["pod_name"], error=str(error))

    async def _fenced(self, leak: Leak) -> bool:
        """Is certainly no runner at work in this Pod? Nothing in our rows speaks for one, but rows can be lost."""
        if not leak.owner:
            return True  # no stamp, so no JIT was ever delivered to it

        async def scopes(tx: Tx) -> list[Row]:
            return await tx.all(SQL.tenant_scopes, tenant=leak.owner)

        found = await self._database.transact(scopes, name="scopes of a leak")
        for row in found:
            scope = parse(row["scope"], installation_id=row["installation_id"])
            answer = await self._fencer.fence_name(scope, runner_name(leak.event.pod_name))
            if answer is None or answer is FenceAnswer.BUSY:
                return False
        # About an owner that we do not know nobody can be asked, so only the Pod itself can tell: one that asks
        # for work has none. One that does not may be at work for them, and then ends by itself.
        return bool(found) or leak.asks

    async def _retire(self, leak: Leak, *, kind: str, era: str) -> None:
        if not await self._fenced(leak):
            self._log.warning("leaked Pod not fenced", pod=leak.event.pod_name, kind=kind)
            return
        decision = await self._store.about_slot(
            leak.uid, leak.event, name="retire leaked Pod", asked_in=era
        )
        outcome = decision.refused or "retired"
        self._log.warning(
            "leaked Pod",
            pod=leak.event.pod_name,
            age_seconds=round(leak.age),
            kind=kind,
            reason=leak.event.why,
            outcome=outcome,
        )
        if not decision.refused:
            self._meter.inc(TUIST_RUNNERS_RECOVERY_COUNT, kind=kind)


def _created(meta: Meta, now: float) -> float:
    try:
        return from_rfc3339(meta.creation_timestamp)
    except ValueError:
        return now  # of unknown age: as good as new


def _view(pod: Pod, now: float) -> PodView:
    meta = pod.metadata
    return PodView(
        uid=meta.uid,
        name=meta.name,
        pool=meta.labels.get(RUNNER_POOL, ""),
        owner=meta.labels.get(POOL_OWNER, ""),
        created_at=_created(meta, now),
        ending=bool(meta.deletion_timestamp) or pod.status.phase in ENDED,
        over=pod.status.phase in ENDED,
        running=pod.status.phase == "Running",
    )
