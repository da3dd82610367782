"""Tests that no run is lost behind a pooler, or by lost commits, dropped connections and outages of the database."""

import asyncio
import random
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.db.dbsupport import CuttingProxy
from tests.xcresult.processor.processor_harness import (
    Harness,
    change,
    looped,
    pool,
    query,
    row_of,
    run_claims,
    run_number,
    zipped,
)
from tests.xcresult.processor.tcp_proxy import TcpProxy
from tests.xcresult.processor.test_processor_hazards import Gate
from tests.xcresult.writer.plan import Plan

from runyard.clock import RealClock
from runyard.db.contract import CommitUnknown
from runyard.telemetry import conditions
from runyard.telemetry.catalogue import RUNYARD_PROCESSOR_CONSUMERS, TUIST_OBAN_QUEUE_LENGTH_COUNT
from runyard.telemetry.health import Health
from runyard.telemetry.meter import Meter
from runyard.xcresult.processor.metrics import QueueWatch

SMALL = Plan(cases=2, suites=1, logs=False)


def ends(url: str) -> list[Any]:
    return query(
        url,
        "SELECT r.state, r.attempt, r.spent, (SELECT count(*) FROM test_case_runs c WHERE c.run_id = r.run_id)"
        " FROM test_runs r GROUP BY 1, 2, 3, 4",
    )


@pytest.mark.slow
@looped
async def test_it_works_behind_pgbouncer_in_transaction_mode(
    database_url: str, bouncer: str, tmp_path: Path
) -> None:
    harness = Harness(database_url, tmp_path)
    await harness.upload(zipped(tmp_path, Plan(cases=5, attachments=2)), *range(4))
    async with harness.processing(bouncer):
        await harness.over(4)
    assert ends(database_url) == [("processed", 1, 1, 5)]


@looped
async def test_a_claim_with_an_unknown_commit_is_processed_and_costs_no_attempt(
    database_url: str, tmp_path: Path
) -> None:
    harness = Harness(database_url, tmp_path)
    await harness.upload(zipped(tmp_path, SMALL), 0)
    with CuttingProxy(database_url) as proxy:
        async with pool(proxy.conninfo, max_size=1) as database:
            claims = run_claims(database)
            await claims.beat()
            proxy.cut = "after"
            with pytest.raises(CommitUnknown):
                while await claims.next() is None:
                    pytest.fail("it was not cut")
            proxy.cut = ""
            claim = await claims.next()
    assert claim is not None and (claim.run_id, claim.attempt) == (run_number(0), 1)
    assert row_of(database_url)[:2] == ("processing", 1)


@pytest.mark.slow
@pytest.mark.parametrize("cut", ["before", "after"])
@looped
async def test_results_with_an_unknown_commit_are_written_once(
    database_url: str, tmp_path: Path, cut: str
) -> None:
    harness = Harness(database_url, tmp_path)
    await harness.upload(zipped(tmp_path, SMALL), 0)
    with CuttingProxy(database_url) as proxy:
        harness.results_url = proxy.conninfo
        proxy.cut = cut
        async with harness.processing():
            await harness.until("SELECT attempt FROM test_runs", lambda attempt: attempt == 1)
            if cut == "before":
                await harness.wait_for_log("results not written; retrying")
                proxy.cut = ""
            await harness.over(1)
    assert ends(database_url) == [("processed", 1, 1, 2)]


@pytest.mark.slow
@looped
async def test_connections_that_are_dropped_lose_no_run_and_no_attempt(
    database_url: str, tmp_path: Path
) -> None:
    harness = Harness(database_url, tmp_path)
    content = zipped(tmp_path, SMALL)
    await harness.upload(content, *range(8))
    with TcpProxy(database_url, rng=random.Random(7), every=12_000, most=10) as proxy:
        async with harness.processing(proxy.conninfo):
            await harness.over(8)
    assert proxy.dropped == 10
    states = query(database_url, "SELECT state, count(*) FROM test_runs GROUP BY 1")
    assert states == [("processed", 8)]
    assert query(
        database_url, "SELECT count(*) FROM test_attempts WHERE outcome = 'processed'"
    ) == [(8,)]
    assert query(database_url, "SELECT count(*) FROM test_case_runs") == [(16,)]
    assert harness.left() == []


