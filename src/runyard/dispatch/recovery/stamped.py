"""Retires orphaned stamped Pods: they carry an owner's stamp and have no claim (see `plans.stamped`).

A Pod that does not poll and whose owner is unknown can be neither fenced nor retired; it is a health condition, because
an administrator must decide.
"""

from collections.abc import Callable

from runyard.dispatch.plans.stamped import find_leaks
from runyard.dispatch.recovery.report import ReconcilerReport
from runyard.dispatch.recovery.retiring import Retirer
from runyard.dispatch.recovery.snapshot import Snapshot, SnapshotReader
from runyard.dispatch.settings import Settings
from runyard.wire.reasons_dispatch import Left

_SHOWN = 5


class OrphanedStampedPods:
    """Finds orphaned stamped Pods and retires them."""

    def __init__(
        self,
        *,
        snapshots: SnapshotReader,
        retirer: Retirer,
        report: ReconcilerReport,
        condition: Callable[[str], None],
        settings: Settings,
    ) -> None:
        self._snapshots = snapshots
        self._retirer = retirer
        self._report = report
        self._condition = condition
        self._settings = settings
        self._last = ""  # the uid that the last tick ended with
        self._unknown_owners: dict[str, str] = {}  # names by uid

    async def step(self) -> None:
        """One tick."""
        if self._report.off:
            return
        snapshot = await self._snapshots.read()
        there = {pod.uid for pod in snapshot.pods} if snapshot else set()
        self._unknown_owners = {
            uid: name for uid, name in self._unknown_owners.items() if uid in there
        }
        if snapshot is not None:
            await self._retire(snapshot)
        names = sorted(self._unknown_owners.values())
        self._condition(f"{len(names)}: {', '.join(names[:_SHOWN])}" if names else "")

    async def _retire(self, snapshot: Snapshot) -> None:
        grace = self._settings.stamped_grace
        leaks = find_leaks(
            snapshot.pods,
            snapshot.slots,
            now=snapshot.now,
            grace=grace,
            limit=self._settings.recover_limit,
            after=self._last,
        )
        for leak in leaks:
            left = await self._retirer.retire(
                leak,
                report=self._report,
                kind="orphaned_stamped_pod",
                grace=grace,
                era=snapshot.era,
            )
            self._last = leak.uid
            self._unknown_owners.pop(leak.uid, None)
            if left is not None and left.code is Left.OWNER_UNKNOWN:
                self._unknown_owners[leak.uid] = leak.event.pod_name
