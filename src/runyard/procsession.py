"""Runs a program that is talked to: input and output at the caller's pace, with a terminal if it needs one.

    async with session(argv, clock=clock, terminal=Size(80, 24)) as program:
        await program.write(b"ls\\n")
        while (chunk := await program.read()) is not None:
            …

With a terminal the program gets a new one as its controlling terminal: it can turn off echo, learns of a new size by
WINCH, and its end hangs up its children. asyncio cannot make a terminal the controlling one without code between fork
and exec, which may deadlock in a process with threads; so a small program of the standard library does it and then
becomes the program that was asked for.

Invariants:
- Memory is bounded both ways: while no one reads, the program waits; `write` returns when most of its input was taken.
- Input of a program that has ended is dropped.
- However the context is left, the whole process group is ended first: TERM, a short wait, KILL.
"""

import asyncio
import contextlib
import fcntl
import os
import pty
import shutil
import struct
import sys
import termios
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import cast

import msgspec

from runyard.clock import Clock
from runyard.procgroup import (
    GRACE,
    TERM_FIRST,
    Group,
    SignalSteps,
    StrPath,
    missing,
    start,
    uninterrupted,
)

HELD = 256 * 1024  # bytes of output that are kept for the reader
_INPUT_ENDS = b"\x04"  # what a terminal takes for the end of input
_TAKE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""


class Size(msgspec.Struct, frozen=True):
    """The size of a terminal in characters."""

    columns: int
    rows: int


class _Talking(Group):
    """Keeps little output for the reader, and counts whether input may be written."""

    def __init__(self, pipes: Sequence[int]) -> None:
        super().__init__(pipes)
        self.chunks: deque[tuple[int, bytes]] = deque()
        self.news = asyncio.Event()
        self.writable = asyncio.Event()
        self.writable.set()
        self.readers: list[asyncio.ReadTransport] = []
        self._held = 0
        self._discarding = False

    def received(self, fd: int, data: bytes) -> None:
        """Keep it; too much makes the program wait."""
        if self._discarding:
            return
        self.chunks.append((fd, data))
        self._held += len(data)
        self.news.set()
        if self._held > HELD:
            for reader in self.readers:
                reader.pause_reading()

    def take(self) -> tuple[int, bytes]:
        """The oldest output."""
        fd, data = self.chunks.popleft()
        self._held -= len(data)
        if self._held <= HELD // 2:
            self._resume()
        return fd, data

    def discard(self) -> None:
        """Throw further output away, so that the pipes reach their end."""
        self._discarding = True
        self._resume()

    def output_ended(self) -> None:
        """Wake the reader."""
        super().output_ended()
        self.news.set()

    def process_exited(self) -> None:
        """Nothing takes input any more, but output may be left."""
        super().process_exited()
        self.writable.set()
        self.news.set()

    def pause_writing(self) -> None:
        """The program reads slower than we write."""
        if not self.exited.done():
            self.writable.clear()

    def resume_writing(self) -> None:
        """Most of the input was taken."""
        self.writable.set()

    def _resume(self) -> None:
        for reader in self.readers:
            reader.resume_reading()


class Session:
    """A running program that is talked to."""

    def __init__(
        self, group: _Talking, clock: Clock, stdin: asyncio.WriteTransport, terminal: int
    ) -> None:
        self._group, self._clock, self._stdin = group, clock, stdin
        self._terminal = terminal  # our side of it; -1: there is none
        self._grace = GRACE

    async def read(self) -> tuple[int, bytes] | None:
        """The next output with the number of its stream (1 or 2); None at the end. A terminal has stream 1 only."""
        while not self._group.chunks:
            if self._group.output_closed.done() or self._grace <= 0:
                return None
            await self._wait()
        return self._group.take()

    async def _wait(self) -> None:
        """Wait for output; what holds the output of a program that has exited has little time left."""
        after_exit = self._group.exited.done()
        began = self._clock.monotonic()
        late = self._clock.timeout(self._grace if after_exit else float("inf"))
        try:
            async with late:
                await self._group.news.wait()
        except TimeoutError:
            if not late.expired():
                raise
        self._group.news.clear()
        if after_exit:
            self._grace -= self._clock.monotonic() - began

    async def write(self, data: bytes) -> None:
        """Pass input on; returns when most of it was taken. Input of an ended program is dropped."""
        if self._stdin.is_closing() or self._group.exited.done():
            return
        self._stdin.write(data)
        await self._group.writable.wait()

    async def close_input(self) -> None:
        """End the input. Twice is success."""
        if self._terminal >= 0:
            await self.write(_INPUT_ENDS)
        elif not self._stdin.is_closing():
            self._stdin.close()  # after what was written has been taken

    async def resize(self, size: Size) -> None:
        """Change the size of the terminal; without one nothing happens."""
        if self._terminal >= 0 and not self._group.exited.done():
            _set_size(self._terminal, size)

    async def wait(self) -> int:
        """Wait for the program's end; returns its exit code, negative for a signal. Output must be read meanwhile."""
        await asyncio.wait((self._group.exited,))
        return self._group.code


