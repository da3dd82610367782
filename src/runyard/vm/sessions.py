"""A command in a guest, run through a program on the host: its input, outputs and exit code are the command's."""

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from runyard import procsession
from runyard.clock import Clock
from runyard.procgroup import ProcError
from runyard.vm.contract import DriverFailed, ExecSession, Stream, TerminalSize

_STREAMS = {1: Stream.STDOUT, 2: Stream.STDERR}


class ProgramSession(ExecSession):
    """The session of a program that passes everything on."""

    def __init__(self, program: procsession.Session) -> None:
        self._program = program

    async def read(self) -> tuple[Stream, bytes] | None:
        """The next output."""
        found = await self._program.read()
        return None if found is None else (_STREAMS[found[0]], found[1])

    async def write(self, data: bytes) -> None:
        """Pass input on."""
        await self._program.write(data)

    async def close_input(self) -> None:
        """End the input."""
        await self._program.close_input()

    async def resize(self, size: TerminalSize) -> None:
        """Change the size of the terminal."""
        await self._program.resize(procsession.Size(size.columns, size.rows))

    async def wait(self) -> int:
        """Wait for the end; a program that was killed has the code of a command that was."""
        code = await self._program.wait()
        return code if code >= 0 else 128 - code


@contextlib.asynccontextmanager
async def program_session(
    argv: Sequence[str],
    *,
    clock: Clock,
    tty: TerminalSize | None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    handles: Sequence[int] = (),
) -> AsyncIterator[ProgramSession]:
    """Runs the program; it is ended when the context is left."""
    terminal = None if tty is None else procsession.Size(tty.columns, tty.rows)
    opened = procsession.session(
        argv, clock=clock, terminal=terminal, env=env, cwd=cwd, handles=handles
    )
    async with contextlib.AsyncExitStack() as stack:
        try:
            program = await stack.enter_async_context(opened)
        except ProcError as error:
            raise DriverFailed(str(error)) from error
        yield ProgramSession(program)
