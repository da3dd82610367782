"""The simulated host: a shared line, a disk that fills up, faults, and guests that outlive the agent."""

import asyncio

import pytest

from runyard.sim.clock import VirtualClock
from runyard.sim.driver import Host, SimDriver
from runyard.sim.loop import run_virtual
from runyard.vm.contract import DriverFailed, NoSpace, VmSpec, VmState

SLOW = Host(bandwidth=10.0, image_bytes=100.0, disk=250.0, vm_bytes=20.0, boot_seconds=5.0)


def spec(name: str) -> VmSpec:
    return VmSpec(name=name, image="a", cpu_milli=1, memory_mb=1)


def test_two_pulls_share_the_line() -> None:
    async def scenario() -> dict[str, float]:
        clock = VirtualClock()
        driver = SimDriver(clock, host=SLOW)
        ended: dict[str, float] = {}

        async def pull(image: str, after: float) -> None:
            await clock.sleep(after)
            await driver.pull(image)
            ended[image] = round(clock.monotonic(), 3)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(pull("a", 0.0))
            tasks.create_task(pull("b", 5.0))
        return ended

    # a: 5 s alone (50), then half speed for the other 50. b: 10 s at half, then 50 alone.
    assert run_virtual(scenario()) == {"a": 15.0, "b": 20.0}


def test_a_full_disk_refuses_images_and_clones() -> None:
    async def scenario() -> None:
        driver = SimDriver(VirtualClock(), host=SLOW)
        await driver.pull("a")
        await driver.pull("b")
        with pytest.raises(NoSpace):
            await driver.pull("c")
        await driver.create(spec("one"))
        await driver.create(spec("two"))
        with pytest.raises(NoSpace):
            await driver.create(spec("three"))
        await driver.remove_image("b")
        await driver.create(spec("three"))

    run_virtual(scenario())


def test_the_limit_of_running_vms_is_the_hosts() -> None:
    async def scenario() -> None:
        driver = SimDriver(VirtualClock(), host=Host(max_running=1))
        await driver.pull("a")
        await driver.create(spec("one"))
        await driver.create(spec("two"))
        await driver.start("one")
        with pytest.raises(DriverFailed, match="limit"):
            await driver.start("two")
        await driver.stop("one", grace=0)
        await driver.start("two")
        assert driver.history == ["one", "two"]

    run_virtual(scenario())


def test_a_power_cut_ends_every_guest_without_a_report() -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        driver = SimDriver(clock, host=SLOW)
        await driver.pull("a")
        for name in ("one", "two"):
            await driver.create(spec(name))
            await driver.start(name)
        await clock.sleep(10)
        driver.power_off_host()
        states = [(vm.state, vm.exit_code, vm.exit_reason) for vm in await driver.list()]
        assert states == [(VmState.EXITED, None, "the host lost its power")] * 2

    run_virtual(scenario())


def test_planned_faults_happen_as_often_as_planned() -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        driver = SimDriver(clock, host=SLOW)
        driver.fail("pull", DriverFailed("no route"), times=2)
        for _ in range(2):
            with pytest.raises(DriverFailed, match="no route"):
                await driver.pull("a")
        driver.hang("list")
        with pytest.raises(TimeoutError):
            async with clock.timeout(3600):
                await driver.list()
        await driver.pull("a")
        assert await driver.list() == ()

    run_virtual(scenario())
