"""Orphaned stamped Pods: an owner's stamp, and no claim that speaks for it (`plans.stamped` says why it is a leak).

One that is silent and whose owner nobody knows can be neither fenced nor retired: that is for a person to look at, and
so a health condition.
"""

from collections.abc import Callable

from runyard.dispatch.plans.stamped import find_leaks
from runyard.dispatch.recovery.looking import Look, Lookout
from runyard.dispatch.recovery.reconciling import Desk
from runyard.dispatch.recovery.retiring import STRANGER, Retirer
from runyard.dispatch.settings import Settings

_SHOWN = 5


class OrphanedStampedPods:
    """Finds them and has them retired."""

    def __init__(
        self,
        *,
        lookout: Lookout,
        retirer: Retirer,
        desk: Desk,
        report: Callable[[str], None],
        settings: Settings,
    ) -> None:
        self._lookout = lookout
        self._retirer = retirer
        self._desk = desk
        self._report = report
        self._settings = settings
        self._last = ""  # whom the last tick ended with
        self._strangers: dict[str, str] = {}  # names by uid

    async def step(self) -> None:
        """One tick."""
        if self._desk.off:
            return
        look = await self._lookout.look()
        there = {pod.uid for pod in look.pods} if look else set()
        self._strangers = {uid: name for uid, name in self._strangers.items() if uid in there}
        if look is not None:
            await self._retire(look)
        names = sorted(self._strangers.values())
        self._report(f"{len(names)}: {', '.join(names[:_SHOWN])}" if names else "")

    async def _retire(self, look: Look) -> None:
        grace = self._settings.stamped_grace
        leaks = find_leaks(
            look.pods,
            look.slots,
            now=look.now,
            grace=grace,
            limit=self._settings.recover_limit,
            after=self._last,
        )
        for leak in leaks:
            left = await self._retirer.retire(
                leak, desk=self._desk, kind="orphaned_stamped_pod", grace=grace, era=look.era
            )
            self._last = leak.uid
            self._strangers.pop(leak.uid, None)
            if left == STRANGER:
                self._strangers[leak.uid] = leak.event.pod_name
