"""Tests that the host polls for a guest, and that its one job survives everything that may go away meanwhile."""

import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.conftest import Absent
from tests.vm.poll_server import JIT, PATH, PollServer, job, serving
from tests.vm.process_harness import IMAGE, WAYS, ProcessHarness, Scenario, isolation, run_on

from runyard.vm.contract import DriverFailed, HostPolling, VmSpec, VmState
from runyard.vm.shim import poller
from runyard.vm.shim.orders import Pace

NAME = "vm-1"
TOKEN = "the-token-of-the-pod"
BOOT = "#!/bin/sh\nexit 1\n"  # it must not be run: the host polls
QUICK = Pace(pause=0.01, timeout=5.0, boot=30.0)
# It reports by its output, which is the console log.
RUNNER = """#!/bin/sh
echo "runner $* in $PWD with $TUIST_CACHE_ENDPOINT and ${HELLO:-nothing}"
echo "url ${TUIST_RUNNER_DISPATCH_URL:-none}"
exit "${RESULT:-0}"
"""

Run = Callable[[Scenario], None]


@pytest.fixture(params=WAYS)
def run(request: pytest.FixtureRequest, absent: Absent) -> Run:
    way = isolation(request.param)
    if isinstance(way, str):
        absent(f"a machine for VMs as processes, {request.param}", way)
    return lambda scenario: run_on(way, scenario)


def on_plain(scenario: Scenario) -> None:
    way = isolation("plain")
    assert not isinstance(way, str), way
    run_on(way, scenario)


async def up(
    harness: ProcessHarness,
    server: PollServer,
    *,
    runner: str = RUNNER,
    polling: HostPolling | None = None,
    start: bool = True,
    token: str = TOKEN,
    **env: str,
) -> None:
    """Start a VM for which the host polls."""
    harness.put_image(BOOT)
    folder = harness.root / "source" / harness.quoted_image / "work" / "runner"
    if runner:
        folder.mkdir(parents=True)
        (folder / "run.sh").write_text(runner, encoding="utf-8")
        (folder / "run.sh").chmod(0o755)
    harness.pace = QUICK
    harness.driver = harness.reopened()
    await harness.driver.pull(IMAGE)
    await harness.driver.create(
        VmSpec(
            name=NAME,
            image=IMAGE,
            cpu_milli=1000,
            memory_mb=256,
            env=(("TUIST_RUNNER_DISPATCH_URL", server.url), *env.items()),
            token=token,
            polling=polling or HostPolling(url=server.url),
        )
    )
    if start:
        await harness.driver.start(NAME)


async def log(harness: ProcessHarness) -> str:
    return b"".join([piece async for piece in harness.driver.logs(NAME)]).decode()


async def says(harness: ProcessHarness, words: str) -> None:
    async with harness.clock.timeout(60):
        while words not in await log(harness):
            await harness.clock.sleep(0.01)


def test_the_runner_of_a_guest_without_a_token_runs_the_job(run: Run) -> None:
    async def scenario(harness: ProcessHarness) -> None:
        with serving(204, 503, job(cache_endpoint_url="https://cache.invalid/x")) as server:
            await up(harness, server, RESULT="42", HELLO="a world")
            ended = await harness.exited(NAME)
        assert ended.exit_code == 42, (ended, await log(harness))
        text = await log(harness)
        assert f"runner --jitconfig {JIT} --disableupdate in" in text
        assert "with https://cache.invalid/x and a world" in text
        assert "url none" in text  # a job must not learn where the server is
        assert [each for each in server.seen if each != server.seen[0]] == []
        assert server.seen[0] == (f"POST {PATH}", f"Bearer {TOKEN}", "{}")

    run(scenario)


def _jwt(**claims: object) -> str:
    return f"h.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.s"


TOKENS = {
    "over": (_jwt(exp=99, sub="a"), True),
    "over now": (_jwt(exp=100), True),
    "valid": (_jwt(exp=101, sub="abcd"), False),
    "without an end": (_jwt(sub="ab"), False),
    "an odd end": (_jwt(exp=[1]), False),
    "no object": ("h.W10.s", False),
    "no base64": ("h.!é.s", False),
    "no JWT": (TOKEN, False),
    "none": ("", False),
}


@pytest.mark.parametrize(("token", "over"), TOKENS.values(), ids=list(TOKENS))
def test_a_runner_that_waited_longer_than_its_token_is_valid_has_not_failed(
    token: str, over: bool
) -> None:
    expired = poller.has_expired(token, 100.0)
    assert expired is over
    found = poller.outcome(poller.Answer(401), expired=expired)
    assert found is not None and found["end"] == (0 if over else 1)
    forbidden = poller.outcome(poller.Answer(403), expired=expired)
    assert forbidden is not None and forbidden["end"] == 1


def test_a_vm_whose_token_has_expired_ends_in_order() -> None:
    async def scenario(harness: ProcessHarness) -> None:
        with serving(401) as server:
            await up(harness, server, token=_jwt(exp=1))
            ended = await harness.exited(NAME)
        assert (ended.exit_code, "expired" in ended.exit_reason) == (0, True)

    on_plain(scenario)


OUTCOMES = {
    "401": (401, 1),
    "403": (403, 1),
    "410": (410, 0),
}


@pytest.mark.parametrize(("status", "code"), OUTCOMES.values(), ids=list(OUTCOMES))
def test_a_refused_or_drained_vm_ends_without_a_job(status: int, code: int) -> None:
    async def scenario(harness: ProcessHarness) -> None:
        with serving(status) as server:
            await up(harness, server)
            ended = await harness.exited(NAME)
        assert (ended.exit_code, str(status) in ended.exit_reason) == (code, True)
        assert "runner" not in await log(harness)

    on_plain(scenario)


@pytest.mark.parametrize("status", [200, 204, 404, 500, 502])
def test_an_answer_without_a_job_is_asked_again(status: int) -> None:
    async def scenario(harness: ProcessHarness) -> None:
        with serving(status, status, job()) as server:
            await up(harness, server)
            ended = await harness.exited(NAME)
        assert (ended.exit_code, len(server.seen)) == (0, 3)

    on_plain(scenario)


@pytest.mark.parametrize(
    "answer",
    [
        {"encoded_jit_config": ""},
        {"encoded_jit_config": "$(reboot)"},
        {"encoded_jit_config": "a\nB=c"},
        {"encoded_jit_config": 5},
        {"encoded_jit_config": "a" * 50_000},
        ["encoded_jit_config"],
    ],
    ids=["empty", "shell", "lines", "number", "huge", "list"],
)
def test_a_bad_jit_configuration_is_never_passed_on(answer: object) -> None:
    async def scenario(harness: ProcessHarness) -> None:
        with serving((200, answer), 410) as server:
            await up(harness, server)
            assert (await harness.exited(NAME)).exit_code == 0
        assert "runner" not in await log(harness)

    on_plain(scenario)


def test_a_retry_after_header_is_obeyed() -> None:
    async def scenario(harness: ProcessHarness) -> None:
        with serving(503, 410) as server:
            server.headers = {"Retry-After": "1"}
            began = harness.clock.monotonic()
            await up(harness, server)
            await harness.exited(NAME)
        assert harness.clock.monotonic() - began >= 0.75  # a second, less the jitter

    on_plain(scenario)


def test_no_job_is_taken_for_an_image_without_a_runner() -> None:
    async def scenario(harness: ProcessHarness) -> None:
        with serving(job()) as server:
            await up(harness, server, runner="")
            ended = await harness.exited(NAME)
        assert server.seen == []
        assert ended.exit_code is None and "no Actions runner" in ended.exit_reason

    on_plain(scenario)


def test_a_runner_is_unpacked_from_an_archive_of_the_host(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(RUNNER, encoding="utf-8")
    (tmp_path / "run.sh").chmod(0o755)
    subprocess.run(["tar", "-czf", "runner.tgz", "run.sh"], cwd=tmp_path, check=True)

    async def scenario(harness: ProcessHarness) -> None:
        with serving(job()) as server:
            polling = HostPolling(url=server.url, archive=str(tmp_path / "runner.tgz"))
            await up(harness, server, runner="", polling=polling)
            ended = await harness.exited(NAME)
        assert ended.exit_code == 0
        assert "/actions-runner with" in await log(harness)

    on_plain(scenario)


def test_an_archive_that_cannot_be_unpacked_ends_the_vm_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "runner.tar.gz").write_bytes(b"\x1f\x8b" + os.urandom(1000))

    async def scenario(harness: ProcessHarness) -> None:
        with serving(job()) as server:
            polling = HostPolling(url=server.url, archive=str(tmp_path / "runner.tar.gz"))
            await up(harness, server, runner="", polling=polling)
            ended = await harness.exited(NAME)
        assert server.seen == []
        assert ended.exit_code is None
        assert "the archive runner.tar.gz cannot be unpacked: " in ended.exit_reason
        assert ended.exit_reason in await log(harness)

    on_plain(scenario)


def test_variables_of_any_size_and_with_lines_reach_the_runner() -> None:
    """With the JIT configuration they are more than a pipe holds."""
    runner = '#!/bin/sh\necho "lines:$LINES_OF_TEXT:${#A}:${#B}:${#2}"\n'
    jit = "x" * 40_000

    async def scenario(harness: ProcessHarness) -> None:
        with serving(job(jit)) as server:
            more = {"LINES_OF_TEXT": "one\ntwo", "A": "a" * 100_000, "B": "b" * 100_000}
            await up(harness, server, runner=runner, **more)
            assert (await harness.exited(NAME)).exit_code == 0
        assert "lines:one\ntwo:100000:100000:40000" in await log(harness)

    on_plain(scenario)


@pytest.mark.parametrize(
    "env", [{"A": "a" * 130_000}, {f"A{n}": "a" * 100_000 for n in range(6)}, {"A-B": "c"}]
)
def test_an_environment_that_no_program_takes_is_refused_before_there_is_a_job(
    env: dict[str, str],
) -> None:
    async def scenario(harness: ProcessHarness) -> None:
        with serving(job()) as server:
            with pytest.raises(DriverFailed):
                await up(harness, server, **env)
            assert server.seen == []

    on_plain(scenario)


def test_a_vm_without_a_token_ends_instead_of_waiting_for_ever() -> None:
    async def scenario(harness: ProcessHarness) -> None:
        with serving(job()) as server:
            await up(harness, server, start=False)
            (harness.directory(NAME).state / "token").unlink()
            await harness.driver.start(NAME)
            ended = await harness.exited(NAME)
        assert (ended.exit_code, "no token" in ended.exit_reason) == (1, True)
        assert server.seen == []

    on_plain(scenario)


def test_a_job_goes_on_without_agent_and_server(run: Run) -> None:
    # The agent that started it is another process here, and killed while the job runs.
    runner = "#!/bin/sh\necho runner up\nwhile [ ! -e go ]; do sleep 0.02; done\nexit 5\n"

    async def scenario(harness: ProcessHarness) -> None:
        with serving(204) as server:
            await up(harness, server, runner=runner, start=False)
            agent = subprocess.Popen(
                agent_argv(harness), stdout=subprocess.PIPE, env=PYTHON, text=True
            )
            assert agent.stdout is not None
            assert agent.stdout.readline() == "started\n"
            agent.kill()
            agent.wait()
            agent.stdout.close()
            server.answers = [job()]
            await says(harness, "runner up")
            server.stop()
        (harness.directory(NAME).work / "runner" / "go").touch()
        assert (await harness.exited(NAME)).exit_code == 5

    run(scenario)


