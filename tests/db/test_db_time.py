"""`runyard_now()`: the server's clock in production, the simulator's in a simulation, cheap in both."""

import asyncio
from datetime import UTC, datetime

import psycopg
import pytest
from tests.db.dbsupport import FrozenClock, make_table

from runyard.db.inline import InlineDatabase


def test_production_time_is_the_start_of_the_statement(database_url: str) -> None:
    with psycopg.connect(database_url) as link:
        row = link.execute(
            "SELECT runyard_now() = statement_timestamp(), pg_sleep(0.001), runyard_now() < clock_timestamp()"
        ).fetchone()
        assert row is not None and (row[0], row[2]) == (True, True)
        later = link.execute("SELECT runyard_now() > transaction_timestamp()").fetchone()
        assert later == (True,)


def test_simulated_time_is_the_clock_to_the_microsecond(database_url: str) -> None:
    clock = FrozenClock(1_700_000_000.123456)
    with InlineDatabase(database_url, clock=clock) as database:

        def read() -> datetime:
            row = asyncio.run(
                database.transact(lambda tx: tx.one("SELECT runyard_now() AS t"), name="t")
            )
            assert row is not None
            return row["t"]  # type: ignore[no-any-return]  # rows are untyped

        assert read() == datetime(2023, 11, 14, 22, 13, 20, 123456, UTC)
        clock.at += 86400
        assert read() == datetime(2023, 11, 15, 22, 13, 20, 123456, UTC)


@pytest.mark.parametrize("value", ["", None], ids=["emptied", "never set"])
def test_a_setting_without_a_value_means_real_time(database_url: str, value: str | None) -> None:
    with psycopg.connect(database_url) as link:
        if value is not None:
            link.execute("SELECT set_config('runyard.now', %s, true)", [value])
        assert link.execute("SELECT runyard_now() = statement_timestamp()").fetchone() == (True,)


def test_a_comparison_with_runyard_now_uses_an_index(database_url: str) -> None:
    make_table(database_url)
    with psycopg.connect(database_url) as link:
        link.execute("CREATE INDEX chores_due ON chores (due)")
        link.execute("SET LOCAL enable_seqscan = off")
        link.execute("SET LOCAL enable_bitmapscan = off")
        plan = link.execute("EXPLAIN SELECT id FROM chores WHERE due <= runyard_now()").fetchall()
    text = "\n".join(line for (line,) in plan)
    assert "Index Cond" in text
    assert "runyard_now" not in text, "the function is called instead of being inlined"
