"""Lists this host's VMs for all loops.

One call every few seconds serves all Pods, garbage collection and the Node's condition. After an action on a VM a list
is needed that *began* after it: a list that was under way meanwhile may or may not show the change, and a plan made
from it would take a VM that was just started for one that has vanished.
"""

import asyncio
from collections.abc import Callable

from runyard.node.deps import DEPENDENCY_ERRORS, Deps
from runyard.telemetry.loops import run_loop
from runyard.telemetry.names import Loop
from runyard.vm.contract import VmView


class Vms:
    """The newest list of VMs. `on_change` gets the names whose view changed, `on_list` every new list."""

    def __init__(
        self,
        deps: Deps,
        *,
        on_change: Callable[[str], None],
        on_list: Callable[[tuple[VmView, ...]], None],
    ) -> None:
        self._deps = deps
        self._on_change = on_change
        self._on_list = on_list
        self._views: dict[str, VmView] = {}
        self._lock = asyncio.Lock()
        self.begun = 0  # lists begun so far
        self.seen = 0  # number of the newest list that succeeded
        self._last_success = deps.clock.monotonic()

    @property
    def silent_for(self) -> float:
        """Seconds since the last good list (or since the agent started)."""
        return self._deps.clock.monotonic() - self._last_success

    def get(self, name: str) -> VmView | None:
        """The VM of that name in the newest list."""
        return self._views.get(name)

    def values(self) -> tuple[VmView, ...]:
        """The newest list."""
        return tuple(self._views.values())

    async def newer_than(self, begun: int) -> None:
        """Return when there is a list with a number above `begun`; raises if it fails."""
        async with self._lock:
            if self.seen <= begun:
                await self._poll()

    async def run(self) -> None:
        """List forever."""
        settings = self._deps.settings
        await run_loop(
            Loop.VM_LIST,
            self._step,
            clock=self._deps.clock,
            meter=self._deps.meter,
            log=self._deps.log,
            every=settings.list_every,
            deadline=2 * settings.deadlines.list + 1,  # it may wait for a list under way
            expected=DEPENDENCY_ERRORS,
            freshness=self._deps.freshness,
            max_backoff=60.0,
        )

    async def _step(self) -> None:
        await self.newer_than(self.begun)

    async def _poll(self) -> None:
        self.begun += 1
        number = self.begun
        async with self._deps.clock.timeout(self._deps.settings.deadlines.list):
            listed = await self._deps.driver.list()
        before, self._views = self._views, {view.name: view for view in listed}
        self.seen = number
        self._last_success = self._deps.clock.monotonic()
        self._on_list(listed)
        for name in {**before, **self._views}:
            if before.get(name) != self._views.get(name):
                self._on_change(name)
