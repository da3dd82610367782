"""Tests what is proved before a VM whose shim was killed counts as ended, and what a killed agent leaves."""

import fcntl
import json
import os
from pathlib import Path

import pytest
from tests.vm.tart.test_tart_driver import copies, kill_shim
from tests.vm.tart_harness import NAME, TartHarness, run

from runyard.vm.contract import VmState
from runyard.vm.shim import control
from runyard.vm.tart.directory import sweep
from runyard.vm.tart.guest import TartGuest

pytestmark = pytest.mark.slow  # each command of tart is a program


def hide_mark(harness: TartHarness) -> None:
    """As on a system that hides the environments of processes: reaping finds none of them."""
    path = harness.directory().state / "order.json"
    order = json.loads(path.read_bytes())
    path.write_text(json.dumps({**order, "mark": "/of/no/process"}))


def test_a_vm_whose_processes_cannot_be_found_is_powered_off_before_it_counts_as_ended() -> None:
    async def scenario(harness: TartHarness) -> None:
        await harness.up()
        hide_mark(harness)
        kill_shim(harness)
        await harness.until(lambda vm: vm is not None and vm.state is VmState.EXITED)
        assert harness.tart.storage.local(NAME).pid == 0
        assert harness.tart.journal("stop") == [["stop", NAME, "--timeout", "5"]]

    run(scenario)


def test_a_vm_that_tart_cannot_stop_still_counts_as_running() -> None:
    async def scenario(harness: TartHarness) -> None:
        await harness.up()
        hide_mark(harness)
        harness.tart.set("fail-stop", "1 Error: no.")
        kill_shim(harness)
        assert await control.wait_gone(harness.directory(), harness.clock, within=10)
        view = await harness.view()
        assert view is not None and view.state is not VmState.EXITED
        harness.tart.unset("fail-stop")
        await harness.until(lambda vm: vm is not None and vm.state is VmState.EXITED)
        assert harness.tart.storage.local(NAME).pid == 0

    run(scenario)


@pytest.mark.parametrize("printed", ["null", "{}", '["a"]', '[{"Name": 1}]', "", "Error"])
def test_a_list_that_is_none_ends_the_reaping_of_a_vm(tmp_path: Path, printed: str) -> None:
    command = ["printf", "%s", printed]
    guest = TartGuest(
        str(tmp_path / "vm" / "state"), {"list": command, "name": 1, "env": dict(os.environ)}
    )
    assert not guest.is_gone()  # it is asked again


def test_a_token_is_wiped_although_the_order_of_the_shim_is_lost() -> None:
    async def scenario(harness: TartHarness) -> None:
        await harness.up(token="s3cret")
        assert copies(harness, "s3cret")
        os.kill(harness.tart.pids(NAME)["run"], 19)  # it must not end by itself
        kill_shim(harness)
        os.kill(harness.tart.pids(NAME)["run"], 9)
        (harness.directory().state / "order.json").write_bytes(b"")
        await harness.until(lambda vm: vm is not None and vm.state is VmState.EXITED)
        assert copies(harness, "s3cret") == []

    run(scenario)


@pytest.mark.parametrize("name", [".new-1-a", ".gone-1-a"])
def test_what_another_agent_makes_or_removes_right_now_is_not_swept(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / name / "env").mkdir(parents=True)
    handle = os.open(tmp_path / name, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        sweep(tmp_path)
        assert (tmp_path / name / "env").exists()
    finally:
        os.close(handle)
    sweep(tmp_path)
    assert list(tmp_path.iterdir()) == []
