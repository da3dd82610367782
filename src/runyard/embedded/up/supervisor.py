"""Supervises the components of one machine: starts them, restarts crashed ones, stops all of them together.

A component that exits is restarted after a pause that doubles with each exit and is reset once it has run for a
while. A component that exits with "cannot work", or that did not become ready in several attempts, stops the whole
machine with the end of its log in the error. A component that was ready before is always retried: its dependency (an
external database, for example) may become available again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Literal

import msgspec

from runyard.clock import Clock
from runyard.embedded.up.boot import Boot
from runyard.embedded.up.child import CANNOT_WORK
from runyard.embedded.up.children import Running, log_tail, start
from runyard.embedded.up.disk import full_disk_note
from runyard.embedded.up.shutdown import Shutdown, within_deadline
from runyard.telemetry.log import Logger

Spawn = Callable[[Coroutine[None, None, None], str], None]  # work and its name
Launch = Callable[[Boot, int], Awaitable[Running]]  # with the descriptor of the lock
State = Literal["starting", "running", "waiting", "ended"]
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 30.0
STABLE_AFTER = 60.0  # seconds after which earlier exits are not counted any more
MAX_UNREADY_STARTS = 5  # starts in a row that never became ready
READY_WITHIN = 60.0
END_WITHIN = 1.5
_REASON = 300  # the most characters of a reason that are shown


class ComponentFailed(Exception):
    """A component cannot work; the message has the end of its log and the log's path."""


class ComponentView(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one component, for display."""

    name: str
    state: State
    pid: int = 0
    starts: int = 0
    code: int | None = None  # of its last exit; None if it could not be started
    note: str = ""  # the likely cause of its last exit


class _Component:
    def __init__(self, boot: Boot) -> None:
        self.boot = boot
        self.view = ComponentView(name=boot.name, state="starting")
        self.running: Running | None = None
        self.was_ready = asyncio.Event()


class Supervisor:
    """Owns child processes. `lock` is the descriptor that every child holds until it exits."""

    def __init__(
        self,
        *,
        clock: Clock,
        log: Logger,
        lock: int,
        spawn: Spawn,
        changed: Callable[[ComponentView], None] = lambda view: None,
        launch: Launch = start,
        shutdown: Shutdown | None = None,
    ) -> None:
        self._clock = clock
        self._shutdown = shutdown or Shutdown()
        self._log = log
        self._lock = lock
        self._spawn = spawn
        self._changed = changed
        self._launch = launch
        self._components: dict[str, _Component] = {}
        self._stopping = asyncio.Event()

    def views(self) -> tuple[ComponentView, ...]:
        """The state of every component."""
        return tuple(component.view for component in self._components.values())

    def pid(self, name: str) -> int:
        """The process id of a component; 0 while it does not run."""
        return self._components[name].view.pid

    async def add(self, boot: Boot, *, within: float = READY_WITHIN) -> None:
        """Starts a component and waits until it is ready; each of its starts has `within` seconds."""
        component = self._components[boot.name] = _Component(boot)
        self._spawn(self._supervise(component, within), boot.name)
        await component.was_ready.wait()

    async def stop(self, names: tuple[str, ...], *, within: float = END_WITHIN) -> None:
        """Stops these components concurrently; kills those that are too slow, or all of them on the second Ctrl-C."""
        self._stopping.set()
        await asyncio.gather(
            *(
                self._end(self._components[name], within)
                for name in names
                if name in self._components
            )
        )

    def kill_all(self) -> None:
        """Kills every component."""
        self._stopping.set()
        for component in self._components.values():
            if component.running is not None:
                component.running.end()

    async def _end(self, component: _Component, within: float) -> None:
        running = component.running
        if running is None or running.code is not None:
            return
        running.terminate()
        try:
            if not await within_deadline(
                running.wait(), clock=self._clock, within=within, shutdown=self._shutdown
            ):
                self._log.warning(
                    "killed a component that did not stop in time", component=component.boot.name
                )
        finally:
            running.end()  # the process, or what is left of its group
        await running.wait()

    async def _supervise(self, component: _Component, within: float) -> None:
        pause, unready = FIRST_PAUSE, 0
        while not self._stopping.is_set():
            began = self._clock.monotonic()
            try:
                running = component.running = await self._launch(component.boot, self._lock)
            except OSError as error:
                note = f"cannot be started: {error.strerror}"
                self._show(component, "waiting", pid=0, code=None, note=note)
                await self._clock.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
                continue
            self._show(component, "starting", pid=running.pid, starts=component.view.starts + 1)
            if self._stopping.is_set():
                running.end()  # the stop was requested before the process existed
            unready = 0 if await self._became_ready(component, running, within) else unready + 1
            code = await running.wait()
            running.end()
            state: State = "ended" if self._stopping.is_set() else "waiting"
            self._show(component, state, pid=0, code=code, note=_why(component.boot, code))
            if self._stopping.is_set():
                return
            never_ready = unready >= MAX_UNREADY_STARTS and not component.was_ready.is_set()
            if code == CANNOT_WORK or never_ready:
                raise self._failed(component, f"ended with code {code}")
            if self._clock.monotonic() - began > STABLE_AFTER:
                pause = FIRST_PAUSE
            self._log.warning(
                "component exited", component=component.boot.name, code=code, again_in=pause
            )
            await self._clock.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _became_ready(self, component: _Component, running: Running, within: float) -> bool:
        """Whether it became ready. If it hangs it is killed; at the first start that is fatal, later it is retried."""
        try:
            async with self._clock.timeout(within):
                if not await running.ready():
                    return False
        except TimeoutError:
            running.end()
            await running.wait()
            if not component.was_ready.is_set():
                raise self._failed(component, f"was not ready within {within:g} s") from None
            self._log.warning(
                "killed a component that did not become ready in time",
                component=component.boot.name,
                within=within,
            )
            return False
        component.was_ready.set()
        self._show(component, "running")
        return True

    def _show(self, component: _Component, state: State, **changes: object) -> None:
        component.view = msgspec.structs.replace(component.view, state=state, **changes)
        self._changed(component.view)

    def _failed(self, component: _Component, what: str) -> ComponentFailed:
        name, layout = component.boot.name, component.boot.layout
        words = log_tail(layout, name)
        full = full_disk_note(layout.root)
        what = f"{what}; {full}" if full else what
        tail = f" The log ends with:\n{words}" if words else ""
        return ComponentFailed(f"the component {name} {what}. Its log: {layout.log(name)}.{tail}")


def _why(boot: Boot, code: int) -> str:
    """The likely cause of an exit: a full disk, or the last error in its log."""
    words = log_tail(boot.layout, boot.name).splitlines() if code > 0 else []
    return full_disk_note(boot.layout.root) or (words[-1][:_REASON] if words else "")
