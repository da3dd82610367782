"""docs/first-mac.md shows what each command prints, and its commands lead to a job that succeeds in a VM.

GitHub is a practice GitHub behind a URL of its own, with an App that `runyard github connect` makes and a person
installs; tart is the stand-in. What `doctor` and the service print is compared with the pages whose tests produce it.
"""

import asyncio
import os
import random
import shlex
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.cli.github_harness import APP_ID, agree
from tests.embedded.up.upsupport import HAS_PROC, Up, directory, environment, until
from tests.fixtures_registry import RegistryServer, registry, registry_program  # noqa: F401 - fixtures
from tests.standins.tart.helper import StandIn, archive
from tests.tart_images import tart_image
from tests.transcripts import Transcript, check, transcripts

from runyard.clock import RealClock
from runyard.embedded import github
from runyard.embedded.github.core import GithubCore, PracticeApp
from runyard.embedded.github.deliveries import Delivery
from runyard.embedded.github.identity import generate_key_pair
from runyard.embedded.github.settings import PracticeSettings
from runyard.http.messages import Request, Response
from runyard.http.server import listen

PAGE = "docs/first-mac.md"  # first-mac.md
API, WEB = "https://api.github.com", "https://github.com"
SLOW_PULL, DISK = 3_000_000, 12_000_000  # bytes a second, bytes
SOON = 100.0


def block(command: str, page: str = PAGE) -> Transcript:
    """The transcript that begins with this command."""
    (found,) = [each for each in transcripts(page) if each.steps[0].command.startswith(command)]
    return found


def test_what_doctor_finds_is_what_its_page_shows() -> None:
    (shown,) = block("runyard doctor", "docs/doctor.md").steps
    check(block("runyard doctor"), [shown.output])


def test_what_the_service_prints_is_what_its_page_shows() -> None:
    """Its options are not in the output."""
    services = [
        each
        for each in transcripts("docs/one-machine.md")
        if "up --install" in each.steps[0].command
    ]
    page = services[-1]  # the first one is of Linux
    outputs = {shlex.split(each.command)[2]: each.output for each in page.steps}
    steps = block("runyard up --install").steps
    check(block("runyard up --install"), [outputs[shlex.split(each.command)[2]] for each in steps])


class Mac:
    """A machine with the stand-in, a registry with two images, and a home directory."""

    def __init__(self, folder: Path, images: RegistryServer) -> None:
        self.images, self.home = images, folder / "home"
        self.home.mkdir()
        self.tart = StandIn(folder)
        filled = archive({f"actions-runner/{name}": text for name, text in _runner()})
        images.push(tart_image(disk=filled), "mac/runner", "1")
        images.push(
            tart_image(disk=archive({}) + os.urandom(DISK), chunk=1 << 20), "mac/large", "1"
        )

    @property
    def variables(self) -> dict[str, str]:
        path = f"{self.tart.bin}{os.pathsep}{environment()['PATH']}"
        return {"PATH": path, "TART_HOME": str(self.tart.home), "HOME": str(self.home)}

    def flags(self, command: str) -> list[str]:
        """What `Up` is given for a command of the page."""
        left_out = ("runyard", "up", "--plain", "--data", "DIR")
        words = shlex.split(command.replace("REGISTRY", self.images.address))
        return [word for word in words if word not in left_out]

    def shown(self, text: str, *, data: Path, url: str = "http://nowhere.invalid") -> str:
        """What is printed, as the page writes it."""
        return (
            text.replace(str(data), "DIR")
            .replace(str(self.home), "/Users/ci")
            .replace(self.images.address, "REGISTRY")
            .replace(f"{url}/apps", f"{WEB}/apps")
            .replace(url, API)
        )


def _runner() -> list[tuple[str, str]]:
    """The files of the practice runner, which takes the place of the Actions runner."""
    folder = Path(github.__file__).parent / "runner"
    return [
        (str(each.relative_to(folder)), each.read_text())
        for each in sorted(folder.rglob("*"))
        if each.is_file() and "__pycache__" not in each.parts
    ]


@pytest.fixture
def mac(tmp_path: Path, registry: RegistryServer) -> Mac:  # noqa: F811 - the fixture
    return Mac(tmp_path, registry)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.skipif(not HAS_PROC, reason="searches for processes in /proc")
