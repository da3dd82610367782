"""Runs the commands of a service manager, each with a deadline.

Invariant: a command that is missing or hangs is a `ServiceError` with the command in it, never a traceback.
"""

import re
from collections.abc import Mapping, Sequence

import msgspec

from runyard import proc
from runyard.hosts.services.errors import CommandFailed, NoManager

DEADLINE = 20.0


class Answer(msgspec.Struct, frozen=True):
    """How a command ended, with its output as text."""

    code: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """What it said, in one line."""
        return " ".join((self.err or self.out).split())


class Commands:
    """Runs programs in one environment."""

    def __init__(self, environ: Mapping[str, str], *, deadline: float = DEADLINE) -> None:
        self._environ = {**environ, "LC_ALL": "C"}
        self._deadline = deadline

    async def ask(self, *argv: str, deadline: float | None = None) -> Answer:
        """Runs a program; any exit code is an answer."""
        within = self._deadline if deadline is None else deadline
        try:
            done = await proc.run(argv, timeout=within, env=self._environ)
        except proc.ProgramMissing as error:
            raise NoManager(str(error)) from error
        except proc.ProcError as error:
            raise CommandFailed(f"{' '.join(argv)}: {error}") from error
        return Answer(done.code, _text(done.stdout), _text(done.stderr))

    async def do(self, *argv: str, deadline: float | None = None) -> Answer:
        """Runs a program that must succeed."""
        answer = await self.ask(*argv, deadline=deadline)
        if answer.code != 0:
            raise failed(argv, answer)
        return answer


def failed(argv: Sequence[str], answer: Answer) -> CommandFailed:
    """The error of a command that ended with another code than 0."""
    return CommandFailed(f"{' '.join(argv)} failed with code {answer.code}: {answer.words}")


def _text(output: bytes) -> str:
    return output.decode(errors="replace").strip()


_AGE = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")


async def started_at(commands: Commands, pid: int, *, now: float) -> float | None:
    """When a process started, by its age: `ps` prints that in the same form everywhere."""
    found = _AGE.fullmatch((await commands.ask("ps", "-o", "etime=", "-p", str(pid))).out)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return now - (((days * 24 + hours) * 60 + minutes) * 60 + seconds)
