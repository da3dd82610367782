"""Every driver keeps the contract: the same suite for each way to run a VM.

A driver joins by an entry in `DRIVERS`: a *bench* that gives a fresh driver, an image that can be pulled,
guests that end by themselves with a code, that stay until they are asked, and that ignore being asked; and a
way to run a scenario (on virtual time where the driver has it). An entry may find that the machine lacks what it
needs; then it says so.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Protocol

import pytest
from tests.conftest import Absent
from tests.vm import processbench

from runyard.clock import Clock
from runyard.sim.clock import VirtualClock
from runyard.sim.driver import Host, SimDriver
from runyard.sim.loop import run_virtual
from runyard.vm.contract import DriverFailed, ImageMissing, VmDriver, VmSpec, VmState, VmView

GUEST = "GUEST"  # the variable that tells a bench's guest how to behave
NAME = "pod-1-uid-1"


class Bench(Protocol):
    """What the suite needs around a driver."""

    clock: Clock
    driver: VmDriver
    image: str
    missing_image: str

    def reopened(self) -> VmDriver:
        """The driver as a restarted agent would find it."""
        ...

    async def listening(self, name: str) -> None:
        """Return when the guest is so far that it hears, or ignores, a wish to end; ended is so far, too."""
        ...


class SimBench:
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
            if behaviour != "polite":
                await self.clock.sleep(3600)  # deaf; only the power-off ends this
        return 0


class VmOfProcesses(processbench.ProcessBench):
    """VMs that are processes. Their guest says that it listens in a file."""

    BOOT = """#!/bin/sh
behaviour=$(sed -n 's/^GUEST=//p' "$RUNYARD_ENV_DIR/tuist.env")
case $behaviour in
"exit "*)
    echo "${behaviour#exit }" >"$RUNYARD_STATUS_DIR/runner-rc"
    exit 0
    ;;
polite) trap 'echo 0 >"$RUNYARD_STATUS_DIR/runner-rc"; exit 0' TERM ;;
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


Scenario = Callable[[Bench], Coroutine[Any, Any, None]]


def on_sim(scenario: Scenario, absent: Absent) -> None:
    async def main() -> None:
        await scenario(SimBench())

    run_virtual(main())


def on_processes(way: processbench.Way, scenario: Scenario, absent: Absent) -> None:
    isolation = processbench.isolation(way)
    if isinstance(isolation, str):
        absent(f"a machine for VMs as processes, {way}", isolation)

    async def main(bench: processbench.ProcessBench) -> None:
        bench.put_image(VmOfProcesses.BOOT)
        await scenario(VmOfProcesses(bench.root, bench.isolation))

    processbench.run_on(isolation, main)


DRIVERS: dict[str, Callable[[Scenario, Absent], None]] = {
    "sim": on_sim,
    **{f"process-{way}": partial(on_processes, way) for way in processbench.WAYS},
}


@pytest.fixture(params=DRIVERS.values(), ids=list(DRIVERS))
def run(request: pytest.FixtureRequest, absent: Absent) -> Callable[[Scenario], None]:
    return lambda scenario: request.param(scenario, absent)


Run = Callable[[Scenario], None]


def spec(bench: Bench, behaviour: str = "polite", name: str = NAME) -> VmSpec:
    env = ((GUEST, behaviour),)
    return VmSpec(name=name, image=bench.image, cpu_milli=1000, memory_mb=256, env=env)


async def view(driver: VmDriver, name: str = NAME) -> VmView | None:
    return next((vm for vm in await driver.list() if vm.name == name), None)


async def until(bench: Bench, wanted: Callable[[VmView | None], bool]) -> VmView | None:
    async with bench.clock.timeout(120):
        while not wanted(found := await view(bench.driver)):
            await bench.clock.sleep(0.1)
    return found


async def up(bench: Bench, behaviour: str = "polite") -> VmView:
    await bench.driver.pull(bench.image)
    await bench.driver.create(spec(bench, behaviour))
    await bench.driver.start(NAME)
    found = await until(bench, lambda vm: vm is not None and vm.state is not VmState.BOOTING)
    assert found is not None
    await bench.listening(NAME)
    return found


async def down(bench: Bench) -> None:
    await bench.driver.stop(NAME, grace=0)
    await bench.driver.delete(NAME)


