"""Runs a program with a deadline and ends its whole process group.

A program that hangs, writes without end or forks must not block its caller. So each one runs in a session of its own,
its output is bounded, and however the call ends (exit, deadline, cancellation, an error of ours) the whole
process group has been ended and its leader has been reaped when it returns.

    ProcError
    ├── ProgramMissing    there is no such program on this machine; the message says how to fix that
    ├── ProgramRefused    it exists but cannot be started (permissions, format, working directory)
    └── DeadlineExceeded  it ran longer than allowed and was ended; carries the output so far

A non-zero exit code is not an error here: only the caller knows what it means.

Invariants:
- Output beyond `limit` bytes per stream is read and thrown away, so a flood neither blocks the program nor fills
  memory; the beginning is kept and `truncated` is set.
- The deadline ends the group: TERM, a short wait, KILL. A child that ignores TERM or moves to the background
  within the session is ended too. A process that calls `setsid` leaves the group and is not ended.
- Once the program itself has ended, children that hold its output open have `GRACE` seconds; then they are ended.
- The environment is exactly `env` if it is given, else the caller's. Standard input is `input` and then its end.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

GRACE = 2.0  # seconds between TERM and KILL
LIMIT = 1024 * 1024


class ProcError(Exception):
    """The program did not run to its end."""


class ProgramMissing(ProcError):
    """There is no such program."""


class ProgramRefused(ProcError):
    """The operating system refused to start it."""


class Completed(msgspec.Struct, frozen=True, kw_only=True):
    """How a program ended. `code` is negative for a signal, as in `subprocess`."""

    code: int
    stdout: bytes
    stderr: bytes
    truncated: bool


class DeadlineExceeded(ProcError):
    """The program was ended because it took too long; `partial` is what it had written."""

    def __init__(self, message: str, partial: Completed) -> None:
        super().__init__(message)
        self.partial = partial


class _Watch(asyncio.SubprocessProtocol):
    """Collects the program's output and notices its exit.

    asyncio's own `Process.wait` returns only once all pipes are closed, which a child in the background can
    delay for ever; this protocol is called at the exit itself.
    """

    def __init__(self, limit: int) -> None:
        loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[None] = loop.create_future()
        self.output_closed: asyncio.Future[None] = loop.create_future()  # stdout and stderr
        self.closed: asyncio.Future[None] = loop.create_future()  # exited, and every pipe closed
        self.output = {1: bytearray(), 2: bytearray()}
        self.truncated = False
        self.open = [0, 1, 2]
        self._limit = limit

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Append the output, up to the limit."""
        output = self.output[fd]
        left = self._limit - len(output)
        output += data[:left]
        self.truncated = self.truncated or len(data) > left

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """A pipe was closed."""
        self.open.remove(fd)
        if fd != 0 and self.open in ([], [0]):
            self.output_closed.set_result(None)

    def process_exited(self) -> None:
        """The program itself has ended and is reaped."""
        self.exited.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Ended, reaped and every pipe closed."""
        self.closed.set_result(None)


async def run(
    argv: Sequence[str],
    *,
    timeout: float,
    input: bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    limit: int = LIMIT,
    grace: float = GRACE,
) -> Completed:
    """Run a program to its end, at most `timeout` seconds; see the module for what is guaranteed."""
    # Cancelled while it starts, asyncio would end the program but not what the program has started.
    started = _start(argv, env=env, cwd=cwd, limit=limit)
    (transport, watch), cancelled = await _uninterrupted(started)
    late = asyncio.timeout(timeout)
    try:
        if cancelled is not None:
            raise cancelled
        async with late:
            await _feed_and_wait(transport, watch, input, grace=grace)
    except TimeoutError:
        if not late.expired():
            raise
    finally:
        _, cancelled = await _uninterrupted(_end_group(transport, watch, grace=grace))
        if cancelled is not None:
            raise cancelled
    code = transport.get_returncode()
    assert code is not None
    done = Completed(
        code=code,
        stdout=bytes(watch.output[1]),
        stderr=bytes(watch.output[2]),
        truncated=watch.truncated,
    )
    if late.expired():
        raise DeadlineExceeded(f"{argv[0]} did not end within {timeout:g} s", done)
    return done


async def _start(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None,
    cwd: str | os.PathLike[str] | None,
    limit: int,
) -> tuple[asyncio.SubprocessTransport, _Watch]:
    if not argv:
        raise ValueError("argv is empty")
    if cwd is not None and not Path(cwd).is_dir():
        raise ProgramRefused(f"{argv[0]}: the working directory {os.fspath(cwd)} does not exist")
    loop = asyncio.get_running_loop()
    try:
        return await loop.subprocess_exec(
            lambda: _Watch(limit), *argv, env=env, cwd=cwd, start_new_session=True
        )
    except FileNotFoundError:
        raise ProgramMissing(
            f"{argv[0]} was not found: install it, or put its directory on PATH"
        ) from None
    except OSError as error:
        raise ProgramRefused(f"{argv[0]} cannot be started: {error.strerror}") from error


async def _feed_and_wait(
    transport: asyncio.SubprocessTransport, watch: _Watch, input: bytes, *, grace: float
) -> None:
    """Write the input, and wait until the program has ended and its output is closed."""
    stdin = transport.get_pipe_transport(0)
    assert isinstance(stdin, asyncio.WriteTransport)
    stdin.write(input)
    stdin.close()  # after what was written has been read
    await asyncio.wait((watch.exited,))
    await asyncio.wait((watch.output_closed,), timeout=grace)


async def _end_group(
    transport: asyncio.SubprocessTransport, watch: _Watch, *, grace: float
) -> None:
    """End whatever is left of the group, reap its leader and close the pipes."""
    if not watch.exited.done():
        _signal(transport, signal.SIGTERM)
        await asyncio.wait((watch.exited,), timeout=grace)
    _signal(transport, signal.SIGKILL)
    await watch.exited
    # A process that left the session may hold the output open for ever.
    await asyncio.wait((watch.output_closed,), timeout=grace)
    stdin = transport.get_pipe_transport(0)
    if 0 in watch.open and isinstance(stdin, asyncio.WriteTransport):
        stdin.abort()  # closing alone would wait until the rest is read
    transport.close()
    await watch.closed


def _signal(transport: asyncio.SubprocessTransport, number: signal.Signals) -> None:
    """Signal the whole group, which may outlive its leader.

    While a group has members, the system gives its number to no new process. So if the leader has been
    reaped and a process of that number exists, the group is empty and the number belongs to another process.
    """
    pid = transport.get_pid()
    assert pid is not None
    if transport.get_returncode() is not None and _exists(pid):
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


async def _uninterrupted(
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
