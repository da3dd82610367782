"""Runs commands in guests through `tart exec`.

`tart exec` ends with the command's own code, so its own failures and the command's cannot be distinguished by code. If
the guest's agent does not answer, it prints so before anything else: this is `Unreachable`, when it is read.
"""

import contextlib
from collections.abc import AsyncIterator

from runyard import procsession
from runyard.procgroup import ProcError
from runyard.vm.contract import DriverFailed, Stream, TerminalSize, Unreachable
from runyard.vm.sessions import ProgramSession
from runyard.vm.tart import errors
from runyard.vm.tart.commands import Tart


class TartSession(ProgramSession):
    """A command in a guest."""

    def __init__(self, name: str, program: procsession.Session, *, complains: Stream) -> None:
        super().__init__(program)
        self._name = name
        self._complains = complains  # the stream on which tart itself would complain
        self._first = True

    async def read(self) -> tuple[Stream, bytes] | None:
        """The next output; raises `Unreachable` if the agent does not answer."""
        found = await super().read()
        if found is not None and found[0] is self._complains and self._first:
            self._first = False
            text = found[1].decode(errors="replace")
            if errors.is_unreachable_agent(text):
                raise Unreachable(
                    f"the guest agent in {self._name} does not answer: {text.strip()[:500]}"
                )
        return found


@contextlib.asynccontextmanager
async def session(
    tart: Tart, name: str, argv: tuple[str, ...], *, size: TerminalSize | None
) -> AsyncIterator[TartSession]:
    """Run a command in a running guest."""
    opened = procsession.session(
        tart.exec_argv(name, argv, terminal=size is not None),
        clock=tart.clock,
        terminal=None if size is None else procsession.Size(size.columns, size.rows),
        env=tart.bare_environment,
    )
    async with contextlib.AsyncExitStack() as stack:
        try:
            program = await stack.enter_async_context(opened)
        except ProcError as error:
            raise DriverFailed(f"exec in {name}: {error}") from error
        # A terminal has one stream.
        yield TartSession(name, program, complains=Stream.STDERR if size is None else Stream.STDOUT)
