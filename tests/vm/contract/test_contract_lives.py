"""Tests the driver contract: a VM is created, runs once, ends, and is torn down. The same for each driver."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest
from tests.vm.contract.offers import NAME, DriverHarness
from tests.vm.contract.running import LACKS, Run, down, spec, until, up, view

from runyard.vm.contract import DriverFailed, ImageMissing, NoSpace, VmSpec, VmState, VmView
from runyard.vm.teardown import stop_all


def test_a_vm_runs_once_and_its_exit_stays_listed_until_it_is_deleted(run: Run) -> None:
    async def scenario(harness: DriverHarness) -> None:
        await harness.driver.pull(harness.image)
        await harness.driver.create(spec(harness, "exit 0"))
        assert (await view(harness.driver)) == VmView(name=NAME, state=VmState.STOPPED)
        await harness.driver.start(NAME)
        ended = await until(harness, lambda vm: vm is not None and vm.state is VmState.EXITED)
        assert ended is not None and ended.exit_code == 0 and ended.finished_at is not None
        found = await view(harness.reopened())
        assert found == ended
        with pytest.raises(DriverFailed):
            await harness.driver.start(NAME)
        await harness.driver.delete(NAME)
        assert await view(harness.driver) is None

    run(scenario)


def test_a_guests_own_exit_code_is_reported(run: Run) -> None:
    async def scenario(harness: DriverHarness) -> None:
        await up(harness, "exit 42")
        ended = await until(harness, lambda vm: vm is not None and vm.state is VmState.EXITED)
        assert ended is not None and ended.exit_code == 42
        await down(harness)

    run(scenario)


def test_a_running_vm_has_an_address_and_cannot_be_deleted(run: Run) -> None:
    async def scenario(harness: DriverHarness) -> None:
        running = await up(harness)
        assert running.state is VmState.RUNNING and running.address
        with pytest.raises(DriverFailed):
            await harness.driver.delete(NAME)
        usage = await harness.driver.disk_usage(NAME)
        assert usage is None or 0 <= usage <= 100
        await down(harness)

    run(scenario)


def test_starting_twice_is_one_start(run: Run) -> None:
    async def scenario(harness: DriverHarness) -> None:
        first = await up(harness)
        await harness.driver.start(NAME)
        assert await view(harness.driver) == first
        assert harness.runs(NAME) == 1
        await down(harness)

    run(scenario)


def test_creating_twice_keeps_the_first(run: Run) -> None:
    async def scenario(harness: DriverHarness) -> None:
        running = await up(harness)
        await harness.driver.create(spec(harness, "exit 1"))
        assert await view(harness.driver) == running
        await down(harness)

    run(scenario)


def test_tearing_down_an_absent_vm_succeeds(run: Run) -> None:
    async def scenario(harness: DriverHarness) -> None:
        for _ in range(2):
            await harness.driver.stop("absent", grace=1)
            await harness.driver.delete("absent")
            await harness.driver.remove_image(harness.missing_image)
        await up(harness)
        for _ in range(2):
            await harness.driver.stop(NAME, grace=30)
        for _ in range(2):
            await harness.driver.delete(NAME)
        assert await view(harness.driver) is None

    run(scenario)


def test_a_guest_that_handles_term_ends_before_its_grace_period_is_over(run: Run) -> None:
    async def scenario(harness: DriverHarness) -> None:
        await up(harness, "handles-term")
        began = harness.clock.monotonic()
        await harness.driver.stop(NAME, grace=60)
        assert harness.clock.monotonic() - began < 30
        ended = await view(harness.driver)
        assert ended is not None and ended.state is VmState.EXITED
        await harness.driver.delete(NAME)

    run(scenario)


@pytest.mark.slow
def test_a_guest_that_ignores_term_is_powered_off_after_its_grace_period(run: Run) -> None:
    async def scenario(harness: DriverHarness) -> None:
        await up(harness, "ignores-term")
        began = harness.clock.monotonic()
        await harness.driver.stop(NAME, grace=2)
        assert harness.clock.monotonic() - began >= 2
        ended = await view(harness.driver)
        assert ended is not None and ended.state is VmState.EXITED
        assert ended.exit_code is None and ended.exit_reason
        await harness.driver.delete(NAME)

    run(scenario)


@pytest.mark.slow
def test_a_second_stop_cuts_the_grace_period_short(run: Run) -> None:
    """As of an agent that was restarted while it stopped a VM."""

    async def scenario(harness: DriverHarness) -> None:
        await up(harness, "ignores-term")
        began = harness.clock.monotonic()
        again = harness.reopened()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(harness.driver.stop(NAME, grace=3))
            await harness.clock.sleep(1)
            tasks.create_task(again.stop(NAME, grace=2))
        assert harness.clock.monotonic() - began >= 3
        ended = await view(harness.driver)
        assert ended is not None and ended.state is VmState.EXITED and ended.exit_code is None
        await harness.driver.delete(NAME)

    run(scenario)


def test_a_vm_that_never_started_can_be_deleted(run: Run) -> None:
    async def scenario(harness: DriverHarness) -> None:
        await harness.driver.pull(harness.image)
        await harness.driver.create(spec(harness))
        await harness.driver.stop(NAME, grace=5)
        await harness.driver.delete(NAME)
        assert await view(harness.driver) is None

    run(scenario)


FAILURES: dict[str, Callable[[DriverHarness], Awaitable[None]]] = {
    "pull": lambda harness: harness.driver.pull(harness.missing_image),
    "create": lambda harness: harness.driver.create(
        VmSpec(name=NAME, image=harness.missing_image, cpu_milli=1, memory_mb=1)
    ),
}


@pytest.mark.parametrize("attempt", FAILURES.values(), ids=list(FAILURES))
def test_an_image_that_does_not_exist_raises_image_missing(
    run: Run, attempt: Callable[[DriverHarness], Awaitable[None]]
) -> None:
    async def scenario(harness: DriverHarness) -> None:
        with pytest.raises(ImageMissing):
            await attempt(harness)
        assert await view(harness.driver) is None

    run(scenario)


def test_starting_an_absent_vm_fails(run: Run) -> None:
    async def scenario(harness: DriverHarness) -> None:
        with pytest.raises(DriverFailed):
            await harness.driver.start("absent")

    run(scenario)


def test_what_was_killed_with_its_shim_has_exited_and_never_starts_again(run: Run) -> None:
    async def scenario(harness: DriverHarness) -> None:
        await up(harness)
        await harness.kill_all(NAME)
        harness.driver = harness.reopened()
        ended = await until(harness, lambda vm: vm is not None and vm.state is VmState.EXITED)
        assert ended is not None and ended.exit_code is None and ended.exit_reason
        with pytest.raises(DriverFailed):
            await harness.driver.start(NAME)
        assert harness.runs(NAME) == 1
        await harness.driver.create(spec(harness))  # the same name is still the same VM
        assert (await view(harness.driver)) == ended
        await down(harness)

    run(scenario)


def test_a_foreign_vm_is_listed_and_never_touched(run: Run) -> None:
    async def scenario(harness: DriverHarness) -> None:
        await harness.driver.pull(harness.image)
        before = harness.add_foreign(NAME)
        found = await view(harness.driver)
        assert found is not None and not found.owned
        with pytest.raises(DriverFailed):
            await harness.driver.create(spec(harness))
        await harness.driver.stop(NAME, grace=0)  # what is not ours counts as absent
        await harness.driver.delete(NAME)
        await stop_all(harness.driver, grace=0)
        assert harness.foreign(NAME) == before
        found = await view(harness.driver)
        assert found is not None and not found.owned

    run(scenario)


def test_a_vm_that_does_not_react_delays_neither_the_list_nor_another_vm(run: Run) -> None:
    async def scenario(harness: DriverHarness) -> None:
        await up(harness)
        with harness.stopped(NAME):
            async with harness.clock.timeout(90):  # the VM does not react before `stopped` ends
                await harness.driver.create(spec(harness, name="other"))
                await harness.driver.start("other")
                names = [each.name for each in await harness.driver.list()]
                await harness.driver.stop("other", grace=0)
                await harness.driver.delete("other")
            assert sorted(names) == sorted([NAME, "other"])
        await down(harness)

    run(scenario)


def test_stopping_all_stops_each_of_ours_once(run: Run) -> None:
    async def scenario(harness: DriverHarness) -> None:
        await up(harness)
        await harness.driver.create(spec(harness, name="other"))
        await stop_all(harness.driver, grace=30)
        states = {each.name: each.state for each in await harness.driver.list()}
        assert states == {NAME: VmState.EXITED, "other": VmState.STOPPED}
        await down(harness)
        await harness.driver.delete("other")

    run(scenario)


def test_the_capacity_of_the_host_is_known(run: Run) -> None:
    async def scenario(harness: DriverHarness) -> None:
        found = await harness.driver.capacity()
        assert 0 < found.disk_free <= found.disk_total
        assert found.slots == 0 or found.slots_used <= found.slots

    run(scenario)


@pytest.mark.parametrize("step", ["pull", "create", "clone", "start"])
def test_a_full_disk_is_no_space_and_leaves_nothing_half_made(run: Run, step: str) -> None:
    async def scenario(harness: DriverHarness) -> None:
        if step not in harness.disk_steps:
            pytest.skip(f"{LACKS}{step} is no step of its own, or writes nothing")
        harness.offer_image()
        steps: dict[str, Callable[[], Awaitable[None]]] = {
            "pull": lambda: harness.driver.pull(harness.image),
            "create": lambda: harness.driver.create(spec(harness, "exit 3", token="a token")),
            "clone": lambda: harness.driver.create(spec(harness, "exit 3", token="a token")),
            "start": lambda: harness.driver.start(NAME),
        }
        order = ["pull", "clone" if step == "clone" else "create", "start"]
        for name in order[: order.index(step)]:
            await steps[name]()
        before = await view(harness.driver)
        with harness.full_disk(step), pytest.raises(NoSpace):
            await steps[step]()
        assert await view(harness.driver) == before
        for name in order[order.index(step) :]:
            await steps[name]()
        ended = await until(harness, lambda vm: vm is not None and vm.state is VmState.EXITED)
        assert ended is not None and ended.exit_code == 3
        await down(harness)

    run(scenario, small=True)


@pytest.mark.parametrize("pages", [1, 2, 3, 4])
def test_a_disk_that_fills_in_the_middle_of_a_start_costs_no_second_start(
    run: Run, pages: int
) -> None:
    """The order, the record of the start and the console's file are written one after the other."""

    async def scenario(harness: DriverHarness) -> None:
        if "start" not in harness.disk_steps:
            pytest.skip(f"{LACKS}start writes nothing")
        await harness.driver.pull(harness.image)
        await harness.driver.create(spec(harness))
        with harness.full_disk("start", free=pages * 4096), contextlib.suppress(NoSpace):
            await harness.driver.start(NAME)
        found = await view(harness.driver)
        assert found is not None
        if found.state is VmState.STOPPED:
            await harness.driver.start(NAME)
        await harness.driver.stop(NAME, grace=0)
        ended = await until(harness, lambda vm: vm is not None and vm.state is VmState.EXITED)
        assert ended is not None
        await down(harness)

    run(scenario, small=True)


def test_a_vm_whose_console_cannot_be_written_runs_on_and_can_be_stopped(run: Run) -> None:
    async def scenario(harness: DriverHarness) -> None:
        if "start" not in harness.disk_steps:
            pytest.skip(f"{LACKS}a console is kept in memory")
        await up(harness)
        with harness.full_disk("start"):
            with contextlib.suppress(OSError):  # the disk is full for this test, too
                harness.write_log(NAME)
            for _ in range(2):
                found = await view(harness.driver)
                assert found is not None and found.state is not VmState.EXITED
            await harness.driver.stop(NAME, grace=0)
        ended = await until(harness, lambda vm: vm is not None and vm.state is VmState.EXITED)
        assert ended is not None and harness.runs(NAME) == 1
        await down(harness)

    run(scenario, small=True)
