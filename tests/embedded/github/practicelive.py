"""A practice GitHub behind a real socket, and real runner programs."""

import asyncio
import os
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from runyard.clock import RealClock
from runyard.embedded.github.core import GithubCore, PracticeApp
from runyard.embedded.github.identity import KeyPair
from runyard.embedded.github.runner import __file__ as runner_package
from runyard.embedded.github.settings import PracticeSettings
from runyard.http.messages import Request, Response
from runyard.http.server import listen

RUNNER = Path(runner_package).parent
PATIENCE = 60.0


class ForwardClock(RealClock):
    """The machine's clock plus an offset that a test can increase."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


class Live:
    """One practice GitHub, and the programs that were started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ForwardClock()
        self.core: Any = None
        self.programs: list[Program] = []
        self.answered: list[int] = []  # the status of every answer over the socket
        self._stirred = asyncio.Event()

    async def handle(self, request: Request) -> Response:
        try:
            answer = await self.core.handle(request)
        finally:
            self.notify()
        assert isinstance(answer, Response)
        self.answered.append(answer.status)
        return answer

    def notify(self, *_: object) -> None:
        self._stirred.set()

    async def until(self, ready: Callable[[], object]) -> None:
        """Advances time until the condition holds."""
        async with asyncio.timeout(PATIENCE):
            while not ready():
                self._stirred.clear()
                self.clock.ahead += 700.0  # longer than every timeout of a practice GitHub
                self.core._wake.set()
                await self._stirred.wait()

    def mint(self, name: str = "a") -> str:
        runner = self.core._state.register(
            "orgs/acme", name=name, labels=("mac",), group_id=1, work_folder="_work"
        )
        return str(runner.jit)

    def log(self, job_id: int) -> str:
        return bytes(self.core._practice_routes._logs.read(job_id, 0, 1 << 24)).decode()

    def history(self, job_id: int) -> list[str]:
        return [entry.what for entry in self.core.history(job_id)]

    async def start(self, *arguments: str, **env: str) -> "Program":
        program = await start_program(self.folder, *arguments, **env)
        self.programs.append(program)
        return program


class Program:
    """A runner program that was started."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.output = ""

    async def line(self, text: str) -> None:
        """Reads lines until one contains this."""
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            while text not in self.output:
                read = await self.process.stdout.readline()
                assert read, f"it ended and never printed {text!r}: {self.output}"
                self.output += read.decode()

    async def ended(self) -> int:
        async with asyncio.timeout(PATIENCE):
            rest, _ = await self.process.communicate()
        self.output += rest.decode()
        assert self.process.returncode is not None
        return self.process.returncode


async def start_program(folder: Path, *arguments: str, **env: str) -> Program:
    """Starts `run.sh` with secrets in the environment, so that a leak is noticed."""
    process = await asyncio.create_subprocess_exec(
        str(RUNNER / "run.sh"),
        *arguments,
        "--disableupdate",
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={
            "PATH": os.environ["PATH"],
            "TMPDIR": str(folder),
            "RUNYARD_PYTHON": sys.executable,
            "TUIST_SECRET": "do-not-leak",
            **env,
        },
    )
    return Program(process)


@asynccontextmanager
async def live(keys: KeyPair, folder: Path, **settings: Any) -> AsyncIterator[Live]:
    """A practice GitHub with one organisation and one repository, for as long as the block lasts."""
    it = Live(folder)
    server = await listen(it.handle)
    it.core = GithubCore(
        clock=it.clock,
        rng=random.Random(5),
        app=PracticeApp(
            app_id=1,
            public_key=keys.public_pem,
            webhook_secret="s",
            practice_token="practice-secret",
        ),
        on_event=it.notify,
        settings=PracticeSettings(public_url=server.url, **settings),
    )
    it.core.install("acme")
    it.core.add_repo("acme/app")
    try:
        async with asyncio.TaskGroup() as group:
            heart = group.create_task(it.core.run())
            try:
                yield it
            finally:
                heart.cancel()
                for program in it.programs:
                    if program.process.returncode is None:
                        program.process.kill()
                        await program.process.communicate()
    finally:
        await server.close()


def run_scenario(
    keys: KeyPair, folder: Path, scenario: Callable[[Live], Awaitable[None]], **settings: Any
) -> None:
    """Runs a scenario on a new practice GitHub."""

    async def main() -> None:
        async with live(keys, folder, **settings) as it:
            await scenario(it)

    asyncio.run(main())


def environment(text: str) -> dict[str, str]:
    """What `env` printed."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name: value for name, _, value in pairs}


def decoded(answer: Response) -> Any:
    """A JSON answer."""
    return msgspec.json.decode(answer.body)
