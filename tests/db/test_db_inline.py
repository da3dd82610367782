"""The simulator's database runs a transaction in one step, with virtual time, hooks and faults."""

import asyncio
from collections.abc import Awaitable, Iterator

import psycopg
import pytest
from tests.db.dbsupport import FrozenClock, make_table, states

from runyard.db.contract import CommitUnknown, Tx, Unavailable
from runyard.db.inline import InlineDatabase, NotOnlySql, writes


@pytest.fixture
def url(database_url: str) -> str:
    make_table(database_url)
    return database_url


@pytest.fixture
def database(url: str) -> Iterator[InlineDatabase]:
    with InlineDatabase(url, clock=FrozenClock()) as opened:
        yield opened


async def set_running(tx: Tx) -> int:
    return await tx.run("UPDATE chores SET state = 'running' WHERE id = 1")


def test_no_other_task_runs_between_begin_and_commit(database: InlineDatabase) -> None:
    steps: list[str] = []

    async def work(tx: Tx) -> None:
        steps.append("begin")
        await set_running(tx)
        await tx.all("SELECT * FROM chores ORDER BY id")
        steps.append("end")

    async def other() -> None:
        steps.append("other")

    async def scenario() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(other())
            await database.transact(work, name="work")

    asyncio.run(scenario())
    assert steps == ["begin", "end", "other"]


def forever() -> Awaitable[object]:
    return asyncio.Event().wait()


@pytest.mark.parametrize("wait", [forever, lambda: asyncio.sleep(0)], ids=["event", "sleep"])
def test_awaiting_anything_but_sql_is_an_error_that_names_the_transaction(
    database: InlineDatabase, url: str, wait: object
) -> None:
    async def work(tx: Tx) -> None:
        await set_running(tx)
        await wait()  # type: ignore[operator]  # a parameter

    async def scenario() -> None:
        with pytest.raises(NotOnlySql, match="'dishonest'"):
            await database.transact(work, name="dishonest")
        assert states(url)[1] == "queued"
        assert await database.transact(set_running, name="honest") == 1

    asyncio.run(scenario())


def test_a_transaction_inside_a_transaction_is_an_error(database: InlineDatabase, url: str) -> None:
    async def outer(tx: Tx) -> None:
        await set_running(tx)
        await database.transact(set_running, name="inner")

    with pytest.raises(NotOnlySql, match="'inner' was started inside of 'outer'"):
        asyncio.run(database.transact(outer, name="outer"))
    assert states(url)[1] == "queued"


def test_hooks_see_each_transaction_and_whether_it_wrote(database: InlineDatabase) -> None:
    seen: list[object] = []
    database.before = seen.append
    database.after_commit = lambda name, wrote: seen.append((name, wrote))

    async def scenario() -> None:
        await database.transact(lambda tx: tx.one("SELECT 1 AS x"), name="read")
        await database.transact(set_running, name="write")
        with pytest.raises(ZeroDivisionError):
            await database.transact(failing, name="fail")

    async def failing(tx: Tx) -> None:
        await set_running(tx)
        raise ZeroDivisionError

    asyncio.run(scenario())
    assert seen == ["read", ("read", False), "write", ("write", True), "fail"]


def test_a_crash_before_leaves_nothing_and_a_crash_after_leaves_the_commit(
    database: InlineDatabase, url: str
) -> None:
    class Crash(BaseException):
        pass

    def crash(*_: object) -> None:
        raise Crash

    database.before = crash
    with pytest.raises(Crash):
        asyncio.run(database.transact(set_running, name="x"))
    assert states(url)[1] == "queued"
    database.before, database.after_commit = None, crash
    with pytest.raises(Crash):
        asyncio.run(database.transact(set_running, name="x"))
    assert states(url)[1] == "running"


def test_a_database_that_is_down_changes_nothing_and_comes_back(
    database: InlineDatabase, url: str
) -> None:
    database.down = True
    with pytest.raises(Unavailable):
        asyncio.run(database.transact(set_running, name="x"))
    assert states(url)[1] == "queued"
    database.down = False
    assert asyncio.run(database.transact(set_running, name="x")) == 1


