"""Orphaned stamped Pods: an owner's stamp, and no claim that speaks for it (`plans.stamped` says why it is a leak)."""

from runyard.dispatch.plans.stamped import find_leaks
from runyard.dispatch.recovery.looking import Lookout
from runyard.dispatch.recovery.reconciling import Desk
from runyard.dispatch.recovery.retiring import Retirer
from runyard.dispatch.settings import Settings


class OrphanedStampedPods:
    """Finds them and has them retired."""

    def __init__(
        self, *, lookout: Lookout, retirer: Retirer, desk: Desk, settings: Settings
    ) -> None:
        self._lookout = lookout
        self._retirer = retirer
        self._desk = desk
        self._settings = settings

    async def step(self) -> None:
        """One tick."""
        if self._desk.off:
            return
        look = await self._lookout.look()
        if look is None:
            return
        grace = self._settings.stamped_grace
        leaks = find_leaks(
            look.pods, look.slots, now=look.now, grace=grace, limit=self._settings.recover_limit
        )
        for leak in leaks:
            await self._retirer.retire(
                leak, desk=self._desk, kind="orphaned_stamped_pod", grace=grace, era=look.era
            )
