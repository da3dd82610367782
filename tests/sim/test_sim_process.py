"""A kill must leave what `kill -9` leaves: nothing may be tidied up on the way out."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import pytest

from runyard.db.contract import Tx
from runyard.http.messages import Request, Response
from runyard.sim.clock import VirtualClock
from runyard.sim.loop import SimulationError, run_virtual
from runyard.sim.network import Link
from runyard.sim.process import ComponentDied, Process, wrap, wrap_database, wrap_transport
from runyard.sim.trace import Trace

T = TypeVar("T")


class World:
    """What outlives every process: a disk, a database, a peer and a driver."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.trace = Trace(self.clock.monotonic, keep=1000)
        self.did: list[str] = []
        self.process = Process("part", trace=self.trace)
        link = Link("peer", self.peer, rng=random.Random(1), trace=self.trace)
        self.transport = wrap_transport(self.process, link)
        self.database = wrap_database(self.process, self)
        self.disk = wrap(self.process, Disk(self.did), ("write",))
        self.driver = wrap(self.process, Driver(self), ("boot",), kind="vm")
        self.slow = wrap(self.process, Driver(self), ("boot",), kind="vm", detached=("boot",))

    async def peer(self, request: Request) -> Response:
        self.did.append(request.path)
        return Response(status=200)

    async def transact(self, work: Callable[[Tx], Awaitable[T]], *, name: str) -> T:
        self.did.append(name)
        return await work(None)  # type: ignore[arg-type]  # these transactions use no SQL

    async def send(self, path: str) -> None:
        await self.transport.send(Request(method="POST", path=path), timeout=10)


class Disk:
    def __init__(self, did: list[str]) -> None:
        self.did = did
        self.size = 42

    def write(self, what: str) -> str:
        self.did.append(what)
        if what == "full":
            raise OSError("no space")
        return f"wrote {what}"


class Driver:
    def __init__(self, world: World) -> None:
        self.world = world

    async def boot(self, name: str) -> None:
        self.world.did.append(f"boot {name}")
        await self.world.clock.sleep(10)
        self.world.did.append(f"booted {name}")


async def nothing(_: Tx) -> None:
    pass


async def part(world: World) -> None:
    """Four effects, each of which a finally tries to undo."""
    try:
        await world.send("/one")
        await world.database.transact(nothing, name="two")
        world.disk.write("three")
        await world.driver.boot("four")
        await world.clock.sleep(1e6)
    finally:
        try:
            world.disk.write("tidy disk")
        finally:
            try:
                await world.database.transact(nothing, name="tidy database")
            finally:
                await world.send("/tidy")


EVERYTHING = ["/one", "two", "three", "boot four", "booted four"]


def simulate(scenario: Callable[[World], Coroutine[Any, Any, None]]) -> list[str]:
    async def main() -> list[str]:
        world = World()
        await scenario(world)
        return list(world.did)

    return run_virtual(main())


@pytest.mark.parametrize(
    ("effect", "when", "left"),
    [
        (1, "before", 0),
        (1, "after", 1),
        (2, "before", 1),
        (2, "after", 2),
        (3, "before", 2),
        (3, "after", 3),
        (4, "before", 3),
        (4, "after", 5),
    ],
    ids=str,
)
def test_nothing_is_tidied_up_after_a_crash_at_any_effect(
    effect: int, when: Any, left: int
) -> None:
    async def scenario(world: World) -> None:
        world.process.crash_at(effect, when=when)
        world.process.start(lambda: part(world))
        await world.clock.sleep(100)
        assert not world.process.alive
        assert world.process.effects == effect
        assert world.process.failure is None

    assert simulate(scenario) == EVERYTHING[:left]


def test_a_kill_between_effects_tidies_nothing_up_and_a_restart_does_it_all_again() -> None:
    async def scenario(world: World) -> None:
        world.process.start(lambda: part(world))
        await world.clock.sleep(5)  # the VM is booting
        world.process.crash()
        world.process.crash()  # killing the dead is nothing
        await world.clock.sleep(100)
        assert world.did == EVERYTHING[:4]
        world.process.restart()
        await world.clock.sleep(100)
        assert world.process.alive
        assert world.process.starts == 2
        world.process.restart()
        await world.clock.sleep(100)
        assert world.process.starts == 3

    assert simulate(scenario) == EVERYTHING[:4] + EVERYTHING + EVERYTHING


def test_what_lingers_of_an_old_life_cannot_act_in_a_new_one() -> None:
    async def lingering(world: World) -> None:
        try:
            await world.clock.sleep(1e6)
        finally:
            await world.clock.sleep(50)  # the new life has begun by now
            await world.send("/ghost")

    async def scenario(world: World) -> None:
        world.process.start(lambda: lingering(world))
        await world.clock.sleep(1)
        world.process.crash()
        world.process.start(lambda: part(world))
        await world.clock.sleep(100)

    assert simulate(scenario) == EVERYTHING


