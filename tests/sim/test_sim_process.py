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


class Harness:
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
    def __init__(self, harness: Harness) -> None:
        self.harness = harness

    async def boot(self, name: str) -> None:
        self.harness.did.append(f"boot {name}")
        await self.harness.clock.sleep(10)
        self.harness.did.append(f"booted {name}")


async def nothing(_: Tx) -> None:
    pass


async def part(harness: Harness) -> None:
    """Four effects, each of which a finally tries to undo."""
    try:
        await harness.send("/one")
        await harness.database.transact(nothing, name="two")
        harness.disk.write("three")
        await harness.driver.boot("four")
        await harness.clock.sleep(1e6)
    finally:
        try:
            harness.disk.write("tidy disk")
        finally:
            try:
                await harness.database.transact(nothing, name="tidy database")
            finally:
                await harness.send("/tidy")


EVERYTHING = ["/one", "two", "three", "boot four", "booted four"]


def simulate(scenario: Callable[[Harness], Coroutine[Any, Any, None]]) -> list[str]:
    async def main() -> list[str]:
        harness = Harness()
        await scenario(harness)
        return list(harness.did)

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
    async def scenario(harness: Harness) -> None:
        harness.process.crash_at(effect, when=when)
        harness.process.start(lambda: part(harness))
        await harness.clock.sleep(100)
        assert not harness.process.alive
        assert harness.process.effects == effect
        assert harness.process.failure is None

    assert simulate(scenario) == EVERYTHING[:left]


def test_a_kill_between_effects_tidies_nothing_up_and_a_restart_does_it_all_again() -> None:
    async def scenario(harness: Harness) -> None:
        harness.process.start(lambda: part(harness))
        await harness.clock.sleep(5)  # the VM is booting
        harness.process.crash()
        harness.process.crash()  # killing the dead is nothing
        await harness.clock.sleep(100)
        assert harness.did == EVERYTHING[:4]
        harness.process.restart()
        await harness.clock.sleep(100)
        assert harness.process.alive
        assert harness.process.starts == 2
        harness.process.restart()
        await harness.clock.sleep(100)
        assert harness.process.starts == 3

    assert simulate(scenario) == EVERYTHING[:4] + EVERYTHING + EVERYTHING


def test_what_lingers_of_an_old_life_cannot_act_in_a_new_one() -> None:
    async def lingering(harness: Harness) -> None:
        try:
            await harness.clock.sleep(1e6)
        finally:
            await harness.clock.sleep(50)  # the new life has begun by now
            await harness.send("/ghost")

    async def scenario(harness: Harness) -> None:
        harness.process.start(lambda: lingering(harness))
        await harness.clock.sleep(1)
        harness.process.crash()
        harness.process.start(lambda: part(harness))
        await harness.clock.sleep(100)

    assert simulate(scenario) == EVERYTHING


def test_children_die_even_if_their_parent_hangs_in_its_finally() -> None:
    async def child(harness: Harness) -> None:
        while True:
            await harness.clock.sleep(1)
            harness.did.append("tick")

    async def parent(harness: Harness) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(child(harness))
            try:
                await harness.clock.sleep(1e6)
            finally:
                await harness.send("/never")

    async def scenario(harness: Harness) -> None:
        harness.process.start(lambda: parent(harness))
        await harness.clock.sleep(2.5)
        harness.process.crash()
        await harness.clock.sleep(100)

    assert simulate(scenario) == ["tick", "tick"]


def test_a_crash_from_its_own_sync_code_stops_it_at_the_next_await() -> None:
    async def suicidal(harness: Harness) -> None:
        harness.process.crash()
        try:
            await harness.send("/one")
        except Exception:  # noqa: BLE001 - as careless code would
            harness.did.append("caught")
        harness.did.append("went on")

    async def scenario(harness: Harness) -> None:
        harness.process.start(lambda: suicidal(harness))
        await harness.clock.sleep(1)

    assert simulate(scenario) == []


def test_a_sync_effect_of_the_dead_is_not_an_ordinary_exception() -> None:
    async def careless(harness: Harness) -> None:
        harness.process.crash()
        try:
            harness.disk.write("no")
        except Exception:  # noqa: BLE001 - as careless code would
            harness.did.append("caught")

    async def scenario(harness: Harness) -> None:
        harness.process.start(lambda: careless(harness))
        await harness.clock.sleep(1)

    assert simulate(scenario) == []


