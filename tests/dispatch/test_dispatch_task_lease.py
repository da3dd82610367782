"""Leases: N replicas do not call GitHub N times as often, and a dead one does not stop the others."""

from collections.abc import Awaitable, Callable

import pytest

from runyard.db.contract import Unavailable
from runyard.db.inline import InlineDatabase
from runyard.dispatch.task_lease import TaskLease
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
        replicas = [TaskLease(database, holder=f"server-{number}") for number in range(3)]
        done = []
        for _ in range(30):
            for number, turns in enumerate(replicas):
                if await turns.acquire("audit", every=60.0):
                    done.append((clock.now(), number))
            await clock.sleep(20)
        assert {number for _, number in done} == {0}  # renewed in time
        assert await replicas[1].acquire("ghosts", every=60.0)  # another task has another lease

    run(database_url, scenario)


def test_an_expired_lease_is_taken_by_another_replica(database_url: str) -> None:
    async def scenario(database: InlineDatabase, clock: VirtualClock) -> None:
        first, second = TaskLease(database, holder="a"), TaskLease(database, holder="b")
        assert await first.acquire("audit", every=60.0)
        await clock.sleep(59)
        assert not await second.acquire("audit", every=60.0)
        await clock.sleep(1)
        assert await second.acquire("audit", every=60.0)
        assert not await first.acquire("audit", every=60.0)

    run(database_url, scenario)


def test_without_a_database_no_lease_is_taken(database_url: str) -> None:
    async def scenario(database: InlineDatabase, clock: VirtualClock) -> None:
        database.down = True
        with pytest.raises(Unavailable):
            await TaskLease(database, holder="a").acquire("audit", every=60.0)

    run(database_url, scenario)
