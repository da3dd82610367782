"""Tests the driver contract: the host polls on behalf of a guest. The same for each driver that can."""

import pytest
from tests.vm.contract.harnesses import NAME, Capability, DriverHarness
from tests.vm.contract.running import Run, down, need, until
from tests.vm.poll_server import PollServer, job, serving

from runyard.vm.contract import HostPolling, VmState, VmView

TOKEN = "the-token-of-the-pod"
RUNNER = """#!/bin/sh
echo "the job runs"
while [ -n "$STAYS" ]; do sleep 1; done
exit "$RESULT"
"""


async def start(harness: DriverHarness, server: PollServer, runner: str = RUNNER) -> None:
    need(harness, Capability.POLLING)
    spec = harness.polled(runner, HostPolling(url=server.url), token=TOKEN)
    await harness.driver.pull(spec.image)
    await harness.driver.create(spec)
    await harness.driver.start(NAME)


async def ended(harness: DriverHarness) -> VmView:
    found = await until(harness, lambda vm: vm is not None and vm.state is VmState.EXITED)
    assert found is not None
    return found


async def says(harness: DriverHarness, words: bytes) -> None:
    async with harness.clock.timeout(60):
        while words not in b"".join([piece async for piece in harness.driver.logs(NAME)]):
            await harness.clock.sleep(0.05)


def test_the_code_of_the_runner_is_the_vms(run: Run) -> None:
    async def scenario(harness: DriverHarness) -> None:
        with serving(204, 503, job()) as server:
            await start(harness, server)
            assert (await ended(harness)).exit_code == 42
        await says(harness, b"the job runs")
        assert [credentials for _, credentials, _ in server.seen] == [f"Bearer {TOKEN}"] * 3
        await down(harness)

    run(scenario)


@pytest.mark.parametrize(("status", "code"), [(401, 1), (403, 1), (410, 0)])
def test_a_refused_or_drained_vm_ends_with_its_code(run: Run, status: int, code: int) -> None:
    async def scenario(harness: DriverHarness) -> None:
        with serving(status) as server:
            await start(harness, server)
            assert (await ended(harness)).exit_code == code
        await down(harness)

    run(scenario)


def test_a_job_goes_on_after_agent_and_server_went_away(run: Run) -> None:
    runner = RUNNER.replace('-n "$STAYS"', "! -e go")

    async def scenario(harness: DriverHarness) -> None:
        with serving(job()) as server:
            await start(harness, server, runner)
            await says(harness, b"the job runs")
            server.stop()
        harness.driver = harness.reopened()
        async with harness.driver.exec(NAME, ("sh", "-c", FIND)) as session:
            assert await session.read() is None
            assert await session.wait() == 0
        assert (await ended(harness)).exit_code == 42
        await down(harness)

    run(scenario)


FIND = """
for folder in "${RUNYARD_WORK_DIR:-}/runner" "$HOME/actions-runner"; do
    if [ -f "$folder/run.sh" ]; then : >"$folder/go" && exit 0; fi
done
exit 1
"""


def test_a_vm_that_was_killed_while_it_polled_asks_for_nothing_more(run: Run) -> None:
    async def scenario(harness: DriverHarness) -> None:
        with serving(204) as server:
            await start(harness, server)
            async with harness.clock.timeout(60):
                while not server.seen:
                    await harness.clock.sleep(0.02)
            await harness.kill_all(NAME)
            harness.driver = harness.reopened()
            assert (await ended(harness)).exit_code is None
            count = len(server.seen)
            await harness.clock.sleep(0.2)  # twenty polls
            assert len(server.seen) == count
        await down(harness)

    run(scenario)