def test_a_vm_lives_once_and_its_end_stays_listed_until_it_is_deleted(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.driver.pull(bench.image)
        await bench.driver.create(spec(bench, "exit 0"))
        assert (await view(bench.driver)) == VmView(name=NAME, state=VmState.STOPPED)
        await bench.driver.start(NAME)
        ended = await until(bench, lambda vm: vm is not None and vm.state is VmState.EXITED)
        assert ended is not None and ended.exit_code == 0 and ended.finished_at is not None
        found = await view(bench.reopened())
        assert found == ended
        with pytest.raises(DriverFailed):
            await bench.driver.start(NAME)
        await bench.driver.delete(NAME)
        assert await view(bench.driver) is None

    run(scenario)


def test_a_guests_own_exit_code_is_reported(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        await up(bench, "exit 42")
        ended = await until(bench, lambda vm: vm is not None and vm.state is VmState.EXITED)
        assert ended is not None and ended.exit_code == 42
        await down(bench)

    run(scenario)


def test_a_running_vm_has_an_address_and_cannot_be_deleted(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        running = await up(bench)
        assert running.state is VmState.RUNNING and running.address
        with pytest.raises(DriverFailed):
            await bench.driver.delete(NAME)
        usage = await bench.driver.disk_usage(NAME)
        assert usage is None or 0 <= usage <= 100
        await down(bench)

    run(scenario)


def test_starting_twice_is_one_start(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        first = await up(bench)
        await bench.driver.start(NAME)
        assert await view(bench.driver) == first
        await down(bench)

    run(scenario)


def test_creating_twice_keeps_the_first(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        running = await up(bench)
        await bench.driver.create(spec(bench, "exit 1"))
        assert await view(bench.driver) == running
        await down(bench)

    run(scenario)


def test_tearing_down_what_is_not_there_is_success(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        for _ in range(2):
            await bench.driver.stop("nobody", grace=1)
            await bench.driver.delete("nobody")
            await bench.driver.remove_image(bench.missing_image)
        await up(bench)
        for _ in range(2):
            await bench.driver.stop(NAME, grace=30)
        for _ in range(2):
            await bench.driver.delete(NAME)
        assert await view(bench.driver) is None

    run(scenario)


def test_a_polite_guest_ends_before_its_grace_period_is_over(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        await up(bench, "polite")
        began = bench.clock.monotonic()
        await bench.driver.stop(NAME, grace=60)
        assert bench.clock.monotonic() - began < 30
        ended = await view(bench.driver)
        assert ended is not None and ended.state is VmState.EXITED
        await bench.driver.delete(NAME)

    run(scenario)


@pytest.mark.slow
def test_a_deaf_guest_is_powered_off_after_its_grace_period(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        await up(bench, "deaf")
        began = bench.clock.monotonic()
        await bench.driver.stop(NAME, grace=2)
        assert bench.clock.monotonic() - began >= 2
        ended = await view(bench.driver)
        assert ended is not None and ended.state is VmState.EXITED
        assert ended.exit_code is None and ended.exit_reason
        await bench.driver.delete(NAME)

    run(scenario)


def test_a_vm_that_never_started_can_be_deleted(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.driver.pull(bench.image)
        await bench.driver.create(spec(bench))
        await bench.driver.stop(NAME, grace=5)
        await bench.driver.delete(NAME)
        assert await view(bench.driver) is None

    run(scenario)


def test_images_are_pulled_once_listed_and_removed(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.driver.pull(bench.image)
        await bench.driver.pull(bench.image)
        assert list(await bench.driver.images()).count(bench.image) == 1
        await bench.driver.remove_image(bench.image)
        assert bench.image not in await bench.driver.images()

    run(scenario)


FAILURES: dict[str, Callable[[Bench], Awaitable[None]]] = {
    "pull": lambda bench: bench.driver.pull(bench.missing_image),
    "create": lambda bench: bench.driver.create(
        VmSpec(name=NAME, image=bench.missing_image, cpu_milli=1, memory_mb=1)
    ),
}


@pytest.mark.parametrize("attempt", FAILURES.values(), ids=list(FAILURES))
def test_an_image_that_does_not_exist_is_called_missing(
    run: Run, attempt: Callable[[Bench], Awaitable[None]]
) -> None:
    async def scenario(bench: Bench) -> None:
        with pytest.raises(ImageMissing):
            await attempt(bench)
        assert await view(bench.driver) is None

    run(scenario)


def test_starting_what_does_not_exist_is_a_failure(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        with pytest.raises(DriverFailed):
            await bench.driver.start("nobody")

    run(scenario)


def test_a_cancelled_pull_can_be_begun_again(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        with pytest.raises(TimeoutError):
            async with bench.clock.timeout(0.01):
                await bench.driver.pull(bench.image)
                await bench.clock.sleep(1)
        await bench.driver.pull(bench.image)
        assert bench.image in await bench.driver.images()

    run(scenario)
