"""The agent is killed before and after every single effect of a Pod's life; the Pod runs exactly once."""

import random
from pathlib import Path

import pytest
from tests.node.agentworld import SETTINGS, AgentWorld, changed

from runyard.kube.kinds import PODS
from runyard.sim.driver import Host
from runyard.sim.loop import run_virtual
from runyard.sim.process import When
from runyard.vm.contract import DriverFailed

# Fewer heartbeats between the steps of the life that is looked at.
CALM = changed(lease_every=30.0, heartbeat_every=60.0, probe_every=3600.0)


async def life(world: AgentWorld) -> None:
    """Pod → VM → exit 0 → Succeeded → deletion."""
    world.guests["p"] = 30.0
    world.start_agent()
    await world.add_pod("p")
    await world.until_phase("p", "Succeeded", within=900)
    await world.delete_pod("p")
    await world.until_phase("p", "gone", within=900)
    await world.clock.sleep(30)


async def settle(world: AgentWorld) -> None:
    assert await world.driver.list() == (), "no VM is left"
    assert world.records.load() == {}, "no record is left"
    assert len(world.driver.history) == 1, "it ran exactly once"
    assert not world.core.failures


def effects_of_a_life(directory: Path) -> int:
    async def main() -> int:
        world = AgentWorld(directory, settings=CALM)
        await life(world)
        await settle(world)
        return world.agent.effects

    return run_virtual(main())


def crash_once(directory: Path, effect: int, when: When) -> None:
    async def main() -> None:
        world = AgentWorld(directory, settings=CALM)
        world.agent.on_crash(world.supervise)
        world.agent.crash_at(effect, when=when)
        await life(world)
        await settle(world)

    run_virtual(main())


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_any_effect_neither_loses_nor_repeats_a_run(tmp_path: Path, when: When) -> None:
    count = effects_of_a_life(tmp_path / "whole")
    assert count > 20, "a life has many effects"
    for effect in range(1, count + 1):
        crash_once(tmp_path / f"{effect}", effect, when)


@pytest.mark.slow
def test_an_agent_that_crashes_again_and_again_gets_there(tmp_path: Path) -> None:
    async def main() -> None:
        # A pull of five seconds: one that is lost with each crash must fit between two of them.
        world = AgentWorld(tmp_path, settings=SETTINGS, host=Host(bandwidth=1e9, image_bytes=5e9))
        world.agent.on_crash(world.supervise)
        for effect in range(7, 400, 7):
            world.agent.crash_at(effect, when="after" if effect % 2 else "before")
        await life(world)
        await settle(world)

    run_virtual(main())


FAULTS = ("list", "create", "start", "stop", "delete", "pull", "images", "disk_usage")


async def hour_of_trouble(world: AgentWorld, dice: random.Random) -> None:
    """Pods come and go, the driver fails and hangs, the agent dies and is started again."""
    world.start_agent()
    alive: dict[str, None] = {}
    for number in range(60):
        await world.clock.sleep(dice.uniform(5, 90))
        if number < 20:
            name = f"p{number}"
            world.guests[name] = dice.uniform(10, 600)
            world.codes[name] = dice.choice((0, 0, 1))
            await world.add_pod(name, image=f"image-{dice.randrange(3)}")
            alive[name] = None
        if alive and dice.random() < 0.4:
            name = dice.choice(list(alive))
            del alive[name]
            await world.delete_pod(name, grace=dice.choice((None, 0, 5)))
        if dice.random() < 0.3:
            world.driver.fail(dice.choice(FAULTS), DriverFailed("trouble"), times=2)
        if dice.random() < 0.1:
            world.driver.hang(dice.choice(FAULTS))
        if dice.random() < 0.3:
            world.agent.crash()
        if dice.random() < 0.05:
            world.driver.power_off_host()
    world.driver.heal()
    for name in alive:
        await world.delete_pod(name)


def trouble(directory: Path, seed: int) -> str:
    async def main() -> str:
        host = Host(bandwidth=1e9, image_bytes=20e9, disk=80e9)
        world = AgentWorld(directory, settings=SETTINGS, host=host, seed=seed)
        world.agent.on_crash(world.supervise)
        await hour_of_trouble(world, random.Random(seed))

        async def empty() -> bool:
            return not (await world.kube.list(PODS)).items

        # The longest that one fault can hold things up is a hung pull.
        await world.until(empty, within=1500)
        await world.clock.sleep(60)
        assert await world.driver.list() == ()
        assert world.records.load() == {}
        assert len(world.driver.history) == len(dict.fromkeys(world.driver.history))
        assert not world.core.failures
        return world.trace.digest()

    return run_virtual(main(), seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_an_hour_of_trouble_leaves_nothing_behind_and_runs_nothing_twice(
    tmp_path: Path, seed: int
) -> None:
    trouble(tmp_path, seed)


@pytest.mark.slow
def test_the_same_seed_is_the_same_hour(tmp_path: Path) -> None:
    assert trouble(tmp_path / "one", 3) == trouble(tmp_path / "two", 3)
