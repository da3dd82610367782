"""Runs a program whose output is read line by line while it runs, and ends it when it makes no progress.

    async with stream(argv, clock=clock, stall=Stall(seconds=300, growing=(folder,))) as lines:
        async for line in lines:
            …
        code = lines.code

A download may rightly take hours, so it is bounded by progress and not by time. Progress is a line (or only those lines
that the caller's `advances` accepts, because a program may repeat itself for ever), or growth on disk under `growing`.

Invariants:
- Memory is bounded: of a line, `limit` bytes are kept; while no one reads, the program waits in its own write.
- However the context is left (end, error, cancellation), the whole process group is ended first, by `steps`.
- `Stalled` and `TooLong` are raised by the iteration, and so leave the context.
- Once the program has exited, children that hold its output open have `GRACE` seconds; then they are ended.
- Both `\\n` and `\\r` end a line: programs repaint their progress. Bytes that are no UTF-8 are replaced.
"""

import asyncio
import contextlib
import os
import stat
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from runyard.clock import Clock
from runyard.procgroup import (
    GRACE,
    TERM_FIRST,
    Group,
    SignalSteps,
    Stalled,
    StrPath,
    TooLong,
    start,
    uninterrupted,
)

LINE_LIMIT = 8192
_HELD = 256  # lines that are kept for the reader before the program has to wait


class Line(msgspec.Struct, frozen=True):
    """One line of output, without its end."""

    text: str
    error: bool = False  # it was written to stderr


class Stall(msgspec.Struct, frozen=True, kw_only=True):
    """How long a program may go without progress, and what progress is."""

    seconds: float
    # Files and directories whose growth on disk is progress; a function, if they change meanwhile.
    growing: tuple[Path, ...] | Callable[[], tuple[Path, ...]] = ()
    advances: Callable[[Line], bool] = lambda _: True
    grew: Callable[[], None] = lambda: None  # called when growth was found
    # Whether something has advanced since the last question that is in neither lines nor files.
    moved: Callable[[], bool] = lambda: False


class _Splitter:
    """Splits bytes into lines of bounded length."""

    def __init__(self, limit: int, *, error: bool) -> None:
        self._limit, self._error = limit, error
        self._kept = bytearray()

    def feed(self, data: bytes) -> list[Line]:
        """The lines that end in this data."""
        *ended, rest = data.replace(b"\r", b"\n").split(b"\n")
        lines = []
        for part in ended:
            self._keep(part)
            lines += self.flush()
        self._keep(rest)
        return lines

    def flush(self) -> list[Line]:
        """The line that has no end yet; empty ones are left out."""
        text = self._kept.decode(errors="replace")
        self._kept.clear()
        return [Line(text, self._error)] if text else []

    def _keep(self, part: bytes) -> None:
        self._kept += part[: self._limit - len(self._kept)]