@contextlib.asynccontextmanager
async def session(
    argv: Sequence[str],
    *,
    clock: Clock,
    terminal: Size | None = None,
    env: Mapping[str, str] | None = None,
    cwd: StrPath | None = None,
    steps: SignalSteps = TERM_FIRST,
    handles: Sequence[int] = (),
) -> AsyncIterator[Session]:
    """Run a program and talk to it; it gets the open files `handles`. See the module for what is guaranteed."""
    opened = (
        _with_pipes(argv, clock, env=env, cwd=cwd, steps=steps, handles=handles)
        if terminal is None
        else _with_terminal(argv, clock, terminal, env=env, cwd=cwd, steps=steps, handles=handles)
    )
    async with opened as program:
        yield program


@contextlib.asynccontextmanager
async def _with_pipes(
    argv: Sequence[str],
    clock: Clock,
    *,
    env: Mapping[str, str] | None,
    cwd: StrPath | None,
    steps: SignalSteps,
    handles: Sequence[int],
) -> AsyncIterator[Session]:
    group, cancelled = await start(argv, _Talking((0, 1, 2)), env=env, cwd=cwd, handles=handles)
    pipes = [group.transport.get_pipe_transport(fd) for fd in (0, 1, 2)]
    group.readers = [cast("asyncio.ReadTransport", pipe) for pipe in pipes[1:]]
    try:
        if cancelled is not None:
            raise cancelled
        yield Session(group, clock, cast("asyncio.WriteTransport", pipes[0]), terminal=-1)
    finally:
        await _end(group, clock, steps)


@contextlib.asynccontextmanager
async def _with_terminal(
    argv: Sequence[str],
    clock: Clock,
    size: Size,
    *,
    env: Mapping[str, str] | None,
    cwd: StrPath | None,
    steps: SignalSteps,
    handles: Sequence[int],
) -> AsyncIterator[Session]:
    program = shutil.which(argv[0], path=None if env is None else env.get("PATH"))
    if program is None:
        raise missing(argv[0])
    helper = (sys.executable, "-I", "-S", "-c", _TAKE_TERMINAL, program, *argv[1:])
    group = _Talking(())
    ours, theirs = pty.openpty()
    with contextlib.ExitStack() as stack:
        stack.enter_context(_closing(ours))
        with _closing(theirs):
            _set_size(ours, size)
            _, cancelled = await start(
                helper, group, env=env, cwd=cwd, stdio=theirs, handles=handles
            )
        try:
            if cancelled is not None:
                raise cancelled
            async with _connected(ours, group) as stdin:
                yield Session(group, clock, stdin, ours)
        finally:
            stack.close()  # hangs up first: on macOS a program cannot exit while a terminal holds its output
            await _end(group, clock, steps)


@contextlib.contextmanager
def _closing(handle: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(handle)


@contextlib.asynccontextmanager
async def _connected(ours: int, group: _Talking) -> AsyncIterator[asyncio.WriteTransport]:
    """Connects our side of a terminal to the group, by descriptors of their own: each transport closes its."""
    loop = asyncio.get_running_loop()
    reader, _ = await loop.connect_read_pipe(
        lambda: _TerminalOutput(group), os.fdopen(os.dup(ours), "rb", buffering=0)
    )
    group.readers = [reader]
    writer, _ = await loop.connect_write_pipe(
        lambda: _TerminalInput(group), os.fdopen(os.dup(ours), "wb", buffering=0)
    )
    try:
        yield writer
    finally:
        writer.abort()
        reader.close()


class _TerminalOutput(asyncio.Protocol):
    """Passes a terminal's output on to the group. Once no process holds the terminal, reading it fails on Linux."""

    def __init__(self, group: _Talking) -> None:
        self._group = group

    def data_received(self, data: bytes) -> None:
        self._group.received(1, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._group.output_ended()


class _TerminalInput(asyncio.BaseProtocol):
    """Tells the group when a terminal takes input."""

    def __init__(self, group: _Talking) -> None:
        self._group = group

    def pause_writing(self) -> None:
        self._group.pause_writing()

    def resume_writing(self) -> None:
        self._group.resume_writing()


async def _end(group: _Talking, clock: Clock, steps: SignalSteps) -> None:
    _, cancelled = await uninterrupted(group.end(clock, steps))
    if cancelled is not None:
        raise cancelled


def _set_size(terminal: int, size: Size) -> None:
    packed = struct.pack("HHHH", size.rows, size.columns, 0, 0)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, packed)
