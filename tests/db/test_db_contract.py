"""The pool and the simulator's database implement one contract.

The pool is tested in both modes: with a direct connection, and as behind a pooler.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import psycopg
import pytest
from tests.db.dbsupport import CuttingProxy, FrozenClock, make_table, states

from runyard.db.contract import (
    CommitUnknown,
    Constraint,
    Database,
    DatabaseError,
    Tx,
    Unavailable,
)
from runyard.db.inline import InlineDatabase
from runyard.db.pooled import open_pool

Opener = Callable[[str], AbstractAsyncContextManager[Database]]


@asynccontextmanager
async def inline(conninfo: str) -> AsyncIterator[Database]:
    with InlineDatabase(conninfo, clock=FrozenClock()) as database:
        yield database


@asynccontextmanager
async def pooled(conninfo: str, *, direct: bool) -> AsyncIterator[Database]:
    pool = open_pool(
        conninfo,
        clock=FrozenClock(),
        rng=random.Random(1),
        max_size=2,
        patience=10.0,
        direct=direct,
    )
    async with pool as database:
        yield database


OPENERS: dict[str, Opener] = {
    "inline": inline,
    "direct": partial(pooled, direct=True),
    "behind a pooler": partial(pooled, direct=False),
}


@pytest.fixture(params=OPENERS)
def opener(request: pytest.FixtureRequest) -> Opener:
    return OPENERS[request.param]


@pytest.fixture
def url(database_url: str) -> str:
    make_table(database_url)
    return database_url


def transact(
    opener: Opener, url: str, *works: Callable[[Tx], Awaitable[Any]], name: str = "test"
) -> Any:
    """Run each of the transactions in turn and return the last result."""

    async def scenario() -> Any:
        result = None
        async with opener(url) as database:
            for work in works:
                result = await database.transact(work, name=name)
        return result

    return asyncio.run(scenario())


async def set_running(tx: Tx) -> int:
    return await tx.run(
        "UPDATE chores SET state = %(state)s WHERE id = %(id)s", state="running", id=1
    )


def test_a_commit_is_visible_to_other_connections(opener: Opener, url: str) -> None:
    assert transact(opener, url, set_running) == 1
    assert states(url) == {1: "running", 2: "queued"}


def test_rows_are_dictionaries_and_missing_rows_are_none(opener: Opener, url: str) -> None:
    async def work(tx: Tx) -> list[Any]:
        return [
            await tx.all("SELECT id, state FROM chores ORDER BY id"),
            await tx.one("SELECT id FROM chores ORDER BY id DESC"),
            await tx.one("SELECT id FROM chores WHERE id = %(id)s", id=99),
            await tx.all("SELECT id FROM chores WHERE id = ANY(%(ids)s) ORDER BY id", ids=[2, 7]),
            await tx.run("DELETE FROM chores WHERE id > %(id)s", id=100),
            await tx.all("DELETE FROM chores WHERE id = 99"),
        ]

    assert transact(opener, url, work) == [
        [{"id": 1, "state": "queued"}, {"id": 2, "state": "queued"}],
        {"id": 2},
        None,
        [{"id": 2}],
        0,
        [],
    ]


def test_several_statements_run_in_order_and_each_gives_its_rows(opener: Opener, url: str) -> None:
    asked = (
        ("UPDATE chores SET state = %(state)s WHERE id = %(id)s", {"state": "running", "id": 1}),
        ("SELECT id, state FROM chores WHERE id = %(id)s", {"id": 1}),
        ("SELECT id FROM chores WHERE id = %(id)s", {"id": 99}),
        ("SELECT id, state FROM chores WHERE id = %(id)s", {"id": 2}),
    )

    async def work(tx: Tx) -> list[Any]:
        return [await tx.several(), await tx.several(*asked), await tx.several(*asked[1:])]

    rows = [[{"id": 1, "state": "running"}], [], [{"id": 2, "state": "queued"}]]
    assert transact(opener, url, work, work) == [[], [[], *rows], rows]
    assert states(url) == {1: "running", 2: "queued"}


def test_large_parameters_and_large_answers_do_not_block_each_other(
    opener: Opener, url: str
) -> None:
    size = 4_000_000

    async def work(tx: Tx) -> list[int]:
        rows = await tx.several(
            ("SELECT repeat('a', %(size)s) AS text", {"size": size}),
            ("SELECT %(text)s::text AS text", {"text": "b" * size}),
            ("SELECT %(text)s::text AS text", {"text": "c" * size}),
        )
        return [len(each[0]["text"]) for each in rows]

    assert transact(opener, url, work) == [size, size, size]


def test_one_bad_statement_of_several_rolls_all_of_them_back(opener: Opener, url: str) -> None:
    async def work(tx: Tx) -> list[Any]:
        return await tx.several(
            ("UPDATE chores SET state = 'running' WHERE id = 1 RETURNING id", {}),
            ("INSERT INTO chores (id, state) VALUES (%(id)s, 'queued')", {"id": 2}),
            ("SELECT id FROM chores", {}),
        )

    with pytest.raises(Constraint):
        transact(opener, url, work)
    assert states(url) == {1: "queued", 2: "queued"}

    async def after_the_failure(tx: Tx) -> Any:
        with pytest.raises(DatabaseError):
            await work(tx)
        return await tx.one("SELECT 1 AS one")

    with pytest.raises(DatabaseError):
        transact(opener, url, after_the_failure)
    assert transact(opener, url, set_running) == 1


_LOCK = ("SELECT id, state FROM chores WHERE id = %(id)s FOR UPDATE", {"id": 1})
_WRITE = ("UPDATE chores SET state = 'running' WHERE id = %(id)s RETURNING id", {"id": 1})


def test_what_is_finished_is_committed_with_its_rows(opener: Opener, url: str) -> None:
    async def locked(tx: Tx) -> list[Any]:
        return [await tx.several(_LOCK), await tx.finish(_WRITE, ("SELECT 7 AS seven", {}))]

    rows = [[[{"id": 1, "state": "queued"}]], [[{"id": 1}], [{"seven": 7}]]]
    assert transact(opener, url, locked) == rows
    assert states(url) == {1: "running", 2: "queued"}

    async def at_once(tx: Tx) -> list[Any]:
        return await tx.finish(_WRITE)

    assert transact(opener, url, at_once, locked, at_once) == [[{"id": 1}]]

    async def alone(tx: Tx) -> list[Any]:
        return await tx.finish(
            ("UPDATE chores SET state = 'queued' WHERE id = 1 RETURNING id", {}), alone=True
        )

    assert transact(opener, url, alone, alone) == [[{"id": 1}]]
    assert states(url) == {1: "queued", 2: "queued"}


@pytest.mark.parametrize(
    "bad",
    [
        "INSERT INTO chores (id, state) VALUES (2, 'queued')",
        "INSERT INTO parents (id, job) VALUES (1, 99)",  # refused by the COMMIT itself
    ],
)
def test_a_finish_that_fails_leaves_nothing_and_a_usable_connection(
    opener: Opener, url: str, bad: str
) -> None:
    async def work(tx: Tx) -> None:
        await tx.several(_LOCK)
        await tx.finish(_WRITE, (bad, {}), ("SELECT 1 AS one", {}))

    async def scenario() -> None:
        async with opener(url) as database:
            for _ in range(2):
                with pytest.raises(Constraint):
                    await database.transact(work, name="bad")
            assert states(url) == {1: "queued", 2: "queued"}
            assert await database.transact(set_running, name="good") == 1

    asyncio.run(scenario())


@pytest.mark.parametrize(("cut", "state"), [("before", "queued"), ("after", "running")])
def test_a_connection_cut_in_a_finish_leaves_the_outcome_unknown(
    opener: Opener, url: str, cut: str, state: str
) -> None:
    async def work(tx: Tx) -> None:
        await tx.several(_LOCK)
        await tx.finish(_WRITE)

    async def scenario(proxy: CuttingProxy) -> None:
        async with opener(proxy.conninfo) as database:
            await database.transact(lambda tx: tx.one("SELECT 1 AS x"), name="warm")
            proxy.cut = cut
            with pytest.raises(CommitUnknown):
                await database.transact(work, name="cut")

    with CuttingProxy(url) as proxy:
        asyncio.run(scenario(proxy))
    assert states(url)[1] == state


@pytest.mark.parametrize("name", ["inline", "direct"])
def test_a_statement_after_a_finish_is_refused(url: str, name: str) -> None:
    async def work(tx: Tx) -> None:
        await tx.several(_LOCK)
        await tx.finish(_WRITE)
        await tx.several(_LOCK)

    with pytest.raises(RuntimeError, match="finish"):
        transact(OPENERS[name], url, work)


def test_reads_need_no_transaction_and_a_write_after_them_gets_one(
    opener: Opener, url: str
) -> None:
    asked = ("SELECT id, state FROM chores WHERE id = %(id)s", {"id": 1})

    async def work(tx: Tx) -> list[Any]:
        before = await tx.read(asked, ("SELECT 7 AS seven", {}))
        await set_running(tx)
        return [before, await tx.read(asked)]

    assert transact(opener, url, work) == [
        [[{"id": 1, "state": "queued"}], [{"seven": 7}]],
        [[{"id": 1, "state": "running"}]],
    ]

    async def undone(tx: Tx) -> None:
        await tx.read(asked)
        await tx.run("UPDATE chores SET state = 'queued'")
        await tx.read(asked)
        raise LookupError

    with pytest.raises(LookupError):
        transact(opener, url, undone)
    assert states(url)[1] == "running"


def test_values_of_each_type_are_returned_unchanged(opener: Opener, url: str) -> None:
    values: dict[str, object] = {
        "small": 1,
        "large": 2**40,
        "text": "a % of 'quoted' \\ ünïcode \N{SNOWMAN}",
        "none": None,
        "truth": True,
        "real": 0.25,
        "raw": b"\x00\xff",
        "time": datetime(2026, 1, 2, 3, 4, 5, 678901, UTC),
        "list": ["a", "b,c", '"'],
    }
    sql = (
        "SELECT %(small)s::int AS small, %(large)s::bigint AS large, %(text)s::text AS text,"
        " %(none)s::text AS none, %(truth)s::bool AS truth, %(real)s::float8 AS real,"
        " %(raw)s::bytea AS raw, %(time)s::timestamptz AS time, %(list)s::text[] AS list"
    )

    async def work(tx: Tx) -> Any:
        first = await tx.one(sql, **values)
        assert await tx.one(sql, **values) == first, "a second run of the same statement differs"
        return first

    assert transact(opener, url, work) == values


def test_a_doubled_percent_sign_is_a_single_one_with_and_without_parameters(
    opener: Opener, url: str
) -> None:
    async def work(tx: Tx) -> list[Any]:
        return [
            await tx.one("SELECT 7 %% 4 AS rest"),
            await tx.one("SELECT 7 %% %(by)s AS rest", by=4),
        ]

    assert transact(opener, url, work) == [{"rest": 3}, {"rest": 3}]


def test_an_exception_rolls_back_and_propagates(opener: Opener, url: str) -> None:
    async def work(tx: Tx) -> None:
        await set_running(tx)
        raise LookupError("changed my mind")

    with pytest.raises(LookupError, match="changed my mind"):
        transact(opener, url, work)
    assert states(url)[1] == "queued"


BROKEN = {
    "unique": ("INSERT INTO chores (id, state) VALUES (1, 'queued')", "chores_pkey"),
    "check": ("UPDATE chores SET state = 'odd' WHERE id = 1", "chores_state_known"),
    "not null": ("INSERT INTO chores (id) VALUES (9)", "state"),
    "foreign key at commit": ("INSERT INTO parents VALUES (1, 99)", "parents_job_there"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_refused_write_names_its_constraint(opener: Opener, url: str, case: str) -> None:
    sql, name = BROKEN[case]

    async def work(tx: Tx) -> None:
        await set_running(tx)
        await tx.run(sql)

    with pytest.raises(Constraint) as caught:
        transact(opener, url, work)
    assert caught.value.name == name
    assert states(url) == {1: "queued", 2: "queued"}


def test_an_error_that_work_swallows_is_raised_at_commit(opener: Opener, url: str) -> None:
    async def work(tx: Tx) -> str:
        await set_running(tx)
        try:
            await tx.run(BROKEN["unique"][0])
        except Constraint:
            return "all is well"
        return "not reached"

    with pytest.raises(Constraint):
        transact(opener, url, work)
    assert states(url)[1] == "queued"


@pytest.mark.parametrize(
    ("sql", "params"),
    [
        ("SELEKT 1", {}),
        ("SELECT * FROM nowhere", {}),
        ("SELECT %(x)s", {}),
        ("SELECT 1 % 2", {}),
        # psycopg counts it among the errors of a server, but it is the statement's.
        ("SELECT " + ", ".join(["1"] * 1700), {}),
    ],
    ids=["syntax", "no table", "no parameter", "single percent", "too large"],
)
def test_after_a_wrong_statement_the_next_transaction_works(
    opener: Opener, url: str, sql: str, params: dict[str, object]
) -> None:
    async def wrong(tx: Tx) -> None:
        await set_running(tx)
        await tx.all(sql, **params)

    async def scenario() -> None:
        async with opener(url) as database:
            with pytest.raises(DatabaseError) as caught:
                await database.transact(wrong, name="wrong")
            assert not isinstance(caught.value, Unavailable | CommitUnknown | Constraint)
            assert states(url)[1] == "queued"
            assert await database.transact(set_running, name="right") == 1

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_missing_server_is_unavailable(opener: Opener) -> None:
    with pytest.raises(Unavailable):
        transact(opener, "host=/nonexistent dbname=none user=none", set_running)


def test_a_connection_that_died_between_transactions_is_replaced(opener: Opener, url: str) -> None:
    async def scenario() -> None:
        async with opener(url) as database:
            await database.transact(set_running, name="first")
            with psycopg.connect(url, autocommit=True) as other:
                other.execute(
                    "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            if isinstance(database, InlineDatabase):
                with pytest.raises(Unavailable):
                    await database.transact(set_running, name="second")
            assert await database.transact(set_running, name="third") == 1

    asyncio.run(scenario())


def test_a_transaction_whose_connection_dies_is_rolled_back(opener: Opener, url: str) -> None:
    async def work(tx: Tx) -> None:
        await set_running(tx)
        row = await tx.one("SELECT pg_backend_pid() AS pid")
        assert row is not None
        with psycopg.connect(url, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s, 10000)", [row["pid"]])
        await set_running(tx)

    with pytest.raises(Unavailable):
        transact(opener, url, work)
    assert states(url)[1] == "queued"


@pytest.mark.parametrize(("cut", "state"), [("before", "queued"), ("after", "running")])
def test_a_connection_cut_at_commit_leaves_the_outcome_unknown(
    opener: Opener, url: str, cut: str, state: str
) -> None:
    async def scenario(proxy: CuttingProxy) -> None:
        async with opener(proxy.conninfo) as database:
            await database.transact(lambda tx: tx.one("SELECT 1 AS x"), name="warm")
            proxy.cut = cut
            with pytest.raises(CommitUnknown):
                await database.transact(set_running, name="cut")
            proxy.cut = ""
            row = await database.transact(
                lambda tx: tx.one("SELECT state FROM chores WHERE id = 1 FOR UPDATE"), name="read"
            )
            assert row == {"state": state}

    with CuttingProxy(url) as proxy:
        asyncio.run(scenario(proxy))


def test_transactions_are_read_committed_whatever_the_default(opener: Opener, url: str) -> None:
    with psycopg.connect(url, autocommit=True) as link:
        name = link.info.dbname
        link.execute(f'ALTER DATABASE "{name}" SET default_transaction_isolation = serializable')

    row = transact(opener, url, lambda tx: tx.one("SHOW transaction_isolation"))
    assert row == {"transaction_isolation": "read committed"}
