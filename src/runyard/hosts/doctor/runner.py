"""Runs the probes of checks, each with its deadline and several at a time, and has their outputs judged.

Invariants:
- One probe that hangs delays no other check by more than its deadline, and its program is ended.
- A probe that cannot be made is an output too: the judge says that it is unknown, and why.
- Programs get the C locale, so that their texts do not depend on the user's language, and also the directories of
  system programs, which a service's PATH may lack.
"""

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from runyard import proc
from runyard.hosts.doctor.checks import SHORT, Check, Command, File, Inspect, Probe
from runyard.hosts.doctor.inspections import INSPECTIONS
from runyard.hosts.doctor.plans.findings import Ended, Facts, Findings, Given, Output
from runyard.hosts.doctor.plans.ids import CheckId

T = TypeVar("T")
AT_ONCE = 8
SYSTEM = ("/usr/bin", "/bin", "/usr/sbin", "/sbin", "/opt/homebrew/bin", "/usr/local/bin")
_LIMIT = 1 << 20


class Runner:
    """Makes probes in this environment. `slack` multiplies every deadline; files are below `root`."""

    def __init__(
        self,
        facts: Facts,
        *,
        env: Mapping[str, str],
        slack: float = 1.0,
        root: Path = Path("/"),
    ) -> None:
        self._facts = facts
        self._root = root
        self._env = {**env, "LC_ALL": "C"}
        self._slack = slack
        self._places = asyncio.Semaphore(AT_ONCE)

    async def run(self, checks: Sequence[Check]) -> dict[CheckId, Findings]:
        """The findings of each check, in the order of the checks."""
        async with asyncio.TaskGroup() as group:
            tasks = [(each.id, group.create_task(self._check(each))) for each in checks]
        return {name: task.result() for name, task in tasks}

    async def _check(self, check: Check) -> Findings:
        outputs = [await self._probe(each) for each in check.probes]
        return check.findings(Given(facts=self._facts, outputs=tuple(outputs)))

    async def _probe(self, probe: Probe) -> Output:
        async with self._places:
            match probe:
                case Command():
                    return await self._command(probe)
                case File():
                    return await self._read(
                        probe.path,
                        lambda: _beginning(self._root / probe.path.lstrip("/")),
                        as_text=True,
                    )
                case Inspect():
                    inspect = INSPECTIONS[probe.name]
                    return await self._read(probe.name, lambda: inspect(self._facts))

    async def _command(self, probe: Command) -> Output:
        argv = [part.format_map(self._facts.names) for part in probe.argv]
        source, seconds = " ".join(argv[:2]), probe.timeout * self._slack
        try:
            done = await proc.run(argv, timeout=seconds, env=self._env, limit=_LIMIT)
        except proc.ProgramMissing:
            return Output(source=argv[0], ended=Ended.MISSING)
        except proc.DeadlineExceeded:
            return Output(source=source, ended=Ended.HUNG, seconds=seconds)
        except proc.ProcError:
            return Output(source=argv[0], ended=Ended.REFUSED)
        return Output(
            source=source,
            code=done.code,
            out=done.stdout.decode(errors="replace"),
            err=done.stderr.decode(errors="replace"),
        )

    async def _read(
        self, source: str, read: Callable[[], object], *, as_text: bool = False
    ) -> Output:
        seconds = SHORT * self._slack
        try:
            found = await apart(read, within=seconds)
        except TimeoutError:
            return Output(source=source, ended=Ended.HUNG, seconds=seconds)
        except (FileNotFoundError, NotADirectoryError):
            return Output(source=source, ended=Ended.MISSING)
        except OSError:
            return Output(source=source, ended=Ended.REFUSED)
        return (
            Output(source=source, out=str(found)) if as_text else Output(source=source, value=found)
        )


def _beginning(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_LIMIT).decode(errors="replace")


async def apart(work: Callable[[], T], *, within: float) -> T:
    """Call it in a thread that the process does not wait for: a dead network disk may hold it for ever."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def finish(found: T | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(found)  # type: ignore[arg-type]  # without an error there is a result

    def call() -> None:
        found, error = None, None
        try:
            found = work()
        except OSError as caught:
            error = caught
        with contextlib.suppress(RuntimeError):  # the loop is closed: the deadline has passed
            loop.call_soon_threadsafe(finish, found, error)

    threading.Thread(target=call, daemon=True).start()
    async with asyncio.timeout(within):
        return await done


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of probes: the user's, and the directories of system programs after it."""
    given = [each for each in environ.get("PATH", "").split(os.pathsep) if each]
    path = os.pathsep.join(dict.fromkeys([*given, *SYSTEM]))
    return {**environ, "PATH": path}
