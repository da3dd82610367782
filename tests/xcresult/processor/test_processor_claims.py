"""Tests that rows and deliveries change together, a lost claim writes nothing, and differences are repaired."""

import asyncio

import pytest
from tests.xcresult.processor.processor_harness import (
    add_runs,
    change,
    decision,
    hasten,
    jobs_of,
    lapse,
    looped,
    pool,
    put,
    query,
    row_of,
    run_claims,
    run_number,
)
from tests.xcresult.processor.tcp_proxy import TcpProxy

from runyard.db.contract import Tx, Unavailable
from runyard.wire.reasons_results import Unprocessed
from runyard.xcresult.plans.attempts import Outcome
from runyard.xcresult.processor.queue import delivery

FAILED = Outcome(end="failed", reason=Unprocessed.IO_ERROR.because(message="it was away"))
DAMAGED = Outcome(end="refused", reason=Unprocessed.BUNDLE_INVALID.because(message="no root"))


@looped
async def test_a_run_is_delivered_once_however_often_it_is_completed(database_url: str) -> None:
    add_runs(database_url, 0)
    async with pool(database_url) as database:
        assert await put(database, 0) == [True]
        assert await put(database, 0, 7) == [False, False]
        assert jobs_of(database_url) == ["todo"]
        claims = run_claims(database)
        claim = await claims.next()
        assert claim is not None and claim.attempt == 1 and claim.run_id == run_number(0)
        assert await put(database, 0) == [False]
        assert await claims.next() is None
    assert jobs_of(database_url) == ["doing"]


@looped
async def test_two_consumers_never_get_the_same_run(database_url: str) -> None:
    add_runs(database_url, *range(20))
    async with pool(database_url) as database:
        await put(database, *range(20))
        each = [run_claims(database, f"w{number}") for number in range(4)]
        taken = [await asyncio.gather(*(claims.next() for claims in each)) for _ in range(6)]
    got = [claim.run_id for claims in taken for claim in claims if claim is not None]
    assert sorted(got) == [run_number(number) for number in range(20)]


@pytest.mark.slow
@looped
async def test_five_attempts_have_growing_delays_and_then_the_run_has_the_reason(
    database_url: str,
) -> None:
    add_runs(database_url, 0)
    async with pool(database_url) as database:
        await put(database, 0)
        claims = run_claims(database)
        for delay in (30, 120, 300, 600, None):
            claim = await claims.next()
            assert claim is not None
            assert await claims.end(claim, decision(claim, FAILED))
            assert await claims.next() is None
            ((wait, job),) = query(
                database_url,
                "SELECT round(extract(epoch FROM due_at - now()) / 10) * 10,"
                " (SELECT round(extract(epoch FROM scheduled_at - now()) / 10) * 10 FROM procrastinate_jobs)"
                " FROM test_runs",
            )
            if delay is not None:
                assert (wait, job) == (delay, delay)
            hasten(database_url)
    assert row_of(database_url) == ("failed_processing", 5, 5, "", Unprocessed.IO_ERROR)
    assert jobs_of(database_url) == ["failed"]
    assert query(database_url, "SELECT outcome FROM test_attempts ORDER BY attempt") == [
        *[("retry",)] * 4,
        ("failed",),
    ]


@looped
async def test_a_damaged_bundle_is_not_tried_again(database_url: str) -> None:
    add_runs(database_url, 0)
    async with pool(database_url) as database:
        await put(database, 0)
        claims = run_claims(database)
        claim = await claims.next()
        assert claim is not None
        await claims.end(claim, decision(claim, DAMAGED))
        hasten(database_url)
        assert await claims.next() is None
        assert row_of(database_url) == ("failed_processing", 1, 1, "", Unprocessed.BUNDLE_INVALID)
        assert await put(database, 0) == [True], "a failed run can be queued again"
        again = await claims.next()
        assert again is not None and (again.attempt, again.claims, again.spent) == (2, 1, 0)


@looped
async def test_a_dead_workers_run_is_taken_over_and_the_dead_one_can_write_nothing(
    database_url: str,
) -> None:
    add_runs(database_url, 0)
    async with pool(database_url) as database:
        await put(database, 0)
        dead, living = run_claims(database, "dead"), run_claims(database, "living")
        lost = await dead.next()
        assert lost is not None
        assert (await living.repair())["rescued"] == 0, "its lease holds"
        lapse(database_url)
        assert (await living.repair())["rescued"] == 1
        claim = await living.next()
        assert claim is not None and (claim.attempt, claim.spent) == (2, 1)
        assert not await dead.renew(lost)
        assert not await dead.end(lost, decision(lost, FAILED))
        assert await living.renew(claim)
    assert row_of(database_url)[:3] == ("processing", 2, 1)
    assert query(database_url, "SELECT outcome FROM test_attempts ORDER BY attempt") == [
        ("lost",),
        ("running",),
    ]


