"""An event loop with virtual time, whose only source of randomness is a seed.

Nothing here waits: when no callback is ready, time jumps to the next timer. A simulated day takes as long
as its callbacks take. The same seed gives the same order of callbacks, in any interpreter, so a failure
found once can be replayed as often as needed; another seed gives another order, so code that works only by luck of
the scheduler is found.

Invariants:
- Callbacks that are ready at the same time run in an order drawn from the seed. What they schedule runs
  after all of them, as with any asyncio loop. Time moves only when nothing is ready.
- Nothing ready and no timer is a `Deadlock`; a million callbacks without time moving is a `Livelock`.
- What asyncio would merely log (an exception that was not retrieved, a failing callback) ends the run with
  `Unhandled`, unless it happened in what is left of a simulated process that was killed.
- Threads, executors, sockets, signals and subprocesses are `Refused`: a simulation has none.

Why no address or hash seed can change a run. asyncio keeps tasks in sets in two places: its list of all
tasks, which is not used here (the loop has its own, in order of creation), and `TaskGroup`, which cancels
its children in the order of a set; that order decides in which order they are woken. So tasks made here
hash to their serial number: a set of them iterates by numbers that are the same in every run, not by
memory addresses. Garbage is collected after fixed numbers of callbacks and at no other time, because the
end of an abandoned async generator is scheduled when it is collected.
"""

import asyncio
import gc
import heapq
import math
import random
import types
import weakref
from asyncio import Handle, TimerHandle
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from pathlib import PurePath
from typing import Any, NoReturn, Protocol, TypeVar

T = TypeVar("T")

START = 1_767_225_600.0  # 2026-01-01T00:00:00Z: the default start of a simulation
LIVELOCK = 1_000_000
_COLLECT_EVERY = 50_000
_DRAIN_ROUNDS = 100
_SHOWN_TASKS = 25


class SimulationError(Exception):
    """The run cannot continue."""


class Deadlock(SimulationError):
    """Nothing is ready and no timer is set: what is awaited can never happen."""


class Livelock(SimulationError):
    """Callbacks run without end at one moment; time cannot advance."""


class Unhandled(SimulationError):
    """An exception that asyncio would only have logged."""


class Refused(SimulationError):
    """The code used threads, sockets, signals or subprocesses, which a simulation does not have."""


class Owner(Protocol):
    """The owner of tasks: one life of a simulated process."""

    label: str
    alive: bool

    def adopt(self, serial: int, task: "SimTask") -> None:
        """Called when a task was created in this owner's context."""
        ...

    def forget(self, serial: int) -> None:
        """Called when a task has ended."""
        ...


OWNER: ContextVar[Owner | None] = ContextVar("owner", default=None)


class SimTask(asyncio.Task[Any]):
    """A task with a serial number, which is its hash (see the module's docstring), and an owner."""

    def __init__(
        self,
        coro: Generator[Any, Any, Any] | Coroutine[Any, Any, Any],
        *,
        loop: "VirtualLoop",
        name: str,
        context: Context | None,
        serial: int,
        owner: Owner | None,
    ) -> None:
        self.serial = serial  # before the base class hashes the task
        self.owner = owner
        super().__init__(coro, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self.serial

    def __eq__(self, other: object) -> bool:
        return self is other


class _Handle(Handle):
    """A handle that does not ask the loop for its debug mode, which is half of a callback's cost."""

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: "VirtualLoop",
        context: Context | None,
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None


class _Timer(TimerHandle):
    """The same for timers."""

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: "VirtualLoop",
        context: Context | None,
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self._when = when
        self._scheduled = True


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop; `run_virtual` creates, runs and closes one."""

    def __init__(self, *, seed: int, start: float = START) -> None:
        super().__init__()
        self.start = start
        self.steps = 0  # callbacks run so far
        self.draining = False
        self._random = random.Random(seed)
        self._now = 0.0
        self._ready: list[Handle] = []
        self._paused: dict[Owner, list[Handle]] = {}
        self._scheduled: list[tuple[float, int, _Timer]] = []
        self._timer_cancelled_count = 0
        self._stopping = False
        self._timers = 0
        self._serial = 0
        self._still = 0  # callbacks run since time last moved
        self._collect_at = _COLLECT_EVERY
        self._tasks: dict[int, SimTask] = {}
        self._no_owner = Context()
        self._failed: list[weakref.ref[SimTask]] = []
        self._fatal: BaseException | None = None
        self.set_debug(False)

    # ── scheduling ──────────────────────────────────────────────────────────────────────────────

    def time(self) -> float:
        """Virtual seconds since the run began."""
        return self._now

    def call_soon(  # type: ignore[override]  # the same, without its variadic generics
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        """Run a callback in the next round."""
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]  # as above
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> TimerHandle:
        """Run a callback after `delay` virtual seconds."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]  # as above
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> TimerHandle:
        """Run a callback at a virtual time; timers of one moment are ready in order of creation."""
        handle = _Timer(when, callback, args, self, context)
        self._timers += 1
        heapq.heappush(self._scheduled, (when, self._timers, handle))
        return handle

    def create_task(
        self,
        coro: Generator[Any, Any, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
        **_: Any,
    ) -> asyncio.Task[T]:
        """Creates a task; it belongs to the owner of the context that it will run in."""
        if self.is_closed():
            coro.close()
            raise RuntimeError("the simulation has ended")
        serial = self._serial = self._serial + 1
        owner = OWNER.get() if context is None else context.get(OWNER)
        label = f"task-{serial}" if name is None else str(name)
        task = SimTask(coro, loop=self, name=label, context=context, serial=serial, owner=owner)
        self._tasks[serial] = task
        if owner is not None:
            owner.adopt(serial, task)
        task.add_done_callback(self._forget, context=self._no_owner)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        assert isinstance(task, SimTask)
        self._tasks.pop(task.serial, None)
        if task.owner is not None:
            task.owner.forget(task.serial)
        if not task.cancelled() and task._exception is not None:
            self._failed.append(weakref.ref(task))

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        if isinstance(handle, _Timer) and handle._scheduled:
            self._timer_cancelled_count += 1

    # ── running ─────────────────────────────────────────────────────────────────────────────────

    def _run_once(self) -> None:
        if self._timer_cancelled_count > 100 + len(self._scheduled) // 2:
            self._purge()
        if not self._ready and not self.draining:
            self._advance()
        if self._scheduled and self._scheduled[0][0] <= self._now:
            self._collect_due()
        batch, self._ready = self._ready, []
        if not batch:
            self._stopping = True  # draining, or failed, and nothing is left to do at this moment
        elif len(batch) > 1:
            batch = self._shuffled(batch)
        for handle in batch:
            if not handle._cancelled and not (self._paused and self._holds(handle)):
                handle._run()
        self.steps += len(batch)
        self._still += len(batch)
        if self.steps >= self._collect_at or self._still > LIVELOCK:
            self._take_stock()
        if self._fatal is not None and not self.draining:
            raise self._fatal

    def pause(self, owner: Owner) -> None:
        """Run nothing of this owner until `resume`, as SIGSTOP does to a process; time passes for it, too."""
        self._paused.setdefault(owner, [])

    def resume(self, owner: Owner) -> None:
        """Everything that became due meanwhile runs now, in any order."""
        self._ready += self._paused.pop(owner, [])

    def _holds(self, handle: Handle) -> bool:
        """Whether this callback belongs to a paused owner; it is kept for later then."""
        owner = handle._context.get(OWNER)  # type: ignore[attr-defined]  # typeshed does not know the field
        held = None if owner is None else self._paused.get(owner)
        if held is None:
            return False
        held.append(handle)
        return True

    def _shuffled(self, batch: list[Handle]) -> list[Handle]:
        draw = self._random.random
        keys = [draw() for _ in batch]
        return [batch[place] for place in sorted(range(len(batch)), key=keys.__getitem__)]

    def _advance(self) -> None:
        """Moves time to the next timer that is not cancelled."""
        heap = self._scheduled
        while heap and heap[0][2]._cancelled:
            heapq.heappop(heap)[2]._scheduled = False
            self._timer_cancelled_count -= 1
        if not heap or heap[0][0] == math.inf:
            gc.collect()  # an exception that was not retrieved may explain the deadlock
            if self._fatal is None and not self._ready:
                raise Deadlock(
                    f"no callback is ready and no timer is set at {self._now}\n{self.waiting()}"
                )
        elif heap[0][0] > self._now:
            self._now = heap[0][0]
            self._still = 0

    def _collect_due(self) -> None:
        heap, now = self._scheduled, self._now
        while heap and heap[0][0] <= now:
            handle = heapq.heappop(heap)[2]
            handle._scheduled = False
            if handle._cancelled:
                self._timer_cancelled_count -= 1
            else:
                self._ready.append(handle)

    def _purge(self) -> None:
        kept = []
        for entry in self._scheduled:
            if entry[2]._cancelled:
                entry[2]._scheduled = False
            else:
                kept.append(entry)
        heapq.heapify(kept)
        self._scheduled = kept
        self._timer_cancelled_count = 0

    def _take_stock(self) -> None:
        if self._still > LIVELOCK:
            raise Livelock(
                f"too many callbacks without time moving at {self._now}\n{self.waiting()}"
            )
        rounds = self._collect_at // _COLLECT_EVERY
        self._collect_at += _COLLECT_EVERY
        gc.collect(2 if rounds % 100 == 0 else 1 if rounds % 10 == 0 else 0)

    # ── failing and ending ──────────────────────────────────────────────────────────────────────

    def fail(self, error: BaseException) -> None:
        """Ends the run with this error after the current round; the first one counts."""
        if self._fatal is None:
            self._fatal = error

    @property
    def fatal(self) -> BaseException | None:
        """The error that ends, or ended, the run."""
        return self._fatal

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Makes fatal what asyncio would log, except in what is left of a killed process."""
        task = context.get("task") or context.get("future")
        owner = task.owner if isinstance(task, SimTask) else OWNER.get()
        if owner is not None and not owner.alive:
            return
        cause = context.get("exception")
        error = Unhandled(f"{context.get('message')}: {cause!r}, in {task!r}")
        error.__cause__ = cause
        self.fail(error)

    def waiting(self) -> str:
        """Which tasks are pending and where, oldest first."""
        pending = [task for task in self._tasks.values() if not task.done()]
        lines = [f"  {_describe(task)}" for task in pending[:_SHOWN_TASKS]]
        if len(pending) > _SHOWN_TASKS:
            lines.append(f"  and {len(pending) - _SHOWN_TASKS} more")
        return "\n".join(lines) or "  (no task is pending)"

    def drain(self) -> None:
        """Cancels what is left, repeatedly, until nothing is; time does not move meanwhile."""
        self.draining = True
        self._still = 0
        for _ in range(_DRAIN_ROUNDS):
            pending = [task for task in self._tasks.values() if not task.done()]
            if not pending and not self._ready:
                self._report_failed()
                return
            for task in pending:
                task.cancel()
            self.run_forever()
        raise SimulationError(f"these tasks ignore their cancellation\n{self.waiting()}")

    def _report_failed(self) -> None:
        """Reports failed tasks whose result cannot be retrieved any more."""
        for reference in self._failed:
            task = reference()
            if task is not None and task._log_traceback:
                error = task.exception()
                message = "Task exception was never retrieved"
                self.call_exception_handler({"message": message, "exception": error, "task": task})

    # ── async generators ────────────────────────────────────────────────────────────────────────

    def _asyncgen_firstiter_hook(self, agen: types.AsyncGeneratorType[Any, Any]) -> None:
        """Not tracked: the set that asyncio keeps has no stable order."""

    def _asyncgen_finalizer_hook(self, agen: types.AsyncGeneratorType[Any, Any]) -> None:
        if not self.is_closed():
            self.create_task(agen.aclose(), name=f"close {agen.__qualname__}")

    # ── refused operations ────────────────────────────────────────────────────────────────

    def _process_events(self, event_list: object) -> NoReturn:
        raise Refused("a simulation has no input and output")

    def _write_to_self(self) -> NoReturn:
        raise Refused("a simulation has no other threads")


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise Refused(f"{name}: a simulation has no threads, sockets, signals or subprocesses")

    return refuse


for _name in (
    *("call_soon_threadsafe", "run_in_executor", "getaddrinfo", "getnameinfo"),
    *("add_reader", "remove_reader", "add_writer", "remove_writer", "add_signal_handler"),
    *("create_connection", "create_server", "create_datagram_endpoint", "connect_accepted_socket"),
    *("create_unix_connection", "create_unix_server", "start_tls", "sendfile"),
    *("sock_recv", "sock_recv_into", "sock_sendall", "sock_connect", "sock_accept"),
    *("connect_read_pipe", "connect_write_pipe", "subprocess_exec", "subprocess_shell"),
):
    setattr(VirtualLoop, _name, _refusal(_name))


def run_virtual(main: Coroutine[Any, Any, T], *, seed: int = 0, start: float = START) -> T:
    """Runs a coroutine to its end under virtual time and closes everything that it left behind."""
    loop = VirtualLoop(seed=seed, start=start)
    collecting = gc.isenabled()
    gc.disable()
    try:
        task = loop.create_task(main, name="main", context=Context())
        result = _finish(loop, task)
        loop.drain()
        if loop.fatal is not None:
            raise loop.fatal
        return result
    finally:
        loop.close()
        if collecting:
            gc.enable()


def _finish(loop: VirtualLoop, task: asyncio.Task[T]) -> T:
    try:
        return loop.run_until_complete(task)
    except BaseException as error:
        try:
            loop.drain()
        except SimulationError as stuck:
            error.add_note(str(stuck))
        if task.done() and not task.cancelled():
            task.exception()  # marks it as retrieved; another error is being raised
        raise


def _describe(task: SimTask) -> str:
    owner = "" if task.owner is None else f" of {task.owner.label}"
    dead = "" if task.owner is None or task.owner.alive else " (killed)"
    return f"{task.get_name()}{owner}{dead} waits in {_where(task.get_coro())}"


def _where(waiter: object) -> str:
    """The chain of coroutines down to the innermost one."""
    chain: list[str] = []
    while waiter is not None and len(chain) < 12:
        frame = getattr(waiter, "cr_frame", None) or getattr(waiter, "ag_frame", None)
        if frame is not None:
            code = frame.f_code
            chain.append(f"{code.co_qualname} ({PurePath(code.co_filename).name}:{frame.f_lineno})")
        waiter = getattr(waiter, "cr_await", None) or getattr(waiter, "ag_await", None)
    return " > ".join(chain) or "(not started)"
