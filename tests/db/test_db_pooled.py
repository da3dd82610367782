"""The pooled database: conflicts, deadlines, and a connection that is left as it was found."""

import asyncio
import random

import psycopg
import pytest
from tests.db.dbsupport import FrozenClock, make_table, states

from runyard.db.contract import Constraint, Tx, Unavailable
from runyard.db.pooled import PooledDatabase, open_pool


@pytest.fixture
def url(database_url: str) -> str:
    make_table(database_url)
    return database_url


async def set_running(tx: Tx) -> int:
    return await tx.run("UPDATE chores SET state = 'running' WHERE id = 1")


def conflicting(url: str, runs: list[str], *, conflicts: int) -> object:
    """A serializable transaction whose row another one changes under its feet, `conflicts` times."""

    async def work(tx: Tx) -> int:
        await tx.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await tx.one("SELECT state FROM chores WHERE id = 1")
        runs.append("run")
        if len(runs) <= conflicts:
            with psycopg.connect(url, autocommit=True) as other:
                other.execute("UPDATE chores SET due = statement_timestamp() WHERE id = 1")
        return await set_running(tx)

    return work


def test_a_serialization_failure_runs_the_transaction_again(url: str) -> None:
    clock = FrozenClock()
    runs: list[str] = []
    seen: list[tuple[str, str]] = []
    rng = random.Random(3)

    async def scenario() -> int:
        async with open_pool(
            url, clock=clock, rng=rng, observe=lambda name, outcome, _: seen.append((name, outcome))
        ) as database:
            return await database.transact(conflicting(url, runs, conflicts=2), name="claim")  # type: ignore[arg-type]  # built above

    assert asyncio.run(scenario()) == 1
    assert len(runs) == 3
    assert states(url)[1] == "running"
    assert seen == [("claim", "conflict"), ("claim", "conflict"), ("claim", "committed")]
    twin = random.Random(3)
    assert clock.slept == [twin.uniform(0, 0.02), twin.uniform(0, 0.04)]


def test_conflicts_without_end_are_given_up(url: str) -> None:
    runs: list[str] = []

    async def scenario() -> None:
        async with open_pool(
            url, clock=FrozenClock(), rng=random.Random(1), attempts=3
        ) as database:
            await database.transact(conflicting(url, runs, conflicts=99), name="claim")  # type: ignore[arg-type]  # built above

    with pytest.raises(Unavailable, match="claim: gave up after 3 conflicts"):
        asyncio.run(scenario())
    assert len(runs) == 3
    assert states(url)[1] == "queued"


def test_two_transactions_that_lock_in_opposite_order_both_end(url: str) -> None:
    async def scenario() -> None:
        gates = {1: asyncio.Event(), 2: asyncio.Event()}

        async def lock(database: PooledDatabase, first: int, second: int) -> None:
            async def work(tx: Tx) -> None:
                for row in (first, second):
                    await tx.one("SELECT id FROM chores WHERE id = %(id)s FOR UPDATE", id=row)
                    gates[first].set()
                    await gates[second].wait()  # both hold their first row, so they must collide
                await tx.run("UPDATE chores SET state = 'running' WHERE id = %(id)s", id=first)

            await database.transact(work, name=f"lock {first}")

        clock = FrozenClock()
        pool = open_pool(url, clock=clock, rng=random.Random(1), min_size=2)
        async with pool as database, asyncio.TaskGroup() as group:
            group.create_task(lock(database, 1, 2))
            group.create_task(lock(database, 2, 1))
        assert len(clock.slept) == 1, "exactly one of the two was the victim and ran again"

    asyncio.run(scenario())
    assert states(url) == {1: "running", 2: "running"}


def test_a_statement_past_the_deadline_is_cancelled_by_the_server(url: str) -> None:
    async def slow(tx: Tx) -> None:
        await set_running(tx)
        await tx.one("SELECT pg_sleep(60)")

    async def scenario() -> None:
        async with open_pool(
            url, clock=FrozenClock(), rng=random.Random(1), deadline=0.5
        ) as database:
            with pytest.raises(Unavailable, match="statement timeout"):
                await database.transact(slow, name="slow")
            assert await database.transact(set_running, name="quick") == 1

    asyncio.run(scenario())


def test_a_cancelled_transaction_is_rolled_back_and_frees_its_locks(url: str) -> None:
    async def scenario() -> None:
        holding = asyncio.Event()

        async def hold(tx: Tx) -> None:
            await set_running(tx)
            holding.set()
            await asyncio.Event().wait()

        async with open_pool(url, clock=FrozenClock(), rng=random.Random(1)) as database:
            async with asyncio.TaskGroup() as group:
                task = group.create_task(database.transact(hold, name="hold"))
                await holding.wait()
                task.cancel()
            assert await database.transact(set_running, name="next") == 1

    asyncio.run(scenario())


def test_transactions_that_find_no_free_connection_are_unavailable(url: str) -> None:
    async def scenario() -> None:
        pool = open_pool(
            url, clock=FrozenClock(), rng=random.Random(1), max_size=1, patience=1.0, attempts=1
        )
        async with pool as database:

            async def outer(tx: Tx) -> None:
                await tx.one("SELECT 1 AS x")
                await database.transact(set_running, name="inner")

            with pytest.raises(Unavailable, match="inner: no connection"):
                await database.transact(outer, name="outer")

    asyncio.run(scenario())


STATE = """
SELECT (SELECT json_agg(json_build_array(name, setting) ORDER BY name) FROM pg_settings)::text AS settings,
       (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()) AS locks,
       (SELECT count(*) FROM pg_listening_channels()) AS channels,
       pg_backend_pid() AS pid
"""


def test_nothing_of_a_transaction_stays_on_its_connection(url: str) -> None:
    async def mixed(tx: Tx) -> None:
        await set_running(tx)
        for number in range(20):  # more often than any threshold for preparing a statement
            await tx.one("SELECT %(n)s::int AS n, runyard_now() AS now", n=number)

    async def failing(tx: Tx) -> None:
        await tx.run("INSERT INTO chores (id, state) VALUES (1, 'queued')")

    async def scenario() -> None:
        pool = open_pool(url, clock=FrozenClock(), rng=random.Random(1), max_size=1)
        async with pool as database:

            async def look() -> object:
                async with database._pool.connection() as link:
                    return await (await link.execute(STATE)).fetchone()

            before = await look()
            await database.transact(mixed, name="mixed")
            with pytest.raises(Constraint):
                await database.transact(failing, name="failing")
            assert await look() == before

    asyncio.run(scenario())


def test_limits_hold_inside_of_the_transaction_only(url: str) -> None:
    async def limits(tx: Tx) -> tuple[object, object]:
        return (
            await tx.one("SHOW statement_timeout"),
            await tx.one("SHOW idle_in_transaction_session_timeout"),
        )

    async def scenario() -> object:
        pool = open_pool(url, clock=FrozenClock(), rng=random.Random(1), deadline=7)
        async with pool as database:
            return await database.transact(limits, name="limits")

    assert asyncio.run(scenario()) == (
        {"statement_timeout": "7s"},
        {"idle_in_transaction_session_timeout": "7s"},
    )
