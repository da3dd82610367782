"""Tests that a run which tart has refused, because too many VMs run, loses nothing: not the token, not the one run."""

import os
import signal

import msgspec
import pytest
from tests.vm.poll_server import job, serving
from tests.vm.tart.test_tart_driver import READS_TOKEN, copies
from tests.vm.tart_harness import NAME, QUICK, TartHarness, run

from runyard.vm.contract import DriverFailed, HostPolling, SlotsFull, VmState, VmView
from runyard.vm.shim import control
from runyard.vm.shim.orders import Pace

pytestmark = pytest.mark.slow  # each command of tart is a program
TOKEN = "the-token-of-the-pod"
PATIENT = msgspec.structs.replace(QUICK, start_window=10.0, pace=Pace(pause=0.01, timeout=5.0))


async def refuse(harness: TartHarness) -> None:
    harness.tart.set("vm-limit", 0)
    with pytest.raises(SlotsFull, match="too many VMs"):
        await harness.driver.start(NAME)
    assert await harness.view() == VmView(name=NAME, state=VmState.STOPPED)
    harness.tart.unset("vm-limit")


def test_a_guest_that_was_refused_before_has_its_token() -> None:
    async def scenario(harness: TartHarness) -> None:
        harness.put_image({"boot": READS_TOKEN})
        await harness.driver.create(harness.spec(token=TOKEN))
        before = copies(harness, TOKEN)
        await refuse(harness)
        assert copies(harness, TOKEN) == before
        await harness.driver.start(NAME)
        assert (await harness.exited()).exit_code == 7
        assert (harness.directory().status / "length").read_text().strip() == str(len(TOKEN))
        assert copies(harness, TOKEN) == []

    run(scenario, PATIENT)


def test_a_host_polls_with_the_token_of_a_vm_that_was_refused_before() -> None:
    async def scenario(harness: TartHarness) -> None:
        harness.put_image({"actions-runner/run.sh": "#!/bin/sh\nexit 42\n"})
        with serving(job()) as server:
            spec = msgspec.structs.replace(
                harness.spec(token=TOKEN), polling=HostPolling(url=server.url)
            )
            await harness.driver.create(spec)
            await refuse(harness)
            await harness.driver.start(NAME)
            assert (await harness.exited()).exit_code == 42
            assert [held for _, held, _ in server.seen] == [f"Bearer {TOKEN}"]
        assert copies(harness, TOKEN) == []

    run(scenario, PATIENT)


def test_a_token_is_wiped_when_a_refused_vm_is_deleted() -> None:
    async def scenario(harness: TartHarness) -> None:
        harness.put_image()
        await harness.driver.create(harness.spec(token=TOKEN))
        await refuse(harness)
        await harness.driver.delete(NAME)
        assert copies(harness, TOKEN) == []

    run(scenario, PATIENT)


def test_a_vm_that_was_refused_before_is_not_run_twice() -> None:
    """Its run ends soon and prints nothing: the message of the refused one must not be taken for its own."""

    async def scenario(harness: TartHarness) -> None:
        harness.put_image()
        await harness.driver.create(harness.spec())
        await refuse(harness)
        await harness.driver.start(NAME)
        await harness.listening()
        os.kill(harness.tart.pids(NAME)["run"], signal.SIGKILL)
        assert await control.wait_gone(harness.directory(), harness.clock, within=10)
        with pytest.raises(DriverFailed, match="never starts again"):
            await harness.driver.start(NAME)
        assert (await harness.exited()).exit_reason
        record = harness.directory().ended()
        assert record is not None and record.status == -signal.SIGKILL
        assert harness.tart.runs(NAME) == 2  # the refused one, and this one

    run(scenario, msgspec.structs.replace(PATIENT, start_window=2.0))


@pytest.mark.parametrize("code", [0, 2])
def test_a_run_that_ends_with_another_status_was_not_refused(code: int) -> None:
    async def scenario(harness: TartHarness) -> None:
        harness.put_image()
        harness.tart.set("fail-run", f"{code} The number of VMs exceeds the system limit")
        await harness.driver.create(harness.spec())
        await harness.driver.start(NAME)
        await harness.exited()
        assert harness.tart.runs(NAME) == 1

    run(scenario, PATIENT)
