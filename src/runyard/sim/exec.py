"""Commands inside simulated guests: a table of programs that tests provide, run as coroutines.

    async def cat(terminal: Terminal) -> int:
        while data := await terminal.receive():
            await terminal.send(data)
        return 0

A program waits while nobody reads its output, as a real one does; leaving the session cancels it.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any

from runyard.vm.contract import ExecSession, Stream, TerminalSize

_BUFFERED = 16  # pieces of output or input that wait to be read
Output = tuple[Stream, bytes]


class Terminal:
    """What a program sees: its arguments, its input, its output and the size of its terminal."""

    def __init__(self, argv: tuple[str, ...], size: TerminalSize | None) -> None:
        self.argv = argv
        self.size = size
        self.output: asyncio.Queue[Output | None] = asyncio.Queue(_BUFFERED)
        self.input: asyncio.Queue[bytes] = asyncio.Queue(_BUFFERED)
        self._ended = False

    async def receive(self) -> bytes:
        """The next input; empty at its end."""
        if self._ended:
            return b""
        data = await self.input.get()
        self._ended = not data
        return data

    async def send(self, data: bytes, stream: Stream = Stream.STDOUT) -> None:
        """Writes output."""
        await self.output.put((Stream.STDOUT if self.size else stream, data))


Program = Callable[[Terminal], Coroutine[Any, Any, int]]


class SimSession(ExecSession):
    """A program that runs in a simulated guest."""

    def __init__(self, terminal: Terminal, task: "asyncio.Task[int]") -> None:
        self._terminal = terminal
        self._task = task
        self._closed = False
        self._at_end = False

    async def read(self) -> Output | None:
        """The next output."""
        if self._at_end:
            return None
        found = await self._terminal.output.get()
        self._at_end = found is None
        return found

    async def write(self, data: bytes) -> None:
        """Passes input on, unless the program has ended."""
        if data and not self._closed and not self._task.done():
            await self._terminal.input.put(data)

    async def close_input(self) -> None:
        """Ends the input."""
        if not self._closed and not self._task.done():
            await self._terminal.input.put(b"")
        self._closed = True

    async def resize(self, size: TerminalSize) -> None:
        """Changes the size of the terminal."""
        if self._terminal.size is not None:
            self._terminal.size = size

    async def wait(self) -> int:
        """The exit code."""
        return await asyncio.shield(self._task)


@contextlib.asynccontextmanager
async def running(
    programs: Mapping[str, Program], argv: tuple[str, ...], size: TerminalSize | None
) -> AsyncIterator[SimSession]:
    """Runs the program of that name, or says 127 if there is none; leaving early ends it."""
    terminal = Terminal(argv, size)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(_run(programs.get(argv[0]), terminal), name=f"exec {argv[0]}")
        try:
            yield SimSession(terminal, task)
        finally:
            task.cancel()


async def _run(program: Program | None, terminal: Terminal) -> int:
    if program is None:
        await terminal.send(f"{terminal.argv[0]}: not found\n".encode(), Stream.STDERR)
        code = 127
    else:
        code = await program(terminal)
    await terminal.output.put(None)
    return code
