"""The simulated host: a shared line, a disk that fills up, faults, and guests that outlive the agent."""

import asyncio

import msgspec
import pytest

from runyard.sim.clock import VirtualClock
from runyard.sim.driver import Host, SimDriver
from runyard.sim.exec import Terminal
from runyard.sim.loop import run_virtual
from runyard.sim.uplink import Uplink
from runyard.vm.contract import (
    DriverFailed,
    NoSpace,
    PullProgress,
    SlotsFull,
    Stalled,
    Unreachable,
    VmSpec,
    VmState,
)

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
        with pytest.raises(SlotsFull, match="1 of 1"):
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


def test_hosts_behind_one_uplink_share_it() -> None:
    async def scenario() -> float:
        clock = VirtualClock()
        uplink = Uplink(clock, bandwidth=20.0)
        hosts = [SimDriver(clock, host=SLOW, uplink=uplink) for _ in range(4)]
        async with asyncio.TaskGroup() as tasks:
            for driver in hosts:
                tasks.create_task(driver.pull("a"))
        return clock.monotonic()

    # 400 bytes through 20 a second, although each line would carry 10.
    assert run_virtual(scenario()) == pytest.approx(20.0)


def test_a_pull_reports_progress_and_ends_when_nothing_arrives() -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        driver = SimDriver(clock, host=SLOW)
        seen: list[PullProgress] = []
        await driver.pull("a", progress=seen.append)
        assert [found.percent for found in seen] == [50.0, 100.0]
        driver.stall_pulls()
        with pytest.raises(Stalled):
            await driver.pull("b", progress=seen.append)
        assert clock.monotonic() == 10.0 + SLOW.stall_seconds
        driver.heal()
        await driver.pull("b")

    run_virtual(scenario())


def test_a_guest_s_disk_fills_up_with_the_hours() -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        driver = SimDriver(clock, host=msgspec.structs.replace(SLOW, disk_growth=1.0))
        await driver.pull("a")
        await driver.create(spec("one"))
        await driver.start("one")
        await clock.sleep(10 * 3600)
        assert await driver.disk_usage("one") == pytest.approx(43.0, abs=0.01)
        await clock.sleep(100 * 3600)
        assert await driver.disk_usage("one") == 100.0

    run_virtual(scenario())


def test_a_command_in_a_guest_reads_input_and_returns_its_code() -> None:
    async def upper(terminal: Terminal) -> int:
        while data := await terminal.receive():
            await terminal.send(data.upper())
        return 7

    async def scenario() -> None:
        clock = VirtualClock()
        driver = SimDriver(clock, host=SLOW, programs={"upper": upper})
        await driver.pull("a")
        await driver.create(spec("one"))
        with pytest.raises(Unreachable):
            async with driver.exec("one", ("upper",)):
                pass
        await driver.start("one")
        await clock.sleep(10)
        async with driver.exec("one", ("upper",)) as session:
            await session.write(b"hello")
            assert await session.read() == ("stdout", b"HELLO")
            await session.close_input()
            assert await session.read() is None
            assert await session.wait() == 7
        async with driver.exec("one", ("nothing",)) as session:
            assert await session.read() == ("stderr", b"nothing: not found\n")
            assert await session.wait() == 127

    run_virtual(scenario())


def test_a_log_can_be_read_after_the_vm_was_deleted_until_it_is_forgotten() -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        driver = SimDriver(clock, host=SLOW)
        await driver.pull("a")
        await driver.create(spec("one"))
        await driver.start("one")
        followed: list[bytes] = []

        async def follow() -> None:
            async for piece in driver.logs("one", follow=True):
                followed.append(piece)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(follow())
            await clock.sleep(10)
            driver.write_log("one", b"first\n")
            await clock.sleep(10)
            driver.write_log("one", b"second\n")
            await driver.stop("one", grace=0)
        assert followed == [b"first\n", b"second\n"], "it ends with the VM"
        await driver.delete("one")
        assert [piece async for piece in driver.logs("one")] == [b"first\nsecond\n"]
        await driver.forget("one")
        assert [piece async for piece in driver.logs("one")] == []

    run_virtual(scenario())


def test_a_driver_that_stands_still_goes_on_where_it_was_and_its_guests_ran_meanwhile() -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        driver = SimDriver(clock, host=SLOW)
        await driver.pull("a")
        await driver.create(spec("one"))
        await driver.start("one")
        driver.stand_still()
        with pytest.raises(TimeoutError):
            async with clock.timeout(60):
                await driver.list()
        view = driver.view("one")
        assert view is not None and view.state is VmState.RUNNING
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(driver.list())
            await clock.sleep(60)
            assert not waiting.done()
            driver.stand_still(False)
        assert waiting.result() == (view,)

    run_virtual(scenario())


def test_another_driver_of_the_machine_sees_its_vms_and_not_the_planned_faults() -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        first = SimDriver(clock, host=SLOW)
        await first.pull("a")
        await first.create(spec("one"))
        await first.start("one")
        first.hang("list")
        second = first.reopened()
        await second.create(spec("two"))
        await second.start("two")
        await clock.sleep(SLOW.boot_seconds + 1)
        views = await second.list()
        assert [each.name for each in views] == ["one", "two"]
        assert len({each.address for each in views}) == 2

    run_virtual(scenario())


def test_a_slow_line_is_as_fast_as_before_when_it_has_recovered() -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        driver = SimDriver(clock, host=SLOW)
        driver.slow_down(1.0)
        driver.slow_down()
        await driver.pull("a")
        assert clock.monotonic() == 10.0

    run_virtual(scenario())
