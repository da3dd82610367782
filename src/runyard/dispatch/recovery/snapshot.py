"""Reads the snapshot for reconcilers: lists the Pods first, then reads the rows.

In this order a Pod that is stamped after the list is not considered, and one that was claimed before the rows were read
is protected by its claim. A failed list raises. An empty list is ignored: it is more likely wrong than true.
"""

import msgspec

from runyard.clock import Clock
from runyard.db.contract import Database, Row, Tx
from runyard.dispatch.plans.missing import OpenSlot
from runyard.dispatch.plans.stamped import PodView, SlotView
from runyard.dispatch.recovery.proofs import ENDED
from runyard.dispatch.settings import Settings
from runyard.dispatch.store import SQL, Store
from runyard.kube.client import Kube
from runyard.kube.kinds import PODS
from runyard.kube.objects import Meta, Pod
from runyard.wire.instants import from_rfc3339
from runyard.wire.names import POOL_OWNER, RUNNER, RUNNER_POOL


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The Pods and the rows, as they were read."""

    now: float  # when the Pods were listed
    pods: tuple[PodView, ...]
    slots: tuple[SlotView, ...]  # of those Pods
    opened: tuple[OpenSlot, ...]  # all open slots
    era: str  # of the database when the rows were read


class SnapshotReader:
    """Reads snapshots."""

    def __init__(
        self, *, kube: Kube, database: Database, store: Store, clock: Clock, settings: Settings
    ) -> None:
        self._kube = kube
        self._database = database
        self._store = store
        self._clock = clock
        self._settings = settings

    async def read(self) -> Snapshot | None:
        """Read the Pods and the rows; None if there is no runner Pod."""
        listed = await self._kube.list_as(
            PODS, Pod, namespace=self._settings.namespace, labels=f"{RUNNER}=true"
        )
        if not listed:
            return None
        now = self._clock.now()
        pods = tuple(view(pod, now) for pod in listed)

        async def read(tx: Tx) -> tuple[list[Row], list[Row], str]:
            known = await tx.all(
                SQL.slots_of_pods,
                pod_uids=[pod.uid for pod in pods],
                silent_after=self._settings.deadlines.idle,
            )
            return known, await tx.all(SQL.slots_open), await self._store.era(tx)

        known, opened, era = await self._database.transact(read, name="pods against slots")
        return Snapshot(
            now=now,
            pods=pods,
            slots=tuple(msgspec.convert(row, SlotView) for row in known),
            opened=tuple(msgspec.convert(row, OpenSlot) for row in opened),
            era=era,
        )


def view(pod: Pod, now: float) -> PodView:
    """Convert a Pod to the view that reconcilers use."""
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


def _created(meta: Meta, now: float) -> float:
    try:
        return from_rfc3339(meta.creation_timestamp)
    except ValueError:
        return now  # of unknown age: counts as new
