"""Turns: N replicas must not cost GitHub N times as much, and a dead one must not stop the others."""

from collections.abc import Awaitable, Callable

import pytest

from runyard.db.contract import Unavailable
from runyard.db.inline import InlineDatabase
from runyard.dispatch.turns import Turns
from runyard.sim.clock import VirtualClock
from runyard.sim.loop import run_virtual

Scenario = Callable[[InlineDatabase, VirtualClock], Awaitable[None]]


def run(url: str, scenario: Scenario) -> None:
    async def main() -> None:
        clock = VirtualClock()
        with InlineDatabase(url, clock=clock) as database:
            await scenario(database, clock)

    run_virtual(main(), seed=1)


def test_one_replica_at_a_time(database_url: str) -> None:
    async def scenario(database: InlineDatabase, clock: VirtualClock) -> None:
        replicas = [Turns(database, holder=f"server-{number}") for number in range(3)]
        done = []
        for _ in range(30):
            for number, turns in enumerate(replicas):
                if await turns.mine("audit", every=60.0):
                    done.append((clock.now(), number))
            await clock.sleep(20)
        assert {number for _, number in done} == {0}  # it comes back in time, so it keeps it
        assert await replicas[1].mine("ghosts", every=60.0)  # another task is another turn

    run(database_url, scenario)


def test_a_replica_that_does_not_come_back_is_followed_by_another(database_url: str) -> None:
    async def scenario(database: InlineDatabase, clock: VirtualClock) -> None:
        first, second = Turns(database, holder="a"), Turns(database, holder="b")
        assert await first.mine("audit", every=60.0)
        await clock.sleep(59)
        assert not await second.mine("audit", every=60.0)
        await clock.sleep(1)
        assert await second.mine("audit", every=60.0)
        assert not await first.mine("audit", every=60.0)

    run(database_url, scenario)


def test_without_a_database_nobody_has_a_turn(database_url: str) -> None:
    async def scenario(database: InlineDatabase, clock: VirtualClock) -> None:
        database.down = True
        with pytest.raises(Unavailable):
            await Turns(database, holder="a").mine("audit", every=60.0)

    run(database_url, scenario)
