"""Runs a program with a deadline and ends its whole process group.

A program that hangs, writes without end or forks must not block its caller. So each one runs in a session of its own,
its output is bounded, and however the call ends (exit, deadline, cancellation, an error of ours) the whole
process group has been ended and its leader has been reaped when it returns. `procgroup` has the errors; `proclines`
reads a program's output line by line while it runs; `procsession` talks to one, with a terminal if it needs one.

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
import signal
from collections.abc import Mapping, Sequence

import msgspec

from runyard.clock import Clock, RealClock
from runyard.procgroup import (
    GRACE,
    Group,
    ProcError,
    ProgramMissing,
    ProgramRefused,
    SignalSteps,
    StrPath,
    TooLong,
    settled,
    start,
    uninterrupted,
)

__all__ = [
    "GRACE",
    "LIMIT",
    "Completed",
    "DeadlineExceeded",
    "ProcError",
    "ProgramMissing",
    "ProgramRefused",
    "run",
]

LIMIT = 1024 * 1024
_REAL = RealClock()


class Completed(msgspec.Struct, frozen=True, kw_only=True):
    """How a program ended. `code` is negative for a signal, as in `subprocess`."""

    code: int
    stdout: bytes
    stderr: bytes
    truncated: bool


class DeadlineExceeded(TooLong):
    """The program was ended because it took too long; `partial` is what it had written."""

    def __init__(self, message: str, partial: Completed) -> None:
        super().__init__(message)
        self.partial = partial


class _Collecting(Group):
    """Collects the program's output, up to a limit for each stream."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.output = {1: bytearray(), 2: bytearray()}
        self.truncated = False
        self._limit = limit

    def received(self, fd: int, data: bytes) -> None:
        """Append the output, up to the limit."""
        output = self.output[fd]
        left = self._limit - len(output)
        output += data[:left]
        self.truncated = self.truncated or len(data) > left

    def completed(self) -> Completed:
        """How it ended, once it has."""
        return Completed(
            code=self.code,
            stdout=bytes(self.output[1]),
            stderr=bytes(self.output[2]),
            truncated=self.truncated,
        )


async def run(
    argv: Sequence[str],
    *,
    timeout: float,
    input: bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: StrPath | None = None,
    limit: int = LIMIT,
    grace: float = GRACE,
    steps: SignalSteps | None = None,
    clock: Clock = _REAL,
) -> Completed:
    """Run a program to its end, at most `timeout` seconds; see the module for what is guaranteed.

    `steps` are how it is ended, by default TERM and `grace` seconds for it.
    """
    group, cancelled = await start(argv, _Collecting(limit), env=env, cwd=cwd)
    late = clock.timeout(timeout)
    try:
        if cancelled is not None:
            raise cancelled
        async with late:
            await _feed_and_wait(group, input, clock, grace=grace)
    except TimeoutError:
        if not late.expired():
            raise
    finally:
        how = ((signal.SIGTERM, grace),) if steps is None else steps
        _, cancelled = await uninterrupted(group.end(clock, how, grace=grace))
        if cancelled is not None:
            raise cancelled
    done = group.completed()
    if late.expired():
        raise DeadlineExceeded(f"{argv[0]} did not end within {timeout:g} s", done)
    return done


async def _feed_and_wait(group: _Collecting, input: bytes, clock: Clock, *, grace: float) -> None:
    """Write the input, and wait until the program has ended and its output is closed."""
    stdin = group.transport.get_pipe_transport(0)
    assert isinstance(stdin, asyncio.WriteTransport)
    stdin.write(input)
    stdin.close()  # after what was written has been read
    await asyncio.wait((group.exited,))
    await settled(group.output_closed, clock, within=grace)
