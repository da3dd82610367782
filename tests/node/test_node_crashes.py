"""Kills the agent before and after every effect for a Pod; the Pod runs exactly once."""

import random
from pathlib import Path

import pytest
from tests.node.agent_harness import SETTINGS, AgentHarness, changed

from runyard.kube.kinds import PODS
from runyard.sim.driver import Host
from runyard.sim.loop import run_virtual
from runyard.sim.process import When
from runyard.vm.contract import DriverFailed

# Fewer heartbeats between the effects for the Pod.
CALM = changed(lease_every=30.0, heartbeat_every=60.0, probe_every=3600.0)


async def pod_lifecycle(harness: AgentHarness) -> None:
    """Pod → VM → exit 0 → Succeeded → deletion."""
    harness.guests["p"] = 30.0
    harness.start_agent()
    await harness.add_pod("p")
    await harness.until_phase("p", "Succeeded", within=900)
    await harness.delete_pod("p")
    await harness.until_phase("p", "gone", within=900)
    await harness.clock.sleep(30)


async def assert_clean(harness: AgentHarness) -> None:
    assert await harness.driver.list() == (), "no VM is left"
    assert harness.records.load() == {}, "no record is left"
    assert len(harness.driver.history) == 1, "it ran exactly once"
    assert not harness.core.failures


def effects_of_a_pod(directory: Path) -> int:
    async def main() -> int:
        harness = AgentHarness(directory, settings=CALM)
        await pod_lifecycle(harness)
        await assert_clean(harness)
        return harness.agent.effects

    return run_virtual(main())


def crash_once(directory: Path, effect: int, when: When) -> None:
    async def main() -> None:
        harness = AgentHarness(directory, settings=CALM)
        harness.agent.on_crash(harness.supervise)
        harness.agent.crash_at(effect, when=when)
        await pod_lifecycle(harness)
        await assert_clean(harness)

    run_virtual(main())


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_any_effect_neither_loses_nor_repeats_a_run(tmp_path: Path, when: When) -> None:
    count = effects_of_a_pod(tmp_path / "whole")
    assert count > 20, "a Pod's lifecycle has many effects"
    for effect in range(1, count + 1):
        crash_once(tmp_path / f"{effect}", effect, when)


@pytest.mark.slow
def test_an_agent_that_crashes_repeatedly_still_finishes_the_pod(tmp_path: Path) -> None:
    async def main() -> None:
        # A pull of five seconds: one that is lost with each crash must fit between two of them.
        harness = AgentHarness(
            tmp_path, settings=SETTINGS, host=Host(bandwidth=1e9, image_bytes=5e9)
        )
        harness.agent.on_crash(harness.supervise)
        for effect in range(7, 400, 7):
            harness.agent.crash_at(effect, when="after" if effect % 2 else "before")
        await pod_lifecycle(harness)
        await assert_clean(harness)

    run_virtual(main())


FAULTS = ("list", "create", "start", "stop", "delete", "pull", "images", "disk_usage")


async def hour_of_faults(harness: AgentHarness, dice: random.Random) -> None:
    """Create and delete Pods while the driver fails and hangs and the agent is killed and restarted."""
    harness.start_agent()
    alive: dict[str, None] = {}
    for number in range(60):
        await harness.clock.sleep(dice.uniform(5, 90))
        if number < 20:
            name = f"p{number}"
            harness.guests[name] = dice.uniform(10, 600)
            harness.codes[name] = dice.choice((0, 0, 1))
            await harness.add_pod(name, image=f"image-{dice.randrange(3)}")
            alive[name] = None
        if alive and dice.random() < 0.4:
            name = dice.choice(list(alive))
            del alive[name]
            await harness.delete_pod(name, grace=dice.choice((None, 0, 5)))
        if dice.random() < 0.3:
            harness.driver.fail(dice.choice(FAULTS), DriverFailed("fault"), times=2)
        if dice.random() < 0.1:
            harness.driver.hang(dice.choice(FAULTS))
        if dice.random() < 0.3:
            harness.agent.crash()
        if dice.random() < 0.05:
            harness.driver.power_off_host()
    harness.driver.heal()
    for name in alive:
        await harness.delete_pod(name)


def run_faults(directory: Path, seed: int) -> str:
    async def main() -> str:
        host = Host(bandwidth=1e9, image_bytes=20e9, disk=80e9)
        harness = AgentHarness(directory, settings=SETTINGS, host=host, seed=seed)
        harness.agent.on_crash(harness.supervise)
        await hour_of_faults(harness, random.Random(seed))

        async def empty() -> bool:
            return not (await harness.kube.list(PODS)).items

        # The longest delay by a single fault is a pull that hangs.
        await harness.until(empty, within=1500)
        await harness.clock.sleep(60)
        assert await harness.driver.list() == ()
        assert harness.records.load() == {}
        assert len(harness.driver.history) == len(dict.fromkeys(harness.driver.history))
        assert not harness.core.failures
        return harness.trace.digest()

    return run_virtual(main(), seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_random_faults_leave_no_vm_and_run_no_pod_twice(tmp_path: Path, seed: int) -> None:
    run_faults(tmp_path, seed)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_run(tmp_path: Path) -> None:
    assert run_faults(tmp_path / "one", 3) == run_faults(tmp_path / "two", 3)
