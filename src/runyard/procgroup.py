"""Starts a program in a session of its own and ends its whole process group.

`proc`, `proclines` and `procsession` are built on it.

A program that hangs must not block its caller, and neither must what it has started: a grandchild may hold its pipes,
ignore TERM, or write without end.

    ProcError
    ├── ProgramMissing    there is no such program on this machine; the message says how to fix that
    ├── ProgramRefused    it exists but cannot be started (permissions, format, working directory)
    ├── TooLong           it ran longer than allowed and was ended
    └── Stalled           it made no progress for so long that it was ended

Invariants:
- A group is ended by steps: each signal with its wait, and KILL at the end, whether or not the program itself
  has already exited. A process that calls `setsid` leaves the group and is not ended.
- When `end` returns, the program is reaped and its pipes are closed. Cancelling does not interrupt it.
- Once a group is empty, its number may belong to another process and is not signalled any more.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from runyard.clock import Clock

T = TypeVar("T")
StrPath = str | os.PathLike[str]

GRACE = (
    2.0  # seconds between TERM and KILL, and for what holds the output after its program has ended
)
SignalSteps = tuple[
    tuple[signal.Signals, float], ...
]  # each signal with the seconds to wait after it
TERM_FIRST: SignalSteps = ((signal.SIGTERM, GRACE),)
INT_FIRST: SignalSteps = (
    (signal.SIGINT, 10.0),
    (signal.SIGTERM, GRACE),
)  # for what tidies up on INT


class ProcError(Exception):
    """The program did not run to its end."""


class ProgramMissing(ProcError):
    """There is no such program."""


class ProgramRefused(ProcError):
    """The operating system refused to start it."""


class TooLong(ProcError):
    """The program was ended because it ran longer than allowed."""


class Stalled(ProcError):
    """The program was ended because it made no progress."""


class Group(asyncio.SubprocessProtocol):
    """Notices the exit of a program and the end of its output, and signals its group.

    asyncio's own `Process.wait` returns only once all pipes are closed, which a child in the background can
    delay for ever; this protocol is called at the exit itself.
    """

    transport: asyncio.SubprocessTransport

    def __init__(self, pipes: Sequence[int] = (0, 1, 2)) -> None:
        loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[None] = loop.create_future()
        self.output_closed: asyncio.Future[None] = loop.create_future()  # stdout and stderr
        self.closed: asyncio.Future[None] = loop.create_future()  # exited, and every pipe closed
        self.open = list(pipes)

    @property
    def code(self) -> int:
        """The exit code of a program that has exited."""
        code = self.transport.get_returncode()
        assert code is not None
        return code

    def received(self, fd: int, data: bytes) -> None:
        """Take output of the program."""
        raise NotImplementedError

    def discard(self) -> None:
        """Throw further output away: it is not read any more."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The program was started."""
        assert isinstance(transport, asyncio.SubprocessTransport)
        self.transport = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Output arrived."""
        self.received(fd, data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """A pipe was closed."""
        self.open.remove(fd)
        if fd != 0 and self.open in ([], [0]):
            self.output_ended()

    def output_ended(self) -> None:
        """Everything that was written has been received."""
        if not self.output_closed.done():
            self.output_closed.set_result(None)

    def process_exited(self) -> None:
        """The program itself has ended and is reaped."""
        self.exited.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Ended, reaped and every pipe closed."""
        self.closed.set_result(None)

    async def end(self, clock: Clock, steps: SignalSteps, *, grace: float = GRACE) -> None:
        """End whatever is left of the group, reap its leader and close the pipes."""
        self.discard()
        for number, wait in steps:
            if self.exited.done():
                break
            self.signal(number)
            await settled(self.exited, clock, within=wait)
        self.signal(signal.SIGKILL)
        await self.exited
        # A process that left the session may hold the output open for ever.
        await settled(self.output_closed, clock, within=grace)
        stdin = self.transport.get_pipe_transport(0)
        if 0 in self.open and isinstance(stdin, asyncio.WriteTransport):
            stdin.abort()  # closing alone would wait until the rest is read
        self.transport.close()
        await self.closed

    def signal(self, number: signal.Signals) -> None:
        """Signal the whole group, which may outlive its leader.

        While a group has members, the system gives its number to no new process. So if the leader has been
        reaped and a process of that number exists, the group is empty and the number belongs to another process.
        """
        pid = self.transport.get_pid()
        assert pid is not None
        if self.transport.get_returncode() is not None and _exists(pid):
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, number)


G = TypeVar("G", bound=Group)


async def start(
    argv: Sequence[str],
    group: G,
    *,
    env: Mapping[str, str] | None,
    cwd: StrPath | None,
    stdio: int = asyncio.subprocess.PIPE,
    handles: Sequence[int] = (),
) -> tuple[G, asyncio.CancelledError | None]:
    """Start a program; returns the cancellation that arrived meanwhile, for the caller to raise after `end`.

    `handles`: open files that it gets under the same numbers.

    Cancelled while it starts, asyncio would end the program but not what the program has started.
    """
    return await uninterrupted(_start(argv, group, env=env, cwd=cwd, stdio=stdio, handles=handles))


async def _start(
    argv: Sequence[str],
    group: G,
    *,
    env: Mapping[str, str] | None,
    cwd: StrPath | None,
    stdio: int,
    handles: Sequence[int],
) -> G:
    if not argv:
        raise ValueError("argv is empty")
    if cwd is not None and not Path(cwd).is_dir():
        raise ProgramRefused(f"{argv[0]}: the working directory {os.fspath(cwd)} does not exist")
    loop = asyncio.get_running_loop()
    try:
        await loop.subprocess_exec(
            lambda: group,
            *argv,
            stdin=stdio,
            stdout=stdio,
            stderr=stdio,
            env=env,
            cwd=cwd,
            pass_fds=handles,
            start_new_session=True,
        )
    except FileNotFoundError:
        raise missing(argv[0]) from None
    except OSError as error:
        raise ProgramRefused(f"{argv[0]} cannot be started: {error.strerror}") from error
    return group


def missing(program: str) -> ProgramMissing:
    """The error for a program that does not exist."""
    return ProgramMissing(f"{program} was not found: install it, or put its directory on PATH")


async def settled(future: asyncio.Future[None], clock: Clock, *, within: float) -> bool:
    """Wait for a future, at most so many seconds, without cancelling it; returns whether it is done."""
    late = clock.timeout(within)
    try:
        async with late:
            await asyncio.wait((future,))
    except TimeoutError:
        if not late.expired():
            raise
    return future.done()


async def uninterrupted(
    work: Coroutine[Any, Any, T],
) -> tuple[T, asyncio.CancelledError | None]:
    """Finish the work even if the caller is cancelled; returns that cancellation for the caller to raise."""
    task = asyncio.get_running_loop().create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    return task.result(), cancelled


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
