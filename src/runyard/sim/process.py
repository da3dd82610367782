"""Runs a component like an operating system process: it starts, it can be killed, it restarts.

The difficulty in killing code in one address space is that Python unwinds: `finally` blocks run, and would clean up
what `kill -9` leaves behind. So a kill first makes every effect of that life unreachable, and only then cancels its
tasks. What they still try while they unwind has no effect.

An *effect* is anything that another process or a restart can see: a request, a transaction, a write to disk,
a call of the VM driver. Each passes through `perform` (or `perform_sync`), is numbered, and can be the exact point
of a crash, before or after it happens. Enumerating these numbers visits every crash point of a run.

Invariants:
- Tasks belong to one life of a process, through their context, and so do the tasks that they start. A life
  that has ended never comes back: a restart is a new life, and what remains of the old one stays cut off.
- An effect that crashes, or that a dead life tries, never returns to its caller. An async one waits until it is
  cancelled; a sync one raises `Killed`, a cancellation.
- Whether an effect has happened when a crash hits in its middle depends on the effect: what is on the network
  continues, what runs in the caller is cancelled (name it in `detached` if it would continue in reality).
- A component that ends with an exception, or is cancelled from inside, ends the run with `ComponentDied`, unless the
  exception is one of its `expected_exits`.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextvars import Context
from typing import Any, Literal, NoReturn, TypeVar, cast

from runyard.db.contract import Database, Tx
from runyard.http.messages import Request, Response, Stream, Transport
from runyard.sim.loop import OWNER, SimTask, SimulationError, VirtualLoop
from runyard.sim.trace import Trace

T = TypeVar("T")
When = Literal["before", "after"]
Main = Callable[[], Coroutine[Any, Any, object]]


class ComponentDied(SimulationError):
    """A component ended although it was not killed."""


class Killed(asyncio.CancelledError):
    """Raised instead of a sync effect of a process that was killed."""


class Life:
    """One life of a process: from a start to the next crash."""

    def __init__(self, label: str, process: "Process") -> None:
        self.label = label
        self.alive = True
        self.process = process
        self.tasks: dict[int, SimTask] = {}

    def adopt(self, serial: int, task: SimTask) -> None:
        """Adds a task that was created in this life's context."""
        self.tasks[serial] = task

    def forget(self, serial: int) -> None:
        """Removes a task that has ended."""
        self.tasks.pop(serial, None)


