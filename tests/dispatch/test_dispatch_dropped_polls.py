"""A runner whose poll was cut off is not idle from that moment, and asks for work again as soon as it polls again."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest
from tests.dispatch.dispatchharness import Guest, Harness, play

from runyard.components import server
from runyard.components.wiring.server import Wired
from runyard.db.contract import Database, Tx, Unavailable
from runyard.dispatch.matching.values import Hold
from runyard.embedded.github.identity import KeyPair
from runyard.http.messages import Request, Response
from runyard.wire.paths import DISPATCH

T = TypeVar("T")


class Transactions:
    """A database that records each round trip: the transaction's name, and how many statements it sent."""

    def __init__(self, inner: Database) -> None:
        self._inner = inner
        self.sent: list[str] = []
        self._sending = False  # a call that another one makes is part of it

    async def transact(self, work: Callable[[Tx], Awaitable[T]], *, name: str) -> T:
        async def counted(tx: Tx) -> T:
            for method in ("all", "one", "run", "several", "read", "finish"):
                setattr(tx, method, self._counting(getattr(tx, method), name))
            return await work(tx)

        return await self._inner.transact(counted, name=name)

    def _counting(self, send: Callable[..., Awaitable[T]], name: str) -> Callable[..., object]:
        async def sending(*args: object, **params: object) -> T:
            if self._sending:
                return await send(*args, **params)
            self.sent.append(f"{name}: {len(args)}")
            self._sending = True
            try:
                return await send(*args, **params)
            finally:
                self._sending = False

        return sending


async def cut_off(harness: Harness, guest: Guest) -> None:
    """Poll, and cut the connection while the poll waits."""
    async with harness.waiting(guest):
        pass


async def idle(harness: Harness) -> bool:
    """Whether explain and the dashboard count a runner as idle."""
    job = await harness.queued()
    found = await harness.server.matcher.preview()
    harness.execute("UPDATE jobs SET state = 'done' WHERE job_id = %s", job)
    assert found.proposals or [each.hold for each in found.held] == [Hold.NO_RUNNER]
    return bool(found.proposals)


def test_a_runner_is_idle_until_its_poll_is_cut_off_and_again_when_it_polls_again(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        dropped = harness.server.shared.dropped
        async with harness.waiting(guest):
            await harness.clock.sleep(5)
            assert not dropped.wakeup.is_set() and await idle(harness)
        assert dropped.wakeup.is_set()
        await dropped.step()
        assert not await idle(harness)
        assert harness.slot(guest)["state"] == "idle", "only what counts as idle has changed"
        async with harness.waiting(guest):
            assert await idle(harness)

    play(scenario, database_url, app_keys)


def test_an_answered_poll_is_not_taken_for_one_that_was_cut_off(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        assert (await harness.poll(guest, wait=20.0)).status == 204
        dropped = harness.server.shared.dropped
        await dropped.step()
        assert not dropped.wakeup.is_set() and harness.slot(guest)["dropped_beat"] is None
        assert await idle(harness)

    play(scenario, database_url, app_keys)


@asynccontextmanager
async def polling(harness: Harness, replica: Wired, guest: Guest) -> AsyncIterator[None]:
    headers = (("authorization", f"Bearer {guest.token}"), ("prefer", "wait=25"))
    request = Request(method="POST", path=DISPATCH, headers=headers, body=b"{}")
    task = asyncio.ensure_future(replica.intake.api.handle(request))
    await harness.clock.sleep(0.01)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("where", ["at the same replica", "at another replica"])
def test_a_connection_whose_end_is_noticed_late_hides_no_runner_that_has_polled_again(
    database_url: str, app_keys: KeyPair, where: str
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        other = harness.server
        if where == "at another replica":
            other = server.wire(harness.deps(name="server-2"))
        async with polling(harness, harness.server, guest):
            await harness.clock.sleep(5)
            again = polling(harness, other, guest)
            await again.__aenter__()
            await harness.clock.sleep(3)
        await harness.server.shared.dropped.step()
        assert await idle(harness), "its second poll is open"
        await again.__aexit__(None, None, None)
        await other.shared.dropped.step()
        assert not await idle(harness)

    play(scenario, database_url, app_keys)


def test_a_job_is_claimed_for_an_open_poll_whatever_the_row_says(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        await harness.queued()
        async with harness.waiting(guest):
            harness.execute("UPDATE slots SET dropped_beat = last_beat")
            await harness.match()
        assert harness.slot(guest)["state"] == "offered"

    play(scenario, database_url, app_keys)


def test_what_could_not_be_recorded_is_recorded_when_the_database_is_back(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        first, second = await harness.pod(1), await harness.pod(2)
        dropped = harness.server.shared.dropped
        await cut_off(harness, first)
        harness.database.down = True
        with pytest.raises(Unavailable):
            await dropped.step()
        harness.database.down = False
        await cut_off(harness, second)
        await dropped.step()
        marked = harness.rows("SELECT count(*) AS n FROM slots WHERE dropped_beat = last_beat")
        assert marked == [{"n": 2}] and not await idle(harness)

    play(scenario, database_url, app_keys)


def test_a_poll_costs_no_statement_more_and_many_that_are_cut_off_cost_one(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        counting = Transactions(harness.database)
        counted = server.wire(harness.deps(database=counting))
        await harness.pool()
        await counted.shared.pools.refresh()
        harness.handle = counted.intake.api.handle
        guests = [await harness.pod(number) for number in range(1, 6)]
        for guest in guests:
            await harness.poll(guest)
        counting.sent.clear()
        assert isinstance(await harness.poll(guests[0], wait=20.0), Response)
        await counted.shared.dropped.step()
        first = last = ["poll: 2", "poll: 2"]  # the read with its lock; the beat with its commit
        assert counting.sent == [*first, *last]
        async with harness.waiting(*guests):
            counting.sent.clear()
        await counted.shared.dropped.step()
        await counted.shared.dropped.step()
        assert counting.sent == ["polls dropped: 2"]
        marked = harness.rows("SELECT count(*) AS n FROM slots WHERE dropped_beat = last_beat")
        assert marked == [{"n": 5}]

    play(scenario, database_url, app_keys)


def test_a_running_server_notices_a_cut_connection_within_two_seconds(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        async with harness.running():
            async with harness.waiting(guest):
                await harness.clock.sleep(7)
                assert await idle(harness)
            await harness.clock.sleep(2)
            assert not await idle(harness)

    play(scenario, database_url, app_keys)
