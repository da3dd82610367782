"""Tests the driver contract: the host or the guest polls for a job. The same for each driver that can.

Where the guest polls, it runs the packaged scripts, `boot.sh` and `dispatch-poll.sh`.
"""

import contextlib

import pytest
from tests.vm.contract.offers import NAME, Capability, DriverHarness, Poller
from tests.vm.contract.running import Run, down, need, until
from tests.vm.poll_server import PollServer, job, serving

from runyard.vm.contract import Unreachable, VmState, VmView

TOKEN = "the-token-of-the-pod"
RUNNER = """#!/bin/sh
echo "the job runs"
while [ -n "$STAYS" ]; do sleep 1; done
exit "$RESULT"
"""
WAITS = RUNNER.replace('-n "$STAYS"', "! -e go")  # for what `RELEASE` makes
RELEASE = """
for folder in "${RUNYARD_WORK_DIR:-}/runner" "$HOME/work/runner" "$HOME/actions-runner"; do
    if [ -f "$folder/run.sh" ]; then : >"$folder/go" && exit 0; fi
done
exit 1
"""
pollers = pytest.mark.parametrize("who", ["host", "guest"])


async def start(
    harness: DriverHarness, server: PollServer, who: Poller, runner: str = RUNNER
) -> None:
    need(harness, Capability.POLLING)
    spec = harness.polled(runner, server.url, who=who, token=TOKEN)
    await harness.driver.pull(spec.image)
    await harness.driver.create(spec)
    await harness.driver.start(NAME)


async def ended(harness: DriverHarness) -> VmView:
    found = await until(harness, lambda vm: vm is not None and vm.state is VmState.EXITED)
    assert found is not None
    return found


async def asked(harness: DriverHarness, server: PollServer) -> None:
    async with harness.clock.timeout(60):
        while not server.asked.is_set():
            await harness.clock.sleep(0.02)


async def without_token(harness: DriverHarness) -> None:
    async with harness.clock.timeout(60):
        while harness.tokens(NAME, TOKEN):
            await harness.clock.sleep(0.05)


async def release(harness: DriverHarness) -> None:
    """Let the job end; with it ends the VM, at times before this command has."""
    async with harness.driver.exec(NAME, ("sh", "-c", RELEASE)) as session:
        await session.wait()


async def copied(harness: DriverHarness) -> None:
    """Wait until the guest has its own copy of the token."""
    look = 'for each in "${RUNYARD_WORK_DIR:-/none}" "$HOME/work"; do [ -s "$each/mine" ] && exit 0; done; exit 1'
    async with harness.clock.timeout(60):
        while True:
            with contextlib.suppress(Unreachable):  # it still boots
                async with harness.driver.exec(NAME, ("sh", "-c", look)) as session:
                    if await session.wait() == 0:
                        return


@pollers
def test_the_code_of_the_runner_is_the_vms(run: Run, who: Poller) -> None:
    async def scenario(harness: DriverHarness) -> None:
        with serving(204, 503, job()) as server:
            await start(harness, server, who)
            assert (await ended(harness)).exit_code == 42
        if who == "host":
            assert b"the job runs" in b"".join([each async for each in harness.driver.logs(NAME)])
        assert [credentials for _, credentials, _ in server.seen] == [f"Bearer {TOKEN}"] * 3
        assert harness.tokens(NAME, TOKEN) == []
        await down(harness)

    run(scenario)


@pytest.mark.parametrize(
    ("who", "status", "code"),
    [("host", 401, 1), ("host", 403, 1), ("host", 410, 0), ("guest", 403, 1)],
)
def test_a_refused_or_drained_vm_ends_with_its_code(
    run: Run, who: Poller, status: int, code: int
) -> None:
    async def scenario(harness: DriverHarness) -> None:
        with serving(status) as server:
            await start(harness, server, who)
            assert (await ended(harness)).exit_code == code
        assert harness.tokens(NAME, TOKEN) == []
        await down(harness)

    run(scenario)


@pollers
def test_a_job_goes_on_without_a_token_after_agent_and_server_went_away(
    run: Run, who: Poller
) -> None:
    async def scenario(harness: DriverHarness) -> None:
        with serving(job()) as server:
            await start(harness, server, who, WAITS)
            await asked(harness, server)
        harness.driver = harness.reopened()
        await without_token(harness)
        await release(harness)
        assert (await ended(harness)).exit_code == 42
        await down(harness)

    run(scenario)


@pollers
def test_a_vm_that_was_killed_while_it_polled_asks_for_nothing_more(run: Run, who: Poller) -> None:
    async def scenario(harness: DriverHarness) -> None:
        with serving(204) as server:
            await start(harness, server, who)
            await asked(harness, server)
            await harness.kill_all(NAME)  # every process has ended when this returns
        with server.followed() as other:  # a request that was on its way is the first one's
            harness.driver = harness.reopened()
            assert (await ended(harness)).exit_code is None
            await down(harness)
            assert other.seen == []
        assert harness.tokens(NAME, TOKEN) == []

    run(scenario)


@pytest.mark.parametrize("killed", [False, True], ids=["ends", "killed"])
def test_a_token_that_the_guest_never_removes_is_wiped_by_the_host(run: Run, killed: bool) -> None:
    """Images made for `tart-kubelet` copy the token out of a read-only share, and know no other one."""

    async def scenario(harness: DriverHarness) -> None:
        with serving(204) as server:
            await start(harness, server, "tart-kubelet")
        await copied(harness)
        assert harness.tokens(NAME, TOKEN)
        if killed:
            await harness.kill_all(NAME)
            harness.driver = harness.reopened()
        else:
            await release(harness)
        assert (await ended(harness)).exit_code == (None if killed else 42)
        assert [each for each in harness.tokens(NAME, TOKEN) if each != "mine"] == []
        await down(harness)

    run(scenario)