def test_a_lost_answer_is_an_unknown_commit(database: InlineDatabase, url: str) -> None:
    seen: list[object] = []
    database.after_commit = lambda name, wrote: seen.append((name, wrote))
    database.lose_answer = lambda name: name == "lost"
    with pytest.raises(CommitUnknown):
        asyncio.run(database.transact(set_running, name="lost"))
    assert states(url)[1] == "running"
    assert seen == [("lost", True)]
    assert asyncio.run(database.transact(set_running, name="answered")) == 1


def test_the_simulators_time_ends_with_the_transaction(database: InlineDatabase) -> None:
    async def scenario() -> None:
        await database.transact(set_running, name="x")
        assert database._connection is not None
        left = database._connection.execute(
            "SELECT current_setting('runyard.now', true)"
        ).fetchone()
        assert left == ("",)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT 1", False),
        ("  -- why\n/* and how */ select 1", False),
        ("(SELECT 1) UNION (SELECT 2)", False),
        ("VALUES (1)", False),
        ("SELECT id FROM chores FOR UPDATE SKIP LOCKED", False),
        ("WITH x AS (SELECT 1 FROM chores FOR NO KEY UPDATE) SELECT * FROM x", False),
        ("WITH x AS (UPDATE chores SET state = 'running' RETURNING id) SELECT id FROM x", True),
        ("with x as (select 1) insert into chores select 1", True),
        ("UPDATE chores SET state = 'running'", True),
        ("INSERT INTO chores VALUES (1)", True),
        ("DELETE FROM chores", True),
        ("TRUNCATE chores", True),
    ],
)
def test_a_read_is_distinguished_from_a_write(sql: str, *, expected: bool) -> None:
    assert writes(sql) is expected


def test_a_statement_keeps_working_when_its_parameter_types_change(
    database: InlineDatabase,
) -> None:
    async def work(tx: Tx) -> list[object]:
        sql = "SELECT id FROM chores WHERE id = %(id)s"
        return [await tx.one(sql, id=value) for value in (1, 2**40, 2, None, 1)]

    assert asyncio.run(database.transact(work, name="x")) == [
        {"id": 1},
        None,
        {"id": 2},
        None,
        {"id": 1},
    ]


def test_a_restarted_connection_forgets_its_prepared_statements(
    database: InlineDatabase, url: str
) -> None:
    assert asyncio.run(database.transact(set_running, name="x")) == 1
    database.close()
    assert asyncio.run(database.transact(set_running, name="x")) == 1
    with psycopg.connect(url) as link:
        count = link.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        ).fetchone()
    assert count == (2,)


def test_the_query_after_a_commit_sees_the_commit(url: str) -> None:
    query = "SELECT state FROM chores WHERE id = %(id)s"
    with InlineDatabase(
        url, clock=FrozenClock(), after_commit_query=lambda: (query, {"id": 1})
    ) as database:
        assert asyncio.run(database.transact(set_running, name="work")) == 1
        assert database.after_commit_rows == [{"state": "running"}]
        assert database.peek("SELECT count(*) AS n FROM chores WHERE state = 'running'") == [
            {"n": 1}
        ]


def test_a_transaction_that_only_read_leaves_no_lock_behind(url: str) -> None:
    async def lock(tx: Tx) -> object:
        return await tx.one("SELECT id FROM chores WHERE id = 1 FOR UPDATE")

    with (
        InlineDatabase(url, clock=FrozenClock()) as first,
        InlineDatabase(url, clock=FrozenClock()) as second,
    ):
        assert asyncio.run(first.transact(lock, name="lock")) == {"id": 1}
        assert asyncio.run(second.transact(set_running, name="write")) == 1


def test_a_peek_inside_of_a_transaction_is_an_error(database: InlineDatabase) -> None:
    async def work(tx: Tx) -> None:
        await tx.one("SELECT 1 AS one")
        database.peek("SELECT 1 AS one")

    with pytest.raises(NotOnlySql, match="inside of 'work'"):
        asyncio.run(database.transact(work, name="work"))