class _Splitting(Group):
    """Keeps few lines for the reader, and lets the program wait meanwhile."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.lines: deque[Line] = deque()
        self.news = asyncio.Event()  # a line, or the end of the output
        self._splitters = {1: _Splitter(limit, error=False), 2: _Splitter(limit, error=True)}
        self._paused = False
        self._discarding = False

    def received(self, fd: int, data: bytes) -> None:
        """Split it; too many lines make the program wait."""
        if self._discarding:
            return
        self.lines += self._splitters[fd].feed(data)
        self.news.set()
        if len(self.lines) > _HELD and not self._paused:
            self._pause(paused=True)

    def take(self) -> Line | None:
        """The next line, if there is one."""
        if self._paused and len(self.lines) <= _HELD // 2:
            self._pause(paused=False)
        return self.lines.popleft() if self.lines else None

    def discard(self) -> None:
        """Throw further output away, so that the pipes reach their end."""
        self._discarding = True
        self._pause(paused=False)

    def output_ended(self) -> None:
        """A last line may have no end."""
        for splitter in self._splitters.values():
            self.lines += splitter.flush()
        super().output_ended()
        self.news.set()

    def process_exited(self) -> None:
        """What holds the output now has little time left."""
        super().process_exited()
        self.news.set()

    def _pause(self, *, paused: bool) -> None:
        self._paused = paused
        for fd in (1, 2):
            pipe = self.transport.get_pipe_transport(fd)
            if fd in self.open and isinstance(pipe, asyncio.ReadTransport):
                (pipe.pause_reading if paused else pipe.resume_reading)()


class Lines:
    """The output of a running program, as an iterator of lines."""

    def __init__(
        self, name: str, group: _Splitting, clock: Clock, *, timeout: float, stall: Stall | None
    ) -> None:
        self._name, self._group, self._clock = name, group, clock
        self._timeout, self._stall = timeout, stall
        self._began = self._advanced = self._next_check = clock.monotonic()
        self._sizes: dict[Path, int] | None = None
        self._grace = GRACE

    @property
    def code(self) -> int:
        """The exit code, once the iteration has ended."""
        return self._group.code

    def __aiter__(self) -> "Lines":
        return self

    async def __anext__(self) -> Line:
        """The next line; ends with the program's output and exit."""
        while True:
            line = self._group.take()
            now = self._clock.monotonic()
            if line is not None and self._stall is not None and self._stall.advances(line):
                self._advanced = now
            if line is None and (self._group.output_closed.done() or self._grace <= 0):
                await asyncio.wait((self._group.exited,))
                raise StopAsyncIteration
            if now - self._began >= self._timeout:
                raise TooLong(f"{self._name} did not end within {self._timeout:g} s")
            if self._stall is not None and now >= self._next_check:
                self._next_check = now + self._stall.seconds / 10
                await self._check_progress(self._stall, now)
            if line is not None:
                return line
            await self._wait()

    async def _wait(self) -> None:
        """Wait for a line or the end, at most until something may be over."""
        after_exit = self._group.exited.done()
        began = self._clock.monotonic()
        late = self._clock.timeout(self._grace if after_exit else self._pause())
        try:
            async with late:
                await self._group.news.wait()
        except TimeoutError:
            if not late.expired():
                raise
        self._group.news.clear()
        if after_exit:  # another process still holds the output
            self._grace -= self._clock.monotonic() - began

    def _pause(self) -> float:
        over = self._began + self._timeout
        if self._stall is not None:
            over = min(over, self._next_check)
        return max(0.0, over - self._clock.monotonic())

    async def _check_progress(self, stall: Stall, now: float) -> None:
        paths = stall.growing() if callable(stall.growing) else stall.growing
        if paths:
            sizes = await asyncio.to_thread(
                lambda: {path: bytes_on_disk((path,)) for path in paths}
            )
            before, self._sizes = self._sizes, sizes
            if before is not None and any(sizes[path] > before.get(path, 0) for path in sizes):
                self._advanced = now
                stall.grew()
        if stall.moved():
            self._advanced = now
        if now - self._advanced >= stall.seconds:
            raise Stalled(f"{self._name} made no progress for {stall.seconds:g} s")


@contextlib.asynccontextmanager
async def stream(
    argv: Sequence[str],
    *,
    clock: Clock,
    timeout: float = float("inf"),
    stall: Stall | None = None,
    env: Mapping[str, str] | None = None,
    cwd: StrPath | None = None,
    limit: int = LINE_LIMIT,
    steps: SignalSteps = TERM_FIRST,
) -> AsyncIterator[Lines]:
    """Run a program and read its output by line; see the module for what is guaranteed. It gets no input."""
    group, cancelled = await start(argv, _Splitting(limit), env=env, cwd=cwd)
    try:
        if cancelled is not None:
            raise cancelled
        stdin = group.transport.get_pipe_transport(0)
        assert isinstance(stdin, asyncio.WriteTransport)
        stdin.close()
        yield Lines(argv[0], group, clock, timeout=timeout, stall=stall)
    finally:
        _, cancelled = await uninterrupted(group.end(clock, steps))
        if cancelled is not None:
            raise cancelled


def bytes_on_disk(paths: Sequence[Path]) -> int:
    """The space that these files and directories use; sparse files count as what was written to them."""
    return sum(map(_bytes_on_disk, paths))


def _bytes_on_disk(path: Path) -> int:
    try:
        found = path.lstat()
        total = found.st_blocks * 512
        if stat.S_ISDIR(found.st_mode):
            with os.scandir(path) as entries:
                total += sum(_bytes_on_disk(Path(entry.path)) for entry in entries)
    except OSError:  # it was removed meanwhile
        return 0
    return total
