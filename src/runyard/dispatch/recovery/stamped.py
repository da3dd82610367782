"""Retires orphaned stamped Pods: they carry an owner's stamp and have no claim (see `plans.stamped`).

For a Pod that does not poll and whose owner is unknown there is no scope to fence its runner in. Its runner is looked
up in every scope, after the other Pods of the tick were retired; the Pod is retired when it is proven that none has it.

A Pod that stays because GitHub does not show its runner is a health condition that says which Pod and why.
"""

from collections.abc import Callable

from runyard.dispatch.plans.lookup import judge, proven
from runyard.dispatch.plans.stamped import Leak, find_leaks
from runyard.dispatch.recovery.lookup import RunnerLookup
from runyard.dispatch.recovery.report import ReconcilerReport
from runyard.dispatch.recovery.retiring import Retirer, finding_of
from runyard.dispatch.recovery.snapshot import Snapshot, SnapshotReader
from runyard.dispatch.settings import Settings
from runyard.wire.reasons import Reason, render
from runyard.wire.reasons_dispatch import Left

_SHOWN = 5
_KIND = "orphaned_stamped_pod"


class OrphanedStampedPods:
    """Finds orphaned stamped Pods and retires them."""

    def __init__(
        self,
        *,
        snapshots: SnapshotReader,
        retirer: Retirer,
        lookup: RunnerLookup,
        report: ReconcilerReport,
        condition: Callable[[str], None],
        settings: Settings,
    ) -> None:
        self._snapshots = snapshots
        self._retirer = retirer
        self._lookup = lookup
        self._report = report
        self._condition = condition
        self._settings = settings
        self._last = ""  # the uid that the last tick ended with
        self._unknown: dict[str, Leak] = {}  # by uid: the owner is unknown
        self._kept: dict[str, tuple[str, Reason]] = {}  # by uid: names of Pods, and why they stay

    async def step(self) -> None:
        """One tick."""
        if self._report.off:
            return
        snapshot = await self._snapshots.read()
        leaks = () if snapshot is None else self._find(snapshot)
        found = {leak.uid: leak for leak in leaks}
        self._unknown = {uid: found[uid] for uid in self._unknown if uid in found}
        self._kept = {uid: each for uid, each in self._kept.items() if uid in found}
        if snapshot is not None:
            await self._retire(leaks[: self._settings.recover_limit], snapshot.era)
            await self._retire_unknown(snapshot.era)
        self._condition(_text(list(self._kept.values())))

    def _find(self, snapshot: Snapshot) -> tuple[Leak, ...]:
        return find_leaks(
            snapshot.pods,
            snapshot.slots,
            now=snapshot.now,
            grace=self._settings.stamped_grace,
            limit=len(snapshot.pods),
            after=self._last,
        )

    async def _retire(self, leaks: tuple[Leak, ...], era: str) -> None:
        for leak in leaks:
            left = await self._retire_one(leak, era)
            self._last = leak.uid
            if _failed(left):
                continue  # it is known as little as before: what was looked up so far is kept
            self._unknown.pop(leak.uid, None)
            if left is not None and left.code is Left.OWNER_UNKNOWN:
                self._unknown[leak.uid] = leak
            self._keep(leak, left)

    async def _retire_unknown(self, era: str) -> None:
        """Retire the Pods whose runners were looked up everywhere; record why the others stay."""
        lookup = await self._lookup.step(tuple(self._unknown.values()), era=era)
        for leak in tuple(self._unknown.values()):
            left = Left.OWNER_UNKNOWN.because() if lookup is None else judge(lookup, leak)
            if left is not None:
                self._report.left(finding_of(leak, grace=self._settings.stamped_grace), left)
            elif lookup is not None:
                left = await self._retire_one(proven(lookup, leak), lookup.era, looked_up=True)
                if _failed(left):
                    continue  # the proof is kept for the next tick
                del self._unknown[leak.uid]
            self._keep(leak, left)

    def _keep(self, leak: Leak, left: Reason | None) -> None:
        """Record why a Pod stays, if its runner cannot be looked up, or is busy and nobody knows its owner."""
        self._kept.pop(leak.uid, None)
        of_unknown = leak.uid in self._unknown
        if left is not None and (of_unknown or left.code is Left.SCOPE_UNREADABLE):
            self._kept[leak.uid] = leak.event.pod_name, left

    async def _retire_one(self, leak: Leak, era: str, *, looked_up: bool = False) -> Reason | None:
        return await self._retirer.retire(
            leak,
            report=self._report,
            kind=_KIND,
            grace=self._settings.stamped_grace,
            era=era,
            looked_up=looked_up,
        )


def _failed(left: Reason | None) -> bool:
    return left is not None and left.code is Left.DEPENDENCY_FAILED


def _text(kept: list[tuple[str, Reason]]) -> str:
    """The Pods that stay, and why; empty if there are none."""
    named = [f"{name} ({render(left)})" for name, left in sorted(kept, key=lambda each: each[0])]
    more = ["…"] if len(named) > _SHOWN else []
    return f"{len(named)}: {', '.join([*named[:_SHOWN], *more])}" if named else ""
