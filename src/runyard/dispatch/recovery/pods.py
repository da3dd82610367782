"""Compares Pods with slots in both directions, three times a minute, on one replica at a time.

An open slot whose Pod is not listed, or has ended, is a hint, and the proof is read. A Pod that runs and does not poll
for work can never get a job and is retired (`plans.silent`).
"""

from runyard.clock import Clock
from runyard.dispatch.plans.kinds import of_missing
from runyard.dispatch.plans.missing import OpenSlot, missing
from runyard.dispatch.plans.silent import Watched, judge_silence
from runyard.dispatch.recovery.closing import Closer
from runyard.dispatch.recovery.report import DEPENDENCY_ERRORS, Finding, ReconcilerReport
from runyard.dispatch.recovery.retiring import Retirer, finding_of
from runyard.dispatch.recovery.snapshot import Snapshot, SnapshotReader
from runyard.dispatch.settings import Settings
from runyard.dispatch.task_lease import TaskLease
from runyard.wire.reasons_dispatch import Found, Left, Would


class PodsAgainstSlots:
    """Compares the cluster's runner Pods with the slots."""

    def __init__(
        self,
        *,
        snapshots: SnapshotReader,
        closer: Closer,
        retirer: Retirer,
        report: ReconcilerReport,
        leases: TaskLease,
        clock: Clock,
        settings: Settings,
    ) -> None:
        self._snapshots = snapshots
        self._closer = closer
        self._retirer = retirer
        self._report = report
        self._leases = leases
        self._clock = clock
        self._settings = settings
        self._watched: tuple[Watched, ...] = ()
        self._last_missing = ""  # the uid that the last tick ended with, in each direction
        self._last_retired = ""

    async def step(self) -> None:
        """One comparison."""
        watched, self._watched = (
            self._watched,
            (),
        )  # after a failed snapshot, or without the lease, the times start again
        if self._report.off:
            return
        if not await self._leases.acquire(
            "pods against slots", every=1.5 * self._settings.pods_every
        ):
            return
        snapshot = await self._snapshots.read()
        if snapshot is None:
            return
        limit = self._settings.recover_limit
        for slot in missing(snapshot.pods, snapshot.opened, limit=limit, after=self._last_missing):
            await self._close(slot)
            self._last_missing = slot.pod_uid
        await self._retire(snapshot, watched)

    async def _close(self, slot: OpenSlot) -> None:
        """Close one slot if its Pod is gone; a Pod that cannot be read does not block the others."""
        reason = Found.POD_NOT_LISTED.because()
        finding = Finding(pod=slot.pod_name, reason=reason, age=slot.age)
        if self._report.dry:
            self._report.would(finding, Would.VERIFY_AND_CLOSE)
            return
        try:
            closed = await self._closer.close_if_gone(pod_name=slot.pod_name, pod_uid=slot.pod_uid)
        except DEPENDENCY_ERRORS as error:
            self._report.failed(finding, error)
            return
        if closed is not None:
            self._report.healed(finding, kind=of_missing(closed.before))

    async def _retire(self, snapshot: Snapshot, watched: tuple[Watched, ...]) -> None:
        grace = self._settings.silent_grace
        verdict = judge_silence(
            snapshot.pods,
            snapshot.slots,
            watched=watched,
            now=self._clock.monotonic(),
            grace=grace,
            limit=self._settings.silent_limit,
            after=self._last_retired,
        )
        for leak in verdict.leaks:
            left = await self._retirer.retire(
                leak, report=self._report, kind="silent_pod", grace=grace, era=snapshot.era
            )
            if left is not None and left.code is Left.OWNER_UNKNOWN:
                self._report.left(finding_of(leak, grace=grace), left)
            self._last_retired = leak.uid
        self._watched = verdict.watched