class Hearts(RealClock):
    """A clock that counts heartbeats."""

    BEAT = 0.0217

    def __init__(self) -> None:
        super().__init__()
        self.beats = 0

    async def sleep(self, seconds: float) -> None:
        self.beats += seconds == self.BEAT
        await super().sleep(seconds)


@pytest.mark.slow
@looped
async def test_a_heartbeat_does_not_wait_for_the_transaction_that_writes_its_own_results(
    database_url: str, tmp_path: Path
) -> None:
    harness = Harness(database_url, tmp_path)
    harness.clock = hearts = Hearts()
    await harness.upload(zipped(tmp_path, SMALL), 0)
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        " AND datname = current_database() AND query LIKE '%%test_modules%%'"
    )
    with psycopg.connect(database_url) as link:
        link.execute("LOCK TABLE test_modules IN ACCESS EXCLUSIVE MODE")
        async with harness.processing(beat=Hearts.BEAT):
            await harness.until(waiting, lambda found: found == 1)
            before = hearts.beats
            async with asyncio.timeout(20):
                while hearts.beats < before + 3:
                    await asyncio.sleep(0.01)
            link.rollback()
            await harness.over(1)
    assert ends(database_url) == [("processed", 1, 1, 2)]


@pytest.mark.slow
@looped
async def test_an_outage_before_attachments_are_uploaded_costs_no_attempt(
    database_url: str, tmp_path: Path
) -> None:
    harness = Harness(database_url, tmp_path)
    await harness.upload(zipped(tmp_path, Plan(cases=2, attachments=2)), 0)
    gate = Gate(harness)
    with TcpProxy(database_url) as proxy:
        async with harness.processing(proxy.conninfo, blobs=gate):
            await gate.reached.wait()
            proxy.close()
            gate.open.set()
            await harness.wait_for_log("rows of payloads not written; retrying")
            proxy.open()
            await harness.over(1)
    assert ends(database_url) == [("processed", 1, 1, 2)]


class Later(RealClock):
    """A clock that can be advanced."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(20, marks=pytest.mark.slow),
        pytest.param(700, marks=[pytest.mark.long, pytest.mark.timeout(1800)]),
    ],
)
@looped
async def test_a_fleet_that_cannot_reach_the_database_is_seen_and_then_drains_with_no_attempt_lost(
    database_url: str, tmp_path: Path, count: int
) -> None:
    harness = Harness(database_url, tmp_path)
    clock, meter = Later(), Meter()
    health = Health(clock, (conditions.DATABASE_UNREACHABLE, conditions.NO_CONSUMER))
    with TcpProxy(database_url) as proxy:
        proxy.close()
        async with (
            pool(database_url) as server,
            harness.processing(proxy.conninfo, name="a") as first,
            harness.processing(proxy.conninfo, name="b"),
        ):
            await harness.upload(zipped(tmp_path, SMALL), *range(count))
            change(database_url, "UPDATE test_runs SET due_at = due_at - interval '1 minute'")
            watch = QueueWatch(server, meter=meter, health=health)
            await watch.step()
            clock.ahead = 31.0
            (condition,) = health.report()
            assert condition.code == "no-consumer" and f"{count} runs wait" in condition.message
            length = {"queue": "process_xcresult", "state": "available"}
            assert meter.get(TUIST_OBAN_QUEUE_LENGTH_COUNT, **length) == count
            assert meter.get(RUNYARD_PROCESSOR_CONSUMERS) == 0
            assert proxy.refused > 0
            assert not first.health.healthy() or first.freshness.stale()
            proxy.open()
            await harness.over(count, within=20.0 + count)
            await watch.step()
            assert health.report() == ()
            assert meter.get(RUNYARD_PROCESSOR_CONSUMERS) == 2
    assert ends(database_url) == [("processed", 1, 1, 2)]
    assert query(database_url, "SELECT outcome, count(*) FROM test_attempts GROUP BY 1") == [
        ("processed", count)
    ]
    assert harness.left() == []
