"""Keeps the parts of one machine running: starts them, restarts what crashed, ends all of them together.

A part that dies is started again after a pause that doubles while it keeps dying and is forgotten once it
has lived for a while. A part that says that it cannot work like this, or that has never become ready in several
attempts, ends the machine with its last words: going on would only look alive. One that has been ready before is
tried for ever: what it lacks now (a database that is somebody else's to run) may come back.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Literal

import msgspec

from runyard.clock import Clock
from runyard.embedded.up.boot import Boot
from runyard.embedded.up.child import CANNOT_WORK
from runyard.embedded.up.children import Running, last_words, start
from runyard.embedded.up.disk import suspicion
from runyard.embedded.up.ending import Ending, patiently
from runyard.telemetry.log import Logger

Spawn = Callable[[Coroutine[None, None, None], str], None]  # work and its name
Launch = Callable[[Boot, int], Awaitable[Running]]  # with the descriptor of the lock
State = Literal["starting", "running", "waiting", "ended"]
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 30.0
LIVED = 60.0  # seconds after which earlier deaths are forgotten
HOPELESS = 5  # starts in a row that never became ready
READY_WITHIN = 60.0
END_WITHIN = 1.5
_REASON = 300  # characters of it, for a person


class PartFailed(Exception):
    """A part cannot work; the message has its last words and where its log is."""


class PartView(msgspec.Struct, frozen=True, kw_only=True):
    """One part, for whoever looks on."""

    name: str
    state: State
    pid: int = 0
    starts: int = 0
    code: int | None = None  # of its last death
    note: str = ""  # what may be behind it


class _Part:
    def __init__(self, boot: Boot) -> None:
        self.boot = boot
        self.view = PartView(name=boot.name, state="starting")
        self.running: Running | None = None
        self.was_ready = asyncio.Event()


class Supervisor:
    """Owns child processes. `lock` is the descriptor that every child holds for as long as it lives."""

    def __init__(
        self,
        *,
        clock: Clock,
        log: Logger,
        lock: int,
        spawn: Spawn,
        changed: Callable[[PartView], None] = lambda view: None,
        launch: Launch = start,
        ending: Ending | None = None,
    ) -> None:
        self._clock = clock
        self._ending = ending or Ending()
        self._log = log
        self._lock = lock
        self._spawn = spawn
        self._changed = changed
        self._launch = launch
        self._parts: dict[str, _Part] = {}
        self._stopping = asyncio.Event()

    def views(self) -> tuple[PartView, ...]:
        """Every part as it is now."""
        return tuple(part.view for part in self._parts.values())

    def pid(self, name: str) -> int:
        """The process id of a part; 0 while it does not run."""
        return self._parts[name].view.pid

    async def add(self, boot: Boot, *, within: float = READY_WITHIN) -> None:
        """Start a part and wait until it serves for the first time; each of its starts has so much time."""
        part = self._parts[boot.name] = _Part(boot)
        self._spawn(self._keep(part, within), boot.name)
        await part.was_ready.wait()

    async def stop(self, names: tuple[str, ...], *, within: float = END_WITHIN) -> None:
        """End these parts, side by side; those that do not listen are killed, in a hurry all of them."""
        self._stopping.set()
        await asyncio.gather(
            *(self._end(self._parts[name], within) for name in names if name in self._parts)
        )

    def kill_all(self) -> None:
        """No more patience."""
        self._stopping.set()
        for part in self._parts.values():
            if part.running is not None:
                part.running.end()

    async def _end(self, part: _Part, within: float) -> None:
        running = part.running
        if running is None or running.code is not None:
            return
        running.ask_to_end()
        try:
            if not await patiently(
                running.wait(), clock=self._clock, within=within, ending=self._ending
            ):
                self._log.warning("part does not end: killed", part=part.boot.name)
        finally:
            running.end()  # it, or what is left of its group
        await running.wait()

    async def _keep(self, part: _Part, within: float) -> None:
        pause, unready = FIRST_PAUSE, 0
        while not self._stopping.is_set():
            began = self._clock.monotonic()
            try:
                running = part.running = await self._launch(part.boot, self._lock)
            except OSError as error:
                self._show(part, "waiting", pid=0, note=f"cannot be started: {error.strerror}")
                await self._clock.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
                continue
            self._show(part, "starting", pid=running.pid, starts=part.view.starts + 1)
            if self._stopping.is_set():
                running.end()  # whoever stops us has looked before it was there
            unready = 0 if await self._became_ready(part, running, within) else unready + 1
            code = await running.wait()
            running.end()
            state: State = "ended" if self._stopping.is_set() else "waiting"
            self._show(part, state, pid=0, code=code, note=_why(part.boot, code))
            if self._stopping.is_set():
                return
            hopeless = unready >= HOPELESS and not part.was_ready.is_set()
            if code == CANNOT_WORK or hopeless:
                raise self._failed(part, f"ended with code {code}")
            if self._clock.monotonic() - began > LIVED:
                pause = FIRST_PAUSE
            self._log.warning("part died", part=part.boot.name, code=code, again_in=pause)
            await self._clock.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _became_ready(self, part: _Part, running: Running, within: float) -> bool:
        """Whether it serves. One that hangs is killed: at first for good, later to try once more."""
        try:
            async with self._clock.timeout(within):
                if not await running.ready():
                    return False
        except TimeoutError:
            running.end()
            await running.wait()
            if not part.was_ready.is_set():
                raise self._failed(part, f"was not ready within {within:g} s") from None
            self._log.warning("part not ready: killed", part=part.boot.name, within=within)
            return False
        part.was_ready.set()
        self._show(part, "running")
        return True

    def _show(self, part: _Part, state: State, **changes: object) -> None:
        part.view = msgspec.structs.replace(part.view, state=state, **changes)
        self._changed(part.view)

    def _failed(self, part: _Part, what: str) -> PartFailed:
        name, layout = part.boot.name, part.boot.layout
        words = last_words(layout, name)
        full = suspicion(layout.root)
        what = f"{what}; {full}" if full else what
        said = f" It said last:\n{words}" if words else ""
        return PartFailed(f"the part {name} {what}. Its log: {layout.log(name)}.{said}")


def _why(boot: Boot, code: int) -> str:
    """What may be behind a death: a full disk, on which its log is too, or the last that it said."""
    words = last_words(boot.layout, boot.name).splitlines() if code > 0 else []
    return suspicion(boot.layout.root) or (words[-1][:_REASON] if words else "")