def test_children_die_even_if_their_parent_hangs_in_its_finally() -> None:
    async def child(world: World) -> None:
        while True:
            await world.clock.sleep(1)
            world.did.append("tick")

    async def parent(world: World) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(child(world))
            try:
                await world.clock.sleep(1e6)
            finally:
                await world.send("/never")

    async def scenario(world: World) -> None:
        world.process.start(lambda: parent(world))
        await world.clock.sleep(2.5)
        world.process.crash()
        await world.clock.sleep(100)

    assert simulate(scenario) == ["tick", "tick"]


def test_a_crash_from_its_own_sync_code_stops_it_at_the_next_await() -> None:
    async def suicidal(world: World) -> None:
        world.process.crash()
        try:
            await world.send("/one")
        except Exception:  # noqa: BLE001 - as careless code would
            world.did.append("caught")
        world.did.append("went on")

    async def scenario(world: World) -> None:
        world.process.start(lambda: suicidal(world))
        await world.clock.sleep(1)

    assert simulate(scenario) == []


def test_a_sync_effect_of_the_dead_is_not_an_ordinary_exception() -> None:
    async def careless(world: World) -> None:
        world.process.crash()
        try:
            world.disk.write("no")
        except Exception:  # noqa: BLE001 - as careless code would
            world.did.append("caught")

    async def scenario(world: World) -> None:
        world.process.start(lambda: careless(world))
        await world.clock.sleep(1)

    assert simulate(scenario) == []


def test_detached_work_of_the_world_goes_on_without_the_process() -> None:
    async def boots(world: World) -> None:
        await world.slow.boot("vm")

    async def scenario(world: World) -> None:
        world.process.start(lambda: boots(world))
        await world.clock.sleep(5)
        world.process.crash()
        await world.clock.sleep(100)

    assert simulate(scenario) == ["boot vm", "booted vm"]


def test_a_failing_effect_can_be_a_crash_point_too() -> None:
    async def writes(world: World) -> None:
        try:
            world.disk.write("full")
        except OSError:
            world.did.append("handled")

    async def scenario(world: World) -> None:
        world.process.crash_at(1, when="after")
        world.process.start(lambda: writes(world))
        await world.clock.sleep(1)
        assert not world.process.alive

    assert simulate(scenario) == ["full"]


def test_other_attributes_and_results_pass_through_a_wrapper() -> None:
    async def reads(world: World) -> None:
        world.did.append(f"{world.disk.size} {world.disk.write('x')}")

    async def scenario(world: World) -> None:
        world.process.start(lambda: reads(world))
        await world.clock.sleep(1)

    assert simulate(scenario) == ["x", "42 wrote x"]


def test_a_part_that_dies_by_itself_fails_the_run_with_its_traceback() -> None:
    async def buggy(world: World) -> None:
        await world.clock.sleep(3)
        raise KeyError("bug")

    async def scenario(world: World) -> None:
        world.process.start(lambda: buggy(world))
        await world.clock.sleep(100)

    with pytest.raises(ComponentDied, match="bug") as caught:
        simulate(scenario)
    cause = caught.value.__cause__
    assert isinstance(cause, KeyError)
    assert cause.__traceback__ is not None


def test_an_expected_exit_can_be_supervised() -> None:
    class LeaseLost(Exception):
        pass

    async def scenario(world: World) -> None:
        async def brief() -> None:
            world.did.append("up")
            await world.clock.sleep(10)
            raise LeaseLost

        process = Process("leader", trace=world.trace, expected_exits=(LeaseLost,))
        process.on_exit(process.restart)
        process.start(brief)
        await world.clock.sleep(25)
        assert process.alive
        assert isinstance(process.failure, LeaseLost)

    assert simulate(scenario) == ["up", "up", "up"]


def test_a_part_that_is_cancelled_by_nobody_fails_the_run() -> None:
    async def confused(world: World) -> None:
        raise asyncio.CancelledError

    async def scenario(world: World) -> None:
        world.process.start(lambda: confused(world))
        await world.clock.sleep(1)

    with pytest.raises(ComponentDied):
        simulate(scenario)


def test_exceptions_in_the_remains_of_the_killed_do_not_fail_the_run() -> None:
    async def sore(world: World) -> None:
        try:
            await world.clock.sleep(1e6)
        finally:
            raise ValueError("broken on the way out")

    async def scenario(world: World) -> None:
        world.process.start(lambda: sore(world))
        await world.clock.sleep(1)
        world.process.crash()
        await world.clock.sleep(1)

    assert simulate(scenario) == []


def test_starting_what_runs_is_refused() -> None:
    async def scenario(world: World) -> None:
        world.process.start(lambda: part(world))
        with pytest.raises(SimulationError, match="already"):
            world.process.start(lambda: part(world))

    simulate(scenario)


def test_a_run_with_crashes_replays() -> None:
    def digest(seed: int) -> str:
        async def main() -> str:
            world = World()
            world.process.crash_at(3, when="after")
            world.process.start(lambda: part(world))
            await world.clock.sleep(20)
            world.process.restart()
            await world.clock.sleep(20)
            return world.trace.digest()

        return run_virtual(main(), seed=seed)

    assert digest(5) == digest(5)
