"""The pooled database retries conflicts, keeps deadlines and leaves nothing on its connections.

Every test runs in both modes: with a direct connection, and as behind a pooler.
"""

import asyncio
import io
import random
from contextlib import AbstractAsyncContextManager
from typing import Any

import psycopg
import pytest
from tests.db.dbsupport import FrozenClock, make_table, states

from runyard.db.contract import Constraint, Tx, Unavailable
from runyard.db.pooled import PooledDatabase, PoolStats, open_pool
from runyard.telemetry import log


@pytest.fixture
def url(database_url: str) -> str:
    make_table(database_url)
    return database_url


class Mode:
    """How the pool of a test connects to the server."""

    def __init__(self, *, direct: bool) -> None:
        self.direct = direct

    def open(
        self, url: str, *, clock: FrozenClock | None = None, seed: int = 1, **more: Any
    ) -> AbstractAsyncContextManager[PooledDatabase]:
        rng = random.Random(seed)
        return open_pool(url, clock=clock or FrozenClock(), rng=rng, direct=self.direct, **more)


@pytest.fixture(params=[True, False], ids=["direct", "behind a pooler"])
def mode(request: pytest.FixtureRequest) -> Mode:
    return Mode(direct=request.param)


def test_a_cancelled_transaction_is_not_a_warning_of_the_library(url: str, mode: Mode) -> None:
    """Its connection is closed, because a statement still runs on it; that is ordinary."""

    async def main() -> PoolStats:
        async with mode.open(url, max_size=1) as database:
            begun = asyncio.Event()

            async def wait(tx: Tx) -> None:
                await tx.one("SELECT 1 AS one")
                begun.set()
                await tx.one("SELECT pg_sleep(60)")

            waiting = asyncio.create_task(database.transact(wait, name="wait"))
            await begun.wait()
            await asyncio.sleep(0)  # the statement is sent
            waiting.cancel()
            await asyncio.wait((waiting,))
            assert await database.transact(set_running, name="next") == 1
            return database.stats()

    lines = io.StringIO()
    log.configure(level="info", stream=lines)
    try:
        assert asyncio.run(main()).size == 1
    finally:
        log.configure(level="critical")
    assert lines.getvalue() == ""


async def set_running(tx: Tx) -> int:
    return await tx.run("UPDATE chores SET state = 'running' WHERE id = 1")


def conflicting(url: str, runs: list[str], *, conflicts: int) -> object:
    """A serializable transaction whose row another one changes, `conflicts` times."""

    async def work(tx: Tx) -> int:
        await tx.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await tx.one("SELECT state FROM chores WHERE id = 1")
        runs.append("run")
        if len(runs) <= conflicts:
            with psycopg.connect(url, autocommit=True) as other:
                other.execute("UPDATE chores SET due = statement_timestamp() WHERE id = 1")
        return await set_running(tx)

    return work


def test_a_serialization_failure_runs_the_transaction_again(url: str, mode: Mode) -> None:
    clock = FrozenClock()
    runs: list[str] = []
    seen: list[tuple[str, str]] = []

    async def scenario() -> int:
        async with mode.open(
            url,
            clock=clock,
            seed=3,
            observe=lambda name, outcome, _: seen.append((name, outcome)),
        ) as database:
            return await database.transact(conflicting(url, runs, conflicts=2), name="claim")  # type: ignore[arg-type]  # built above

    assert asyncio.run(scenario()) == 1
    assert len(runs) == 3
    assert states(url)[1] == "running"
    assert seen == [("claim", "conflict"), ("claim", "conflict"), ("claim", "committed")]
    twin = random.Random(3)
    assert clock.slept == [twin.uniform(0, 0.02), twin.uniform(0, 0.04)]


def test_endless_conflicts_are_unavailable(url: str, mode: Mode) -> None:
    runs: list[str] = []

    async def scenario() -> None:
        async with mode.open(url, attempts=3) as database:
            await database.transact(conflicting(url, runs, conflicts=99), name="claim")  # type: ignore[arg-type]  # built above

    with pytest.raises(Unavailable, match="claim: gave up after 3 conflicts"):
        asyncio.run(scenario())
    assert len(runs) == 3
    assert states(url)[1] == "queued"


@pytest.mark.slow
def test_two_transactions_that_lock_in_opposite_order_both_end(url: str, mode: Mode) -> None:
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
            through.set()

        class Yielding(FrozenClock):
            """A victim that retried at once could lock its row again before the other one does."""

            async def sleep(self, seconds: float) -> None:
                await super().sleep(seconds)
                await through.wait()

        through = asyncio.Event()
        clock = Yielding()
        pool = mode.open(url, clock=clock, min_size=2)
        async with pool as database, asyncio.TaskGroup() as group:
            group.create_task(lock(database, 1, 2))
            group.create_task(lock(database, 2, 1))
        assert len(clock.slept) == 1, "exactly one of the two was the victim and ran again"

    asyncio.run(scenario())
    assert states(url) == {1: "running", 2: "running"}


