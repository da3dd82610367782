"""The pool works behind a real PgBouncer in transaction mode, with more clients than connections."""

import asyncio
import random
from typing import Any

import psycopg
import pytest
from tests.db.dbsupport import FrozenClock, make_table
from tests.fixtures_pgbouncer import CONNECTIONS

from runyard.db import migrate
from runyard.db.contract import Constraint, Tx
from runyard.db.pooled import PooledDatabase, open_pool


@pytest.mark.slow
def test_transactions_share_connections_and_leave_nothing_on_them(
    database_url: str, bouncer: str
) -> None:
    make_table(database_url)

    async def scenario() -> tuple[list[Any], list[Any]]:
        pool = open_pool(
            bouncer, clock=FrozenClock(), rng=random.Random(1), min_size=5, max_size=5, deadline=7
        )
        async with pool as database:
            await database._pool.wait()
            async with asyncio.TaskGroup() as group:
                works = [group.create_task(_work(database, number)) for number in range(20)]
            with pytest.raises(Constraint):
                await database.transact(_refused, name="refused")
            with psycopg.connect(bouncer, autocommit=True, prepare_threshold=None) as plain:
                rest = plain.execute(_LEFT).fetchall()
            return [each.result() for each in works], rest

    seen, rest = asyncio.run(scenario())
    assert [row["n"] for row in seen] == list(range(20))
    assert {row["limit"] for row in seen} == {"7s"}
    assert len({row["pid"] for row in seen}) <= CONNECTIONS
    assert rest == [("0", 0)], "a limit or a prepared statement was left for the next client"


_LEFT = "SELECT current_setting('statement_timeout'), (SELECT count(*) FROM pg_prepared_statements)"


async def _work(database: PooledDatabase, number: int) -> Any:
    async def work(tx: Tx) -> Any:
        await tx.run("UPDATE chores SET state = 'running' WHERE id = %(id)s", id=1)
        for _ in range(8):  # more often than any threshold for preparing a statement
            row = await tx.one(
                "SELECT %(n)s::int AS n, pg_backend_pid() AS pid,"
                " current_setting('statement_timeout') AS limit",
                n=number,
            )
        return row

    return await database.transact(work, name="work")


async def _refused(tx: Tx) -> None:
    await tx.run("INSERT INTO chores (id, state) VALUES (1, 'queued')")


@pytest.mark.slow
def test_the_whole_schema_can_be_applied_through_a_pooler(database_url: str, bouncer: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as link:
        link.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    applied = migrate.apply(bouncer)
    assert any(name.startswith("procrastinate_") for name in applied)
    assert migrate.pending(bouncer) == () == migrate.apply(database_url)
