"""What every case of the driver contract uses."""

from collections.abc import Callable
from typing import Protocol

import pytest
from tests.vm.contract.offers import GUEST, NAME, Capability, DriverHarness, Scenario

from runyard.vm.contract import VmDriver, VmSpec, VmState, VmView

LACKS = "lacks: "  # how a reason begins by which a case is counted as one that a driver lacks


class Run(Protocol):
    """Runs a scenario on a new host; `small`: on a disk that can be filled, where the harness can be put on one."""

    def __call__(self, scenario: Scenario, *, small: bool = False) -> None: ...


def need(harness: DriverHarness, capability: Capability) -> None:
    """Skip, and be counted, where the driver has declared that it cannot do this."""
    why = harness.lacks.get(capability)
    if why is not None:
        pytest.skip(f"{LACKS}{capability.value} ({why})")


def spec(
    harness: DriverHarness, behaviour: str = "handles-term", name: str = NAME, *, token: str = ""
) -> VmSpec:
    return VmSpec(
        name=name,
        image=harness.image,
        cpu_milli=4000,
        memory_mb=8192,
        env=((GUEST, behaviour),),
        token=token,
    )


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
