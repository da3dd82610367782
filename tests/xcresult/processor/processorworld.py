"""What the tests of the processor share: a database with runs in it, and looks at it."""

import asyncio
import contextlib
import functools
import random
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, ParamSpec, cast

import psycopg

from runyard.clock import RealClock
from runyard.db.contract import Tx
from runyard.db.pooled import PooledDatabase, open_pool
from runyard.xcresult.plans.attempts import Decision, Outcome, decide
from runyard.xcresult.processor.enqueueing import enqueue
from runyard.xcresult.processor.ledger import Ledger
from runyard.xcresult.settings import Settings
from runyard.xcresult.store import Claim

P = ParamSpec("P")


def looped(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test that is a coroutine, on a loop of its own."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


def run_number(number: int) -> str:
    return str(uuid.UUID(int=number + 1))


def add_runs(url: str, *numbers: int, key: str = "bundle.zip", size: int | None = None) -> None:
    """Runs whose uploads are not complete yet."""
    with psycopg.connect(url, autocommit=True) as link, link.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO test_runs (run_id, account, project, storage_key, archive_bytes)"
            " VALUES (%s, 'Acme', 'App', %s, %s)",
            [(run_number(number), key.format(number=number), size) for number in numbers],
        )


def look(url: str, sql: str, *values: object) -> list[Any]:
    with psycopg.connect(url) as link:
        return link.execute(cast("Any", sql), values).fetchall()


def change(url: str, sql: str, *values: object) -> None:
    with psycopg.connect(url, autocommit=True) as link:
        link.execute(cast("Any", sql), values)


def row_of(url: str, number: int = 0) -> Any:
    (row,) = look(
        url,
        "SELECT state, attempt, spent, lease_owner, reason_code FROM test_runs WHERE run_id = %s",
        run_number(number),
    )
    return row


def jobs_of(url: str) -> list[str]:
    return [
        status for (status,) in look(url, "SELECT status::text FROM procrastinate_jobs ORDER BY id")
    ]


def lapse(url: str) -> None:
    """All leases are over."""
    change(
        url,
        "UPDATE test_runs SET lease_until = now() - interval '1 second' WHERE lease_until IS NOT NULL",
    )


def hasten(url: str) -> None:
    """Everything that waits is due."""
    change(url, "UPDATE test_runs SET due_at = now() WHERE due_at IS NOT NULL")
    change(url, "UPDATE procrastinate_jobs SET scheduled_at = now() WHERE status = 'todo'")


@contextlib.asynccontextmanager
async def pool(url: str, **how: Any) -> AsyncIterator[PooledDatabase]:
    async with open_pool(url, clock=RealClock(), rng=random.Random(1), **how) as database:
        yield database


async def put(database: PooledDatabase, *numbers: int) -> list[bool]:
    async def work(tx: Tx) -> list[bool]:
        return [await enqueue(tx, run_id=run_number(number)) for number in numbers]

    return await database.transact(work, name="put")


def ledger(
    database: PooledDatabase, name: str = "w", *, settings: Settings | None = None
) -> Ledger:
    chosen = settings or Settings(scratch=Path("/nonexistent"))
    return Ledger(database, name=name, rng=random.Random(name), settings=chosen)


def decision(claim: Claim, outcome: Outcome) -> Decision:
    rules = Settings(scratch=Path("/nonexistent")).retrying
    return decide(outcome, attempt=claim.attempt, spent=claim.spent, settings=rules)