class Process:
    """A component under the simulator."""

    def __init__(
        self, name: str, *, trace: Trace, expected_exits: tuple[type[Exception], ...] = ()
    ) -> None:
        self.name = name
        self.effects = 0  # begun so far, over all lives
        self.starts = 0
        self.failure: BaseException | None = None  # the exception of its last exit without a kill
        self._expected_exits = expected_exits
        self._trace = trace
        self._main: Main | None = None
        self._life: Life | None = None
        self._crash_points: dict[int, When] = {}
        self._on_crash: list[Callable[[], None]] = []
        self._on_exit: list[Callable[[], None]] = []

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._life is not None and self._life.alive

    def start(self, main: Main | None = None) -> None:
        """Starts a life; `main` is called in it. Without `main` it only serves requests."""
        if self.alive:
            raise SimulationError(f"{self.name} is already running")
        self.starts += 1
        self._main = main
        self._life = Life(f"{self.name}#{self.starts}", self)
        self._trace.note("start", self.name, self.starts)
        if main is not None:
            root = self.spawn(main(), name=self.name)
            root.add_done_callback(self._ended)

    def restart(self) -> None:
        """Kills it if it runs, and starts the same main in a new life."""
        if self.alive:
            self.crash()
        self.start(self._main)

    def crash(self) -> None:
        """Kills it now, as `kill -9` would. Also callable from its own code."""
        life = self._life
        if life is None or not life.alive:
            return
        self._trace.note("crash", self.name, self.effects)
        self._end(life)

    def pause(self) -> None:
        """Stop it as SIGSTOP would: it does nothing and learns nothing until `resume`."""
        if self._life is not None and self._life.alive:
            self._trace.note("pause", self.name)
            _loop().pause(self._life)

    def resume(self) -> None:
        """Let it continue as SIGCONT would."""
        if self._life is not None:
            self._trace.note("resume", self.name)
            _loop().resume(self._life)

    def crash_at(self, effect: int, *, when: When) -> None:
        """Kills it exactly before or after its effect of that number (the first one is 1)."""
        self._crash_points[effect] = when

    def on_crash(self, callback: Callable[[], None]) -> None:
        """Calls this at each end of a life, after it was cut off and before its tasks are cancelled."""
        self._on_crash.append(callback)

    def on_exit(self, callback: Callable[[], None]) -> None:
        """Calls this when the component ended without a kill: for a supervisor that restarts it."""
        self._on_exit.append(callback)

    def spawn(self, work: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        """Runs a coroutine as a task of the current life."""
        life = self._life
        if life is None or not life.alive:
            work.close()
            raise SimulationError(f"{self.name} is not running")
        context = Context()
        context.run(OWNER.set, life)
        return _loop().create_task(work, name=name, context=context)

    # ── effects ─────────────────────────────────────────────────────────────────────────────────

    async def perform(
        self, kind: str, name: str, act: Callable[[], Awaitable[T]], *, detached: bool = False
    ) -> T:
        """Performs one async effect of this process."""
        life = self._caller()
        if not life.alive or self._begins(kind, name) == "before":
            await _for_ever()
        number = self.effects
        try:
            result = await (_detached(act()) if detached else act())
        except Exception:
            await self._returns(number, life)
            raise
        await self._returns(number, life)
        return result

    def perform_sync(self, kind: str, name: str, act: Callable[[], T]) -> T:
        """Performs one effect that does not wait, such as a write to disk."""
        life = self._caller()
        if not life.alive or self._begins(kind, name) == "before":
            raise Killed(f"{life.label} is dead")
        number = self.effects
        try:
            result = act()
        except Exception:
            self._returns_sync(number, life)
            raise
        self._returns_sync(number, life)
        return result

    def _caller(self) -> Life:
        """The life of the running task, which may have ended long ago."""
        owner = OWNER.get()
        if isinstance(owner, Life) and owner.process is self:
            return owner
        if self._life is None:
            raise SimulationError(f"{self.name} was never started")
        return self._life

    def _begins(self, kind: str, name: str) -> When | None:
        self.effects += 1
        self._trace.note("effect", self.name, self.effects, kind, name)
        if self._crash_points.get(self.effects) != "before":
            return None
        self.crash()
        return "before"

    async def _returns(self, number: int, life: Life) -> None:
        self._crash_after(number)
        if not life.alive:
            await _for_ever()

    def _returns_sync(self, number: int, life: Life) -> None:
        self._crash_after(number)
        if not life.alive:
            raise Killed(f"{life.label} is dead")

    def _crash_after(self, number: int) -> None:
        if self._crash_points.get(number) == "after":
            del self._crash_points[number]
            self.crash()

    # ── ends ────────────────────────────────────────────────────────────────────────────────────

    def _end(self, life: Life) -> None:
        life.alive = False  # first of all: from here on no effect of this life arrives
        _loop().resume(life)  # one that was paused is unwound like any other
        for callback in self._on_crash:
            callback()
        for task in list(life.tasks.values()):
            task.cancel()

    def _ended(self, root: asyncio.Task[object]) -> None:
        assert isinstance(root, SimTask)
        life, loop = root.owner, _loop()
        assert isinstance(life, Life)
        error = None if root.cancelled() else root.exception()
        if not life.alive or loop.draining:
            return
        self._trace.note("exit", self.name, type(error).__name__)
        self.failure = error
        self._end(life)
        if root.cancelled() or (error is not None and not isinstance(error, self._expected_exits)):
            died = ComponentDied(f"{life.label} died: {error!r}")
            died.__cause__ = error
            loop.fail(died)
        for callback in self._on_exit:
            callback()


class _Transport:
    def __init__(self, process: Process, link: Transport, name: str) -> None:
        self._process, self._link, self._name = process, link, name

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        return await self._process.perform(
            "send",
            f"{self._name} {request.method} {request.path}",
            lambda: self._link.send(request, timeout=timeout),
        )


class _Database:
    def __init__(self, process: Process, database: Database) -> None:
        self._process, self._database = process, database

    async def transact(self, work: Callable[[Tx], Awaitable[T]], *, name: str) -> T:
        return await self._process.perform(
            "transact", name, lambda: self._database.transact(work, name=name)
        )


def wrap_transport(process: Process, link: Transport, *, name: str = "") -> Transport:
    """The link as this process uses it: each request is an effect, and a crash closes it."""
    hang_up = getattr(link, "hang_up", None)
    if hang_up is not None:
        process.on_crash(hang_up)
    return _Transport(process, link, name or getattr(link, "name", ""))


def wrap_database(process: Process, database: Database) -> Database:
    """The database as this process uses it: each transaction is an effect."""
    return _Database(process, database)


class _Wrapped:
    def __init__(
        self,
        process: Process,
        target: object,
        names: Iterable[str],
        *,
        kind: str,
        detached: tuple[str, ...],
    ) -> None:
        self._target = target
        for name in names:
            method = getattr(target, name)
            label = f"{kind}.{name}"
            if inspect.iscoroutinefunction(method):
                bound = _async_effect(process, method, label, detached=name in detached)
            else:
                bound = _sync_effect(process, method, label)
            setattr(self, name, bound)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)


def wrap(
    process: Process,
    target: T,
    names: Iterable[str],
    *,
    kind: str = "",
    detached: tuple[str, ...] = (),
) -> T:
    """An object as this process uses it: the named methods are effects.

    Sync and async methods may be mixed; other attributes pass through. Methods in `detached` continue when the
    process is killed while it waits for them, as a started child process would.
    """
    label = kind or type(target).__name__
    return cast(T, _Wrapped(process, target, names, kind=label, detached=detached))


def _async_effect(
    process: Process, method: Callable[..., Awaitable[T]], label: str, *, detached: bool
) -> Callable[..., Awaitable[T]]:
    async def effect(*args: Any, **kwargs: Any) -> T:
        return await process.perform(
            "call", label, lambda: method(*args, **kwargs), detached=detached
        )

    return effect


def _sync_effect(process: Process, method: Callable[..., T], label: str) -> Callable[..., T]:
    def effect(*args: Any, **kwargs: Any) -> T:
        return process.perform_sync("call", label, lambda: method(*args, **kwargs))

    return effect


async def _detached(act: Awaitable[T]) -> T:
    """Waits for work that continues when the process is killed."""

    async def work() -> T:
        return await act

    task = _loop().create_task(work(), context=Context())
    try:
        await asyncio.wait((task,))
        return task.result()
    except asyncio.CancelledError:
        task.add_done_callback(_retrieve)  # its result is not needed any more
        raise


def _retrieve(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()


async def _for_ever() -> NoReturn:
    await _loop().create_future()
    raise AssertionError("this future cannot be completed")


def _loop() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop
