"""Tests that the host polls for a tart guest: nothing of ours is in the guest, and its one job's result arrives."""

import os
import signal
from pathlib import Path

import msgspec
import pytest
from tests.vm.poll_server import JIT, PollServer, job, serving
from tests.vm.tart.test_tart_driver import copies, kill_shim
from tests.vm.tart_harness import NAME, QUICK, TartHarness, run

from runyard.vm.contract import HostPolling, VmSpec, VmState
from runyard.vm.shim import control
from runyard.vm.shim.orders import Pace

pytestmark = pytest.mark.slow  # each command of tart is a program
TOKEN = "the-token-of-the-pod"
SETTINGS = msgspec.structs.replace(QUICK, pace=Pace(pause=0.01, timeout=5.0, boot=30.0))
RUNNER = """#!/bin/sh
echo "runner $* with ${TUIST_CACHE_ENDPOINT:-no cache} and ${HELLO:-nothing}"
[ -z "$WAITS" ] || sleep 3600
exit 42
"""


async def up(harness: TartHarness, server: PollServer, *, runner: str = RUNNER, **env: str) -> None:
    harness.put_image({"actions-runner/run.sh": runner})
    spec = VmSpec(
        name=NAME,
        image=harness.image,
        cpu_milli=4000,
        memory_mb=8192,
        env=(("TUIST_RUNNER_DISPATCH_URL", server.url), *env.items()),
        token=TOKEN,
        polling=HostPolling(url=server.url),
    )
    await harness.driver.create(spec)
    await harness.driver.start(NAME)


async def log(harness: TartHarness) -> str:
    return b"".join([piece async for piece in harness.driver.logs(NAME)]).decode()


async def says(harness: TartHarness, words: str) -> None:
    async with harness.clock.timeout(60):
        while words not in await log(harness):
            await harness.clock.sleep(0.02)


def test_a_stock_guest_runs_the_job_and_nothing_of_ours_is_in_it() -> None:
    async def scenario(harness: TartHarness) -> None:
        answers = (204, job(cache_endpoint_url="https://cache.invalid/x"))
        with serving(*answers) as server:
            await up(harness, server, HELLO="a world")
            ended = await harness.exited()
        assert ended.exit_code == 42
        assert f"runner --jitconfig {JIT} --disableupdate" in await log(harness)
        assert "with https://cache.invalid/x and a world" in await log(harness)
        assert server.seen[0][1] == f"Bearer {TOKEN}"
        assert harness.tart.journal("run") == [["run", NAME, "--no-graphics"]]  # nothing is shared
        arguments = str(harness.tart.journal())
        assert TOKEN not in arguments and JIT not in arguments and server.url not in arguments
        assert copies(harness, TOKEN) == []

    run(scenario, SETTINGS)


def test_the_job_goes_on_without_agent_and_server_and_its_stop_ends_it() -> None:
    async def scenario(harness: TartHarness) -> None:
        with serving(job()) as server:
            await up(harness, server, WAITS="1")
            await says(harness, f"runner --jitconfig {JIT}")
        assert copies(harness, TOKEN) == []
        harness.driver = harness.reopened()
        running = await harness.view()
        assert running is not None and running.state is not VmState.EXITED
        await harness.driver.stop(NAME, grace=30)
        assert (await harness.exited()).exit_reason

    run(scenario, SETTINGS)


def test_a_vm_without_a_job_ends_at_once_when_it_is_stopped() -> None:
    async def scenario(harness: TartHarness) -> None:
        with serving(204) as server:
            await up(harness, server)
            assert server.asked.wait(60)
            await harness.driver.stop(NAME, grace=60)
        assert (await harness.exited()).exit_code == 143
        assert harness.tart.journal("stop") == [["stop", NAME, "--timeout", "5"]]

    run(scenario, SETTINGS)


def test_a_killed_shims_token_is_wiped_and_its_job_is_never_run_again() -> None:
    async def scenario(harness: TartHarness) -> None:
        with serving(204) as server:
            await up(harness, server)
            assert server.asked.wait(60)
            assert copies(harness, TOKEN)
            kill_shim(harness)
            assert await control.wait_gone(harness.directory(), harness.clock, within=10)
            await harness.until(lambda vm: vm is not None and vm.state is VmState.EXITED)
        assert copies(harness, TOKEN) == []
        assert harness.tart.storage.local(NAME).pid == 0

    run(scenario, SETTINGS)


@pytest.mark.parametrize("victim", ["guest", "run"])
def test_a_vm_that_ends_before_its_runner_has_failed(victim: str) -> None:
    """`tart run` ends with 0 when its guest powers itself off, and `tart exec` may end earlier or later."""

    async def scenario(harness: TartHarness) -> None:
        with serving(job()) as server:
            await up(harness, server, WAITS="1")
            await says(harness, f"runner --jitconfig {JIT}")
            if victim == "guest":
                assert harness.tart.call("stop", NAME).code == 0
            else:
                os.kill(harness.tart.pids(NAME)["run"], signal.SIGKILL)
        ended = await harness.exited()
        assert ended.exit_code != 0 and ended.exit_reason

    run(scenario, SETTINGS)


def test_a_vm_that_ends_without_a_job_is_no_success() -> None:
    async def scenario(harness: TartHarness) -> None:
        with serving(204) as server:
            await up(harness, server)
            assert server.asked.wait(60)
            assert harness.tart.call("stop", NAME).code == 0
        ended = await harness.exited()
        assert ended.exit_code is None and "before its runner" in ended.exit_reason

    run(scenario, SETTINGS)


def test_a_job_whose_runner_could_not_be_started_at_once_is_not_lost() -> None:
    async def scenario(harness: TartHarness) -> None:
        with serving(204) as server:
            await up(harness, server)
            assert server.asked.wait(60)
            harness.tart.set("fail-exec", "times=1 1 Failed to connect to the VM using its control")
            server.answers = [job()]
            assert (await harness.exited()).exit_code == 42
        assert len(harness.tart.journal("exec")) >= 3

    run(scenario, SETTINGS)


def test_a_running_job_is_not_taken_for_none_when_the_guest_does_not_answer() -> None:
    # The runner goes on until a file says that it may end: after the look at its processes has failed.
    runner = "#!/bin/sh\necho runner up\nwhile ! [ -e go ]; do sleep 0.05; done\nexit 42\n"

    async def scenario(harness: TartHarness) -> None:
        with serving(job()) as server:
            await up(harness, server, runner=runner, TUIST_RUNNER_IDLE_TIMEOUT_SECONDS="1")
            await says(harness, "runner up")
            harness.tart.set("fail-exec", "times=1 1 Failed to connect to the VM using its control")
            async with harness.clock.timeout(60):
                while harness.tart.knobs.text("fail-exec").startswith("times=1"):
                    await harness.clock.sleep(0.01)
            disk = Path(harness.tart.storage.local(NAME).path) / "guest-disk"
            (next(disk.rglob("run.sh")).parent / "go").touch()
            assert (await harness.exited()).exit_code == 42

    run(scenario, SETTINGS)
