"""Tests the driver contract, with the same suite for each driver.

A driver is added by an entry in `DRIVERS`: a *harness* with a new driver, an image that can be pulled, guests that
end by themselves with a code, that end on TERM, and that ignore TERM; and a function that runs a scenario (in virtual
time where the driver has it). An entry reports what is missing on this machine.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Protocol

import pytest
from tests.conftest import Absent
from tests.vm import process_harness

from runyard.clock import Clock
from runyard.sim.clock import VirtualClock
from runyard.sim.driver import Host, SimDriver
from runyard.sim.loop import run_virtual
from runyard.vm.contract import DriverFailed, ImageMissing, VmDriver, VmSpec, VmState, VmView

GUEST = "GUEST"  # the variable that sets the behaviour of a harness's guest
NAME = "pod-1-uid-1"


class DriverHarness(Protocol):
    """A driver with what the suite needs to use it."""

    clock: Clock
    driver: VmDriver
    image: str
    missing_image: str

    def reopened(self) -> VmDriver:
        """A new driver on the same state, as after a restart of the agent."""
        ...

    async def listening(self, name: str) -> None:
        """Return when the guest handles or ignores TERM, or has ended."""
        ...


class SimHarness:
    """The simulator's driver."""

    def __init__(self) -> None:
        self.clock: Clock = VirtualClock()
        self.image, self.missing_image = "image@sha256:1", "image@sha256:none"
        registry = {self.image: 1e9}
        self.driver: VmDriver = SimDriver(
            self.clock, host=Host(boot_seconds=3), guest=self._guest, registry=registry
        )

    def reopened(self) -> VmDriver:
        return self.driver

    async def listening(self, name: str) -> None:
        return

    async def _guest(self, spec: VmSpec, address: str) -> int:
        behaviour = dict(spec.env)[GUEST]
        if behaviour.startswith("exit "):
            await self.clock.sleep(2)
            return int(behaviour.removeprefix("exit "))
        try:
            await self.clock.sleep(3600)
        except asyncio.CancelledError:
            if behaviour != "handles-term":
                await self.clock.sleep(3600)  # only the power-off ends this
        return 0


class ProcessVmHarness(process_harness.ProcessHarness):
    """VMs as processes. Their guest creates a file once TERM is handled or ignored."""

    BOOT = """#!/bin/sh
behaviour=$(sed -n 's/^GUEST=//p' "$RUNYARD_ENV_DIR/tuist.env")
case $behaviour in
"exit "*)
    echo "${behaviour#exit }" >"$RUNYARD_STATUS_DIR/runner-rc"
    exit 0
    ;;
handles-term) trap 'echo 0 >"$RUNYARD_STATUS_DIR/runner-rc"; exit 0' TERM ;;
*) trap '' TERM ;;
esac
: >"$RUNYARD_STATUS_DIR/listening"
while :; do sleep 3600 & wait; done
"""

    async def listening(self, name: str) -> None:
        directory = self.directory(name)
        async with self.clock.timeout(60):
            while not (directory.status / "listening").exists() and directory.ended() is None:
                await self.clock.sleep(0.01)


Scenario = Callable[[DriverHarness], Coroutine[Any, Any, None]]


def on_sim(scenario: Scenario, absent: Absent) -> None:
    async def main() -> None:
        await scenario(SimHarness())

    run_virtual(main())


def on_processes(way: process_harness.Way, scenario: Scenario, absent: Absent) -> None:
    isolation = process_harness.isolation(way)
    if isinstance(isolation, str):
        absent(f"a machine for VMs as processes, {way}", isolation)

    async def main(harness: process_harness.ProcessHarness) -> None:
        harness.put_image(ProcessVmHarness.BOOT)
        await scenario(ProcessVmHarness(harness.root, harness.isolation))

    process_harness.run_on(isolation, main)


DRIVERS: dict[str, Callable[[Scenario, Absent], None]] = {
    "sim": on_sim,
    **{f"process-{way}": partial(on_processes, way) for way in process_harness.WAYS},
}


@pytest.fixture(params=DRIVERS.values(), ids=list(DRIVERS))
def run(request: pytest.FixtureRequest, absent: Absent) -> Callable[[Scenario], None]:
    return lambda scenario: request.param(scenario, absent)


Run = Callable[[Scenario], None]


def spec(harness: DriverHarness, behaviour: str = "handles-term", name: str = NAME) -> VmSpec:
    env = ((GUEST, behaviour),)
    return VmSpec(name=name, image=harness.image, cpu_milli=1000, memory_mb=256, env=env)


async def view(driver: VmDriver, name: str = NAME) -> VmView | None:
    return next((vm for vm in await driver.list() if vm.name == name), None)


async def until(harness: DriverHarness, wanted: Callable[[VmView | None], bool]) -> VmView | None:
    async with harness.clock.timeout(120):
        while not wanted(found := await view(harness.driver)):
            await harness.clock.sleep(0.1)
    return found


async def up(harness: DriverHarness, behaviour: str = "handles-term") -> VmView:
    await harness.driver.pull(harness.image)
    await harness.driver.create(spec(harness, behaviour))
    await harness.driver.start(NAME)
    found = await until(harness, lambda vm: vm is not None and vm.state is not VmState.BOOTING)
    assert found is not None
    await harness.listening(NAME)
    return found


async def down(harness: DriverHarness) -> None:
    await harness.driver.stop(NAME, grace=0)
    await harness.driver.delete(NAME)


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


def test_a_vm_that_never_started_can_be_deleted(run: Run) -> None:
    async def scenario(harness: DriverHarness) -> None:
        await harness.driver.pull(harness.image)
        await harness.driver.create(spec(harness))
        await harness.driver.stop(NAME, grace=5)
        await harness.driver.delete(NAME)
        assert await view(harness.driver) is None

    run(scenario)


def test_images_are_pulled_once_listed_and_removed(run: Run) -> None:
    async def scenario(harness: DriverHarness) -> None:
        await harness.driver.pull(harness.image)
        await harness.driver.pull(harness.image)
        assert list(await harness.driver.images()).count(harness.image) == 1
        await harness.driver.remove_image(harness.image)
        assert harness.image not in await harness.driver.images()

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


def test_a_cancelled_pull_can_be_repeated(run: Run) -> None:
    async def scenario(harness: DriverHarness) -> None:
        with pytest.raises(TimeoutError):
            async with harness.clock.timeout(0.01):
                await harness.driver.pull(harness.image)
                await harness.clock.sleep(1)
        await harness.driver.pull(harness.image)
        assert harness.image in await harness.driver.images()

    run(scenario)
