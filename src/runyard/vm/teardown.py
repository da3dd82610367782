"""Stops every VM of a host at once, for an orderly end of its agent or of the whole machine."""

import asyncio

from runyard.vm.contract import VmDriver, VmState


async def stop_all(driver: VmDriver, *, grace: float) -> None:
    """Stops all VMs that the driver has created; one that hangs delays none of the others.

    The first error is raised after every VM had its turn.
    """
    running = (VmState.BOOTING, VmState.RUNNING)
    views = [view for view in await driver.list() if view.owned and view.state in running]
    stops = (driver.stop(view.name, grace=grace) for view in views)
    for outcome in await asyncio.gather(*stops, return_exceptions=True):
        if outcome is not None:
            raise outcome