def test_detached_work_of_a_dependency_goes_on_without_the_process() -> None:
    async def boots(harness: Harness) -> None:
        await harness.slow.boot("vm")

    async def scenario(harness: Harness) -> None:
        harness.process.start(lambda: boots(harness))
        await harness.clock.sleep(5)
        harness.process.crash()
        await harness.clock.sleep(100)

    assert simulate(scenario) == ["boot vm", "booted vm"]


def test_a_failing_effect_can_be_a_crash_point_too() -> None:
    async def writes(harness: Harness) -> None:
        try:
            harness.disk.write("full")
        except OSError:
            harness.did.append("handled")

    async def scenario(harness: Harness) -> None:
        harness.process.crash_at(1, when="after")
        harness.process.start(lambda: writes(harness))
        await harness.clock.sleep(1)
        assert not harness.process.alive

    assert simulate(scenario) == ["full"]


def test_other_attributes_and_results_pass_through_a_wrapper() -> None:
    async def reads(harness: Harness) -> None:
        harness.did.append(f"{harness.disk.size} {harness.disk.write('x')}")

    async def scenario(harness: Harness) -> None:
        harness.process.start(lambda: reads(harness))
        await harness.clock.sleep(1)

    assert simulate(scenario) == ["x", "42 wrote x"]


def test_a_part_that_dies_by_itself_fails_the_run_with_its_traceback() -> None:
    async def buggy(harness: Harness) -> None:
        await harness.clock.sleep(3)
        raise KeyError("bug")

    async def scenario(harness: Harness) -> None:
        harness.process.start(lambda: buggy(harness))
        await harness.clock.sleep(100)

    with pytest.raises(ComponentDied, match="bug") as caught:
        simulate(scenario)
    cause = caught.value.__cause__
    assert isinstance(cause, KeyError)
    assert cause.__traceback__ is not None


def test_an_expected_exit_can_be_supervised() -> None:
    class LeaseLost(Exception):
        pass

    async def scenario(harness: Harness) -> None:
        async def brief() -> None:
            harness.did.append("up")
            await harness.clock.sleep(10)
            raise LeaseLost

        process = Process("leader", trace=harness.trace, expected_exits=(LeaseLost,))
        process.on_exit(process.restart)
        process.start(brief)
        await harness.clock.sleep(25)
        assert process.alive
        assert isinstance(process.failure, LeaseLost)

    assert simulate(scenario) == ["up", "up", "up"]


def test_a_part_that_is_cancelled_by_nobody_fails_the_run() -> None:
    async def confused(harness: Harness) -> None:
        raise asyncio.CancelledError

    async def scenario(harness: Harness) -> None:
        harness.process.start(lambda: confused(harness))
        await harness.clock.sleep(1)

    with pytest.raises(ComponentDied):
        simulate(scenario)


def test_exceptions_in_the_remains_of_the_killed_do_not_fail_the_run() -> None:
    async def sore(harness: Harness) -> None:
        try:
            await harness.clock.sleep(1e6)
        finally:
            raise ValueError("broken on the way out")

    async def scenario(harness: Harness) -> None:
        harness.process.start(lambda: sore(harness))
        await harness.clock.sleep(1)
        harness.process.crash()
        await harness.clock.sleep(1)

    assert simulate(scenario) == []


def test_starting_what_runs_is_refused() -> None:
    async def scenario(harness: Harness) -> None:
        harness.process.start(lambda: part(harness))
        with pytest.raises(SimulationError, match="already"):
            harness.process.start(lambda: part(harness))

    simulate(scenario)


def test_a_run_with_crashes_replays() -> None:
    def digest(seed: int) -> str:
        async def main() -> str:
            harness = Harness()
            harness.process.crash_at(3, when="after")
            harness.process.start(lambda: part(harness))
            await harness.clock.sleep(20)
            harness.process.restart()
            await harness.clock.sleep(20)
            return harness.trace.digest()

        return run_virtual(main(), seed=seed)

    assert digest(5) == digest(5)
