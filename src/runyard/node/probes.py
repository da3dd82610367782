"""Measures how full the guests' disks are.

A guest that does not respond keeps its last value while it runs; a value is dropped with its VM. So a condition never
changes because a probe was slow.
"""

from runyard.node.deps import DEPENDENCY_ERRORS, Deps
from runyard.node.metrics import FAILURES, GUEST_DISK
from runyard.node.plans.node import GuestDisk
from runyard.node.records import Ledger
from runyard.node.vms import Vms
from runyard.telemetry.loops import run_loop
from runyard.telemetry.names import Loop, error_slug
from runyard.vm.contract import VmState


class ProbeLoop:
    """Measures the root volumes of our running guests."""

    def __init__(self, deps: Deps, *, ledger: Ledger, vms: Vms) -> None:
        self._deps = deps
        self._ledger = ledger
        self._vms = vms
        self._percent: dict[str, float] = {}
        self._measured = False

    @property
    def disks(self) -> tuple[GuestDisk, ...] | None:
        """The last good value of each running guest; None before anything was measured."""
        if not self._measured:
            return None
        return tuple(GuestDisk(vm=vm, percent=percent) for vm, percent in self._percent.items())

    async def run(self) -> None:
        """Measure forever."""
        settings = self._deps.settings
        await run_loop(
            Loop.GUEST_PROBES,
            self.step,
            clock=self._deps.clock,
            meter=self._deps.meter,
            log=self._deps.log,
            every=settings.probe_every,
            deadline=settings.deadlines.list + 20 * settings.deadlines.probe,
            expected=DEPENDENCY_ERRORS,
            freshness=self._deps.freshness,
        )

    async def step(self) -> None:
        """Measure every guest once; one that fails does not stop the others."""
        await self._vms.newer_than(0)
        ours = {record.vm: None for record in self._ledger.values()}
        running = {
            view.name: None
            for view in self._vms.values()
            if view.state is VmState.RUNNING and view.name in ours
        }
        for vm in [vm for vm in self._percent if vm not in running]:
            del self._percent[vm]
            self._deps.meter.clear(GUEST_DISK, vm=vm)
        for vm in running:
            await self._measure(vm)
        # While every first probe fails nothing is known: the Node keeps its condition.
        self._measured = self._measured or not running or bool(self._percent)

    async def _measure(self, vm: str) -> None:
        try:
            async with self._deps.clock.timeout(self._deps.settings.deadlines.probe):
                percent = await self._deps.driver.disk_usage(vm)
        except DEPENDENCY_ERRORS as error:
            kind = error_slug(error)
            self._deps.meter.inc(FAILURES, loop=Loop.GUEST_PROBES, error=kind)
            self._deps.log.warning("guest disk not measured", vm=vm, error=str(error) or kind)
            return
        if percent is not None and 0.0 <= percent <= 100.0:
            self._percent[vm] = percent
            self._deps.meter.set(GUEST_DISK, percent, vm=vm)