def test_a_first_start_shows_the_pull_of_its_image(mac: Mac) -> None:
    page = block("runyard up --plain --image")
    mac.tart.set("pull-rate", SLOW_PULL)
    with directory() as data, Up(data, *mac.flags(page.steps[0].command), **mac.variables) as up:
        up.prints("Ctrl-C stops it")
        start = [*up.lines]
        pulling, ended = up.prints(" left"), up.prints("has pulled")
        check(page, [mac.shown("".join((*start, pulling, ended)), data=data)])


@asynccontextmanager
async def serving_github() -> AsyncIterator[tuple[GithubCore, str]]:
    """A practice GitHub whose runners find it at its address, and that keeps deliveries for a server that asks."""
    cores: list[GithubCore] = []

    async def handle(request: Request) -> Response:
        return await cores[0].handle(request)

    async def deliver(_: Delivery) -> int:
        return 502  # no address of ours is public

    listening = await listen(handle)
    core = GithubCore(
        clock=RealClock(),
        rng=random.Random(1),
        app=PracticeApp(
            app_id=APP_ID, public_key=generate_key_pair().public_pem, webhook_secret="hush"
        ),
        settings=PracticeSettings(public_url=listening.url),
        deliver=deliver,
    )
    cores.append(core)
    delivering = asyncio.create_task(core.run())
    try:
        yield core, listening.url
    finally:
        delivering.cancel()
        await listening.close()


@asynccontextmanager
async def connecting(
    command: str, variables: dict[str, str]
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A command of the page as a process, whose output is read while it runs."""
    process = await asyncio.create_subprocess_exec(
        *shlex.split(command),
        env=environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.skipif(not HAS_PROC, reason="searches for processes in /proc")
def test_the_commands_of_the_page_lead_to_a_green_job(mac: Mac) -> None:
    connect, start, jobs = (
        block(f"runyard {each}") for each in ("github connect", "up --plain --github", "job list")
    )

    async def connected(core: GithubCore, url: str) -> None:
        variables = {**mac.variables, "RUNYARD_GITHUB_URL": url, "BROWSER": "true"}
        lines: list[str] = []
        async with connecting(connect.steps[0].command, variables) as process:
            assert process.stdout is not None
            async for raw in process.stdout:
                lines.append(raw.decode())
                if lines[-1].startswith("open "):
                    await agree(lines[-1].split()[1])
                elif lines[-1].startswith("install "):
                    core.install("acme")
                    core.add_repo("acme/app")
            assert await process.wait() == 0, lines
        check(connect, [mac.shown("".join(lines), data=mac.home / "none", url=url)])

    def green(core: GithubCore, loop: asyncio.AbstractEventLoop, url: str) -> None:
        variables = {**mac.variables, "RUNYARD_GITHUB_URL": url}
        flags = mac.flags(start.steps[0].command)
        with directory() as data, Up(data, *flags, **variables) as up:
            up.prints("Ctrl-C stops it")
            check(start, [mac.shown("".join(up.lines), data=data, url=url)])
            queue = asyncio.run_coroutine_threadsafe(_queued(core), loop)
            number = queue.result(SOON)
            until(lambda: core.jobs()[number].status == "completed", within=SOON, what="the job")
            assert core.jobs()[number].conclusion == "success"
            (step,) = jobs.steps
            listed = until(lambda: _listed(step.command, data), within=SOON, what="the job is done")
            check(jobs, [mac.shown(listed, data=data)])

    async def main() -> None:
        async with serving_github() as (core, url):
            await connected(core, url)
            await asyncio.to_thread(green, core, asyncio.get_running_loop(), url)

    asyncio.run(main())


async def _queued(core: GithubCore) -> int:
    return core.queue_job("acme/app", ("runyard",), script="echo hello", job_name="build")


def _listed(command: str, data: Path) -> str:
    """The list of jobs once it says that one is done."""
    argv = shlex.split(command.replace("DIR", str(data)))
    done = subprocess.run(
        argv, env=environment(), capture_output=True, text=True, check=True, timeout=SOON
    )
    return done.stdout if "done" in done.stdout else ""