def test_a_statement_past_the_deadline_is_cancelled_by_the_server(url: str, mode: Mode) -> None:
    async def slow(tx: Tx) -> None:
        await set_running(tx)
        await tx.one("SELECT pg_sleep(60)")

    async def scenario() -> None:
        async with mode.open(url, deadline=0.5) as database:
            with pytest.raises(Unavailable, match="statement timeout"):
                await database.transact(slow, name="slow")
            assert await database.transact(set_running, name="quick") == 1

    asyncio.run(scenario())


def test_a_cancelled_transaction_is_rolled_back_and_frees_its_locks(url: str, mode: Mode) -> None:
    async def scenario() -> None:
        holding = asyncio.Event()

        async def hold(tx: Tx) -> None:
            await set_running(tx)
            holding.set()
            await asyncio.Event().wait()

        async with mode.open(url) as database:
            async with asyncio.TaskGroup() as group:
                task = group.create_task(database.transact(hold, name="hold"))
                await holding.wait()
                task.cancel()
            assert await database.transact(set_running, name="next") == 1

    asyncio.run(scenario())


@pytest.mark.slow
def test_transactions_that_find_no_free_connection_are_unavailable(url: str, mode: Mode) -> None:
    async def scenario() -> None:
        async with mode.open(url, max_size=1, patience=1.0, attempts=1) as database:

            async def outer(tx: Tx) -> None:
                await tx.one("SELECT 1 AS x")
                await database.transact(set_running, name="inner")

            with pytest.raises(Unavailable, match="inner: no connection"):
                await database.transact(outer, name="outer")

    asyncio.run(scenario())


# Settings but the two limits, locks and channels; then what was prepared, and the limits.
STATE = """
SELECT (SELECT json_agg(json_build_array(name, setting) ORDER BY name) FROM pg_settings
        WHERE name NOT IN ('statement_timeout', 'idle_in_transaction_session_timeout'))::text AS settings,
       (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()) AS locks,
       (SELECT count(*) FROM pg_listening_channels()) AS channels,
       pg_backend_pid() AS pid
"""
PREPARED = "SELECT count(*) AS n FROM pg_prepared_statements"
LIMITS = """
SELECT current_setting('statement_timeout') AS statement,
       current_setting('idle_in_transaction_session_timeout') AS idle
"""


async def on_connection(database: PooledDatabase, sql: str) -> Any:
    """Run a statement on the only connection of a pool, between transactions."""
    async with database._pool.connection() as link:
        return await (await link.execute(sql)).fetchone()  # type: ignore[call-overload]  # a constant


def test_a_transaction_leaves_nothing_on_its_connection(url: str, mode: Mode) -> None:
    async def mixed(tx: Tx) -> None:
        await set_running(tx)
        for number in range(20):  # more often than any threshold for preparing a statement
            await tx.one("SELECT %(n)s::int AS n, runyard_now() AS now", n=number)

    async def failing(tx: Tx) -> None:
        await tx.run("INSERT INTO chores (id, state) VALUES (1, 'queued')")

    async def scenario() -> int:
        async with mode.open(url, max_size=1) as database:
            before = await on_connection(database, STATE)
            await database.transact(mixed, name="mixed")
            with pytest.raises(Constraint):
                await database.transact(failing, name="failing")
            assert await on_connection(database, STATE) == before
            return int((await on_connection(database, PREPARED))["n"])

    # Directly each of the three statements stays prepared, once; a pooler's connection is shared.
    assert asyncio.run(scenario()) == (3 if mode.direct else 0)


def test_limits_are_set_for_the_transaction_or_for_our_own_session(url: str, mode: Mode) -> None:
    async def scenario() -> tuple[Any, Any]:
        async with mode.open(url, max_size=1, deadline=7) as database:
            inside = await database.transact(lambda tx: tx.one(LIMITS), name="limits")
            return inside, await on_connection(database, LIMITS)

    limited = {"statement": "7s", "idle": "7s"}
    inside, after = asyncio.run(scenario())
    assert inside == limited
    assert after == (limited if mode.direct else {"statement": "0", "idle": "0"})


def test_the_stats_show_that_a_caller_waits_for_a_connection(database_url: str) -> None:
    async def scenario() -> None:
        pool = open_pool(
            database_url, clock=FrozenClock(), rng=random.Random(1), min_size=1, max_size=1
        )
        async with pool as database:

            async def hold(tx: Tx) -> None:
                await tx.one("SELECT 1")
                async with asyncio.TaskGroup() as group:
                    other = group.create_task(database.transact(read, name="read"))
                    while not database.stats().starved:
                        await asyncio.sleep(0)
                    assert (database.stats().size, database.stats().ready) == (1, 0)
                    other.cancel()

            async def read(tx: Tx) -> None:
                await tx.one("SELECT 1")

            await database.transact(hold, name="hold")
            assert (database.stats().ready, database.stats().starved) == (1, False)

    asyncio.run(scenario())
