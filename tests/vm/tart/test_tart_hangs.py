"""Tests that a tart whose commands hang neither keeps a VM running nor leaves half of one."""

import msgspec
import pytest
from tests.vm.tart_harness import NAME, QUICK, TartHarness, run

from runyard.vm.contract import STOP_MARGIN, Hung, VmState
from runyard.vm.shim import control
from runyard.vm.tart.settings import Settings

ONCE = msgspec.structs.replace(QUICK, attempts=1)
pytestmark = pytest.mark.slow  # each command of tart is a program


def test_a_vm_is_powered_off_although_every_command_of_tart_hangs() -> None:
    async def scenario(harness: TartHarness) -> None:
        await harness.up("ignores-term")
        for command in ("stop", "exec", "list", "get", "ip"):
            harness.tart.set(f"hang-{command}", "ignore-term")
        async with harness.clock.timeout(10):
            await harness.driver.stop(NAME, grace=0.2)
        assert harness.tart.storage.local(NAME).pid == 0
        assert b"Stopping VM..." in b"".join([each async for each in harness.driver.logs(NAME)])

    run(scenario)


def test_the_margin_of_a_stop_is_shorter_than_a_power_off() -> None:
    """The caller's deadline must not come first: the VM would never be powered off."""
    assert Settings().power_off + control.POWER_OFF_TIMEOUT < STOP_MARGIN


@pytest.mark.parametrize("command", ["set", "get"])
def test_a_command_that_hangs_while_creating_leaves_nothing(command: str) -> None:
    async def scenario(harness: TartHarness) -> None:
        harness.put_image()
        harness.with_deadlines(**{command: 0.3})
        harness.tart.set(f"hang-{command}")
        with pytest.raises(Hung, match=f"tart {command}"):
            await harness.driver.create(harness.spec(token="s3cret"))
        assert await harness.driver.list() == ()
        assert not harness.directory().path.exists()
        harness.tart.unset(f"hang-{command}")
        harness.with_deadlines(**{command: 60.0})
        await harness.driver.create(harness.spec("exit 3"))
        await harness.driver.start(NAME)
        assert (await harness.exited()).exit_code == 3

    run(scenario, ONCE)


def test_a_delete_that_hangs_is_an_error_and_the_next_one_completes_it() -> None:
    async def scenario(harness: TartHarness) -> None:
        await harness.up()
        await harness.driver.stop(NAME, grace=0)
        harness.with_deadlines(delete=0.3)
        harness.tart.set("hang-delete")
        with pytest.raises(Hung, match="tart delete"):
            await harness.driver.delete(NAME)
        view = await harness.view()
        assert view is not None and view.state is VmState.EXITED
        harness.tart.unset("hang-delete")
        harness.with_deadlines(delete=60.0)
        await harness.driver.delete(NAME)
        assert await harness.driver.list() == ()

    run(scenario, ONCE)