AGENT = """
import asyncio, sys
from pathlib import Path
import msgspec
from runyard.clock import RealClock
from runyard.vm.process.driver import ProcessDriver
from runyard.vm.process.isolation import Isolation
from runyard.vm.shim.orders import Pace

async def main():
    home, way, name = sys.argv[1:]
    driver = ProcessDriver(Path(home), image_source=Path(home), clock=RealClock(), pace=Pace(pause=0.01),
                           isolation=msgspec.json.decode(way, type=Isolation))
    await driver.start(name)
    print("started", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""
PYTHON = {"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ["PATH"]}


def agent_argv(harness: ProcessHarness) -> list[str]:
    way = msgspec.json.encode(harness.isolation).decode()
    return [sys.executable, "-c", AGENT, str(harness.home), way, NAME]


def test_a_poller_that_was_killed_is_replaced() -> None:
    async def scenario(harness: ProcessHarness) -> None:
        with serving(204) as server:
            await up(harness, server)
            await asyncio.to_thread(server.asked.wait, 60)
            for pid in pollers(harness):
                os.kill(pid, signal.SIGKILL)
            server.answers = [(200, {"encoded_jit_config": JIT})]
            assert (await harness.exited(NAME)).exit_code == 0

    on_plain(scenario)


def pids() -> list[str]:
    return [path.name for path in Path("/proc").iterdir() if path.name.isdigit()]


def pollers(harness: ProcessHarness) -> list[int]:
    state = str(harness.directory(NAME).state).encode()
    found = []
    for pid in pids():
        try:
            words = Path("/proc", pid, "cmdline").read_bytes().split(b"\0")
        except OSError:  # it has ended meanwhile
            continue
        if state in words and any(b"vm.shim.poller" in word for word in words):
            found.append(int(pid))
    return found


def test_the_token_is_in_no_argument_environment_or_log_and_gone_at_the_end(run: Run) -> None:
    async def scenario(harness: ProcessHarness) -> None:
        with serving(204) as server:
            await up(harness, server)
            await asyncio.to_thread(server.asked.wait, 60)
            kept = harness.directory(NAME).state / "token"
            assert kept.stat().st_mode & 0o777 == 0o400
            assert leaks() == []
            await harness.driver.stop(NAME, grace=5)
        ended = await harness.view(NAME)
        assert (ended.exit_code, kept.exists()) == (143, False)
        assert TOKEN not in await log(harness)
        whole = [path for path in harness.home.rglob("*") if path.is_file()]
        assert [path for path in whole if TOKEN.encode() in path.read_bytes()] == []

    run(scenario)


def leaks() -> list[str]:
    """Processes that show the token to others."""
    found = []
    for pid in pids():
        for name in ("cmdline", "environ"):
            path = Path("/proc", pid, name)
            try:
                data = path.read_bytes()
            except OSError:  # it has ended meanwhile
                continue
            found += [str(path)] if TOKEN.encode() in data else []
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_a_shim_that_polls_is_small() -> None:
    async def scenario(harness: ProcessHarness) -> None:
        with serving(204) as server:
            await up(harness, server)
            await asyncio.to_thread(server.asked.wait, 60)
            shim = (harness.directory(NAME).state / "started").read_text().strip()
            for pid in (shim, *pollers(harness)):
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                assert pages * os.sysconf("SC_PAGE_SIZE") < 25 << 20

    on_plain(scenario)


def test_the_token_of_a_vm_whose_shim_was_killed_is_wiped() -> None:
    async def scenario(harness: ProcessHarness) -> None:
        with serving(204) as server:
            await up(harness, server)
            await asyncio.to_thread(server.asked.wait, 60)
            shim = int((harness.directory(NAME).state / "started").read_text())
            os.kill(shim, signal.SIGKILL)
            await harness.gone(NAME)
            assert (await harness.view(NAME)).state is VmState.EXITED
            assert not (harness.directory(NAME).state / "token").exists()
            assert pollers(harness) == []

    on_plain(scenario)


def test_a_stop_reaches_the_runner_and_its_code_is_the_vms(run: Run) -> None:
    runner = '#!/bin/sh\ntrap "exit 9" TERM\necho runner up\nwhile :; do sleep 60 & wait; done\n'

    async def scenario(harness: ProcessHarness) -> None:
        with serving(job()) as server:
            await up(harness, server, runner=runner)
            await says(harness, "runner up")
            await harness.driver.stop(NAME, grace=30)
        assert (await harness.view(NAME)).exit_code == 9

    run(scenario)


def test_a_runner_without_a_job_is_ended_when_it_idles() -> None:
    runner = "#!/bin/sh\necho runner up\nexec sleep 3600\n"

    async def scenario(harness: ProcessHarness) -> None:
        with serving(job()) as server:
            await up(harness, server, runner=runner, TUIST_RUNNER_IDLE_TIMEOUT_SECONDS="1")
            ended = await harness.exited(NAME)
        assert (ended.exit_code, ended.exit_reason) == (0, "the runner got no job within 1 s")

    on_plain(scenario)