@pytest.mark.slow
@looped
async def test_after_an_outage_no_run_is_rescued_before_live_workers_can_send_heartbeats(
    database_url: str,
) -> None:
    add_runs(database_url, 0)
    with TcpProxy(database_url) as proxy:
        async with pool(database_url) as near, pool(proxy.conninfo, patience=0.2) as far:
            await put(near, 0)
            dead, living = run_claims(near, "dead"), run_claims(far, "living")
            assert await dead.next() is not None
            lapse(database_url)
            proxy.close()
            for _ in range(2):
                with pytest.raises(Unavailable):
                    await living.repair()
            proxy.open()
            found = [(await living.repair())["rescued"] for _ in range(4)]
    assert found == [0, 0, 1, 0]


@looped
async def test_a_late_heartbeat_keeps_a_run_that_no_other_worker_took(database_url: str) -> None:
    add_runs(database_url, 0)
    async with pool(database_url) as database:
        await put(database, 0)
        claims = run_claims(database)
        claim = await claims.next()
        assert claim is not None
        lapse(database_url)
        assert await claims.renew(claim)
        assert (await claims.repair())["rescued"] == 0


@pytest.mark.parametrize(
    "how", ["DELETE FROM procrastinate_jobs", "UPDATE procrastinate_jobs SET status = 'failed'"]
)
@looped
async def test_a_run_whose_delivery_vanished_is_found_and_delivered_again(
    database_url: str, how: str
) -> None:
    add_runs(database_url, 0, 1)
    async with pool(database_url) as database:
        await put(database, 0, 1)
        claims = run_claims(database)
        change(database_url, how)
        assert await claims.next() is None
        assert (await claims.repair())["redelivered"] == 2
        assert (await claims.repair())["redelivered"] == 0
        assert {claim.run_id for _ in "ab" if (claim := await claims.next())} == {
            run_number(0),
            run_number(1),
        }


@pytest.mark.slow
@looped
async def test_a_queue_that_is_lost_as_a_whole_is_restored_in_one_step(database_url: str) -> None:
    add_runs(database_url, *range(120))
    async with pool(database_url) as database:
        await put(database, *range(120))
        change(database_url, "DELETE FROM procrastinate_jobs")
        assert (await run_claims(database).repair())["redelivered"] == 120
    assert jobs_of(database_url) == ["todo"] * 120


@looped
async def test_a_delivery_of_a_worker_that_died_before_its_claim_is_ended(
    database_url: str,
) -> None:
    add_runs(database_url, 0)
    async with pool(database_url) as database:
        await put(database, 0)

        async def fetch_only(tx: Tx) -> None:
            await delivery.fetch(tx, worker=await delivery.write_heartbeat(tx, worker=None))

        await database.transact(fetch_only, name="fetch")
        claims = run_claims(database)
        repaired = await claims.repair()
        assert (repaired["retired"], repaired["redelivered"]) == (1, 1)
        claim = await claims.next()
        assert claim is not None
    assert jobs_of(database_url) == ["failed", "doing"]


@looped
async def test_a_foreign_delivery_is_ended_and_the_next_one_fetched(
    database_url: str,
) -> None:
    add_runs(database_url, 0)
    change(
        database_url,
        "INSERT INTO procrastinate_jobs (queue_name, task_name, args)"
        """ VALUES ('process_xcresult', 'process_xcresult', '{"run_id": "'' OR 1=1", "shard": "x"}')""",
    )
    async with pool(database_url) as database:
        await put(database, 0)
        claim = await run_claims(database).next()
    assert claim is not None and claim.run_id == run_number(0)
    assert jobs_of(database_url) == ["failed", "doing"]


@looped
async def test_a_consumer_that_was_removed_continues_with_a_new_number(
    database_url: str,
) -> None:
    add_runs(database_url, 0)
    async with pool(database_url) as database:
        await put(database, 0)
        claims = run_claims(database)
        first = await claims.beat()
        change(database_url, "DELETE FROM procrastinate_workers")
        assert await claims.next() is not None
        assert await claims.beat() != first


@looped
async def test_a_run_another_transaction_is_changing_is_left_for_the_next_step(
    database_url: str,
) -> None:
    add_runs(database_url, 0)
    async with pool(database_url) as database, pool(database_url) as other:
        await put(database, 0)
        claims = run_claims(database)

        async def hold(tx: Tx) -> None:
            await tx.one("SELECT 1 FROM test_runs FOR UPDATE")
            assert await claims.next() is None

        await other.transact(hold, name="hold")
        assert await claims.next() is not None
