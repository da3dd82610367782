"""What a host's driver can suffer reaches the fleet: its Node says so, and its siblings and its jobs go on."""

from collections.abc import Callable

import msgspec
import pytest

from runyard.sim.driver import GB
from runyard.sim.fleet import Fleet
from runyard.sim.hosts import SimHost
from runyard.sim.run import Stage, rest
from runyard.sim.shape import Shape

SMALL = Shape(seed=7, hours=0.2, hosts=2, rolls_per_day=0.0, scales_per_day=0.0)


def condition(fleet: Fleet, host: SimHost, kind: str) -> str:
    node = fleet.kube.find("nodes", "", host.name) or {}
    found = node.get("status", {}).get("conditions", ())
    return next((str(each["status"]) for each in found if each["type"] == kind), "")


async def until(fleet: Fleet, wanted: Callable[[], bool], *, within: float) -> float:
    """Wait, and return how long it took."""
    began = fleet.clock.monotonic()
    async with fleet.clock.timeout(within):
        while not wanted():
            await fleet.clock.sleep(1.0)
    return fleet.clock.monotonic() - began


@pytest.mark.slow
def test_a_driver_that_hangs_and_disks_that_fill_up_are_seen_at_the_node(stage: Stage) -> None:
    async def play(fleet: Fleet) -> None:
        one, other = fleet.hosts.values()
        await until(fleet, lambda: one.running() + other.running() == 4, within=600)
        runs = list(one.driver.history)
        one.driver.stand_still()
        await until(fleet, lambda: condition(fleet, one, "Ready") == "Unknown", within=300)
        assert condition(fleet, other, "Ready") == "True"
        one.driver.stand_still(False)
        await until(fleet, lambda: condition(fleet, one, "Ready") == "True", within=120)
        one.driver.grow_disks(2000.0)
        await until(fleet, lambda: condition(fleet, one, "DiskPressure") == "True", within=300)
        assert condition(fleet, other, "DiskPressure") == "False"
        one.driver.grow_disks(0.0)
        await until(fleet, lambda: condition(fleet, one, "DiskPressure") == "False", within=120)
        assert one.driver.history == runs, "no VM was lost or started again"
        await rest(fleet)

    outcome = stage.play(SMALL, play)
    assert outcome.ok, outcome.failure


@pytest.mark.slow
def test_all_hosts_share_one_uplink_and_a_pull_that_stalls_delays_its_host_alone(
    stage: Stage,
) -> None:
    seconds: list[float] = []

    async def play(fleet: Fleet) -> None:
        one, other = fleet.hosts.values()
        one.driver.stall_pulls()
        seconds.append(await until(fleet, lambda: other.running() == 2, within=3600))
        assert one.running() == 0
        one.driver.stall_pulls(False)
        await until(fleet, lambda: one.running() == 2, within=3600)
        await rest(fleet)

    for uplink in (0.5 * GB, 0.05 * GB):  # the line of a host carries 0.25
        outcome = stage.play(msgspec.structs.replace(SMALL, uplink=uplink), play)
        assert outcome.ok, outcome.failure
    fast, slow = seconds
    assert slow > fast + 200  # 20 GB at a fifth of the rate, or less
