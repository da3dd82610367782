"""Measures how full the guests' disks are.

A guest that does not respond keeps its last value while it runs; a value is dropped with its VM. So a condition never
changes because a probe was slow. The age of each value is a metric: an old one looks as good as a new one.
"""

from runyard.node.deps import DEPENDENCY_ERRORS, Deps
from runyard.node.metrics import FAILURES, GUEST_DISK, GUEST_DISK_AGE
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
        # Of running guests: the time of the last good value, or of the first try.
        self._since: dict[str, float] = {}
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
        for vm in [vm for vm in self._since if vm not in running]:
            del self._since[vm]
            self._percent.pop(vm, None)
            for metric in (GUEST_DISK, GUEST_DISK_AGE):
                self._deps.meter.clear(metric, vm=vm)
        for vm in running:
            await self._measure(vm)
        # While every first probe fails nothing is known: the Node keeps its condition.
        self._measured = self._measured or not running or bool(self._percent)

    async def _measure(self, vm: str) -> None:
        deps, began = self._deps, self._deps.clock.monotonic()
        since = self._since.setdefault(vm, began)
        try:
            async with deps.clock.timeout(deps.settings.deadlines.probe):
                percent = await deps.driver.disk_usage(vm)
        except DEPENDENCY_ERRORS as error:
            kind = error_slug(error)
            deps.meter.inc(FAILURES, loop=Loop.GUEST_PROBES, error=kind)
            deps.meter.set(GUEST_DISK_AGE, deps.clock.monotonic() - since, vm=vm)
            deps.log.warning("guest disk not measured", vm=vm, error=str(error) or kind)
            return
        if percent is not None and 0.0 <= percent <= 100.0:
            self._since[vm] = began
            self._percent[vm] = percent
            deps.meter.set(GUEST_DISK, percent, vm=vm)
            deps.meter.set(GUEST_DISK_AGE, 0.0, vm=vm)
