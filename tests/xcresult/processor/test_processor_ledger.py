"""Rows and deliveries change together; a claim that was lost writes nothing; whatever disagrees is mended."""

import asyncio

import pytest
from tests.xcresult.processor.processorworld import (
    add_runs,
    change,
    decision,
    hasten,
    jobs_of,
    lapse,
    ledger,
    look,
    looped,
    pool,
    put,
    row_of,
    run_number,
)
from tests.xcresult.processor.roads import Road

from runyard.db.contract import Tx, Unavailable
from runyard.xcresult.plans.attempts import Outcome
from runyard.xcresult.processor.queue import delivery

FAILED = Outcome(end="failed", code="network", reason="it was away")


@looped
async def test_a_run_is_delivered_once_however_often_it_is_completed(database_url: str) -> None:
    add_runs(database_url, 0)
    async with pool(database_url) as database:
        assert await put(database, 0) == [True]
        assert await put(database, 0, 7) == [False, False]
        assert jobs_of(database_url) == ["todo"]
        books = ledger(database)
        claim = await books.next()
        assert claim is not None and claim.attempt == 1 and claim.run_id == run_number(0)
        assert await put(database, 0) == [False]
        assert await books.next() is None
    assert jobs_of(database_url) == ["doing"]


@looped
async def test_two_consumers_never_get_the_same_run(database_url: str) -> None:
    add_runs(database_url, *range(20))
    async with pool(database_url) as database:
        await put(database, *range(20))
        each = [ledger(database, f"w{number}") for number in range(4)]
        taken = [await asyncio.gather(*(books.next() for books in each)) for _ in range(6)]
    got = [claim.run_id for claims in taken for claim in claims if claim is not None]
    assert sorted(got) == [run_number(number) for number in range(20)]


@looped
async def test_five_attempts_wait_longer_and_longer_and_then_the_run_says_why(
    database_url: str,
) -> None:
    add_runs(database_url, 0)
    async with pool(database_url) as database:
        await put(database, 0)
        books = ledger(database)
        for delay in (30, 120, 300, 600, None):
            claim = await books.next()
            assert claim is not None
            assert await books.end(claim, decision(claim, FAILED))
            assert await books.next() is None
            ((wait, job),) = look(
                database_url,
                "SELECT round(extract(epoch FROM due_at - now()) / 10) * 10,"
                " (SELECT round(extract(epoch FROM scheduled_at - now()) / 10) * 10 FROM procrastinate_jobs)"
                " FROM test_runs",
            )
            if delay is not None:
                assert (wait, job) == (delay, delay)
            hasten(database_url)
    assert row_of(database_url) == ("failed_processing", 5, 5, "", "network")
    assert jobs_of(database_url) == ["failed"]
    assert look(database_url, "SELECT outcome FROM test_attempts ORDER BY attempt") == [
        *[("retry",)] * 4,
        ("failed",),
    ]


@looped
async def test_a_damaged_bundle_is_not_tried_again(database_url: str) -> None:
    add_runs(database_url, 0)
    async with pool(database_url) as database:
        await put(database, 0)
        books = ledger(database)
        claim = await books.next()
        assert claim is not None
        await books.end(claim, decision(claim, Outcome(end="refused", code="bundle_invalid")))
        hasten(database_url)
        assert await books.next() is None
        assert row_of(database_url) == ("failed_processing", 1, 1, "", "bundle_invalid")
        assert await put(database, 0) == [True], "a person may ask for it again"
        again = await books.next()
        assert again is not None and (again.attempt, again.claims, again.spent) == (2, 1, 0)


@looped
async def test_a_dead_workers_run_is_taken_over_and_the_dead_one_can_write_nothing(
    database_url: str,
) -> None:
    add_runs(database_url, 0)
    async with pool(database_url) as database:
        await put(database, 0)
        dead, living = ledger(database, "dead"), ledger(database, "living")
        lost = await dead.next()
        assert lost is not None
        assert (await living.mend())["rescued"] == 0, "its lease holds"
        lapse(database_url)
        assert (await living.mend())["rescued"] == 1
        claim = await living.next()
        assert claim is not None and (claim.attempt, claim.spent) == (2, 1)
        assert not await dead.renew(lost)
        assert not await dead.end(lost, decision(lost, FAILED))
        assert await living.renew(claim)
    assert row_of(database_url)[:3] == ("processing", 2, 1)
    assert look(database_url, "SELECT outcome FROM test_attempts ORDER BY attempt") == [
        ("lost",),
        ("running",),
    ]


@looped
async def test_after_an_outage_nobody_is_taken_for_dead_before_he_could_say_that_he_lives(
    database_url: str,
) -> None:
    add_runs(database_url, 0)
    with Road(database_url) as road:
        async with pool(database_url) as near, pool(road.conninfo, patience=0.2) as far:
            await put(near, 0)
            dead, living = ledger(near, "dead"), ledger(far, "living")
            assert await dead.next() is not None
            lapse(database_url)
            road.close()
            for _ in range(2):
                with pytest.raises(Unavailable):
                    await living.mend()
            road.open()
            found = [(await living.mend())["rescued"] for _ in range(4)]
    assert found == [0, 0, 1, 0]


@looped
async def test_a_late_heartbeat_keeps_a_run_that_nobody_took(database_url: str) -> None:
    add_runs(database_url, 0)
    async with pool(database_url) as database:
        await put(database, 0)
        books = ledger(database)
        claim = await books.next()
        assert claim is not None
        lapse(database_url)
        assert await books.renew(claim)
        assert (await books.mend())["rescued"] == 0


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
        books = ledger(database)
        change(database_url, how)
        assert await books.next() is None
        assert (await books.mend())["redelivered"] == 2
        assert (await books.mend())["redelivered"] == 0
        assert {claim.run_id for _ in "ab" if (claim := await books.next())} == {
            run_number(0),
            run_number(1),
        }


@looped
async def test_a_queue_that_is_lost_as_a_whole_is_mended_in_one_look(database_url: str) -> None:
    add_runs(database_url, *range(120))
    async with pool(database_url) as database:
        await put(database, *range(120))
        change(database_url, "DELETE FROM procrastinate_jobs")
        assert (await ledger(database).mend())["redelivered"] == 120
    assert jobs_of(database_url) == ["todo"] * 120


@looped
async def test_a_delivery_under_way_of_a_worker_that_died_before_its_claim_is_retired(
    database_url: str,
) -> None:
    add_runs(database_url, 0)
    async with pool(database_url) as database:
        await put(database, 0)

        async def fetch_only(tx: Tx) -> None:
            await delivery.fetch(tx, worker=await delivery.alive(tx, worker=None))

        await database.transact(fetch_only, name="fetch")
        books = ledger(database)
        mended = await books.mend()
        assert (mended["retired"], mended["redelivered"]) == (1, 1)
        claim = await books.next()
        assert claim is not None
    assert jobs_of(database_url) == ["failed", "doing"]


@looped
async def test_a_delivery_that_is_none_of_ours_is_ended_and_the_next_one_taken(
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
        claim = await ledger(database).next()
    assert claim is not None and claim.run_id == run_number(0)
    assert jobs_of(database_url) == ["failed", "doing"]


@looped
async def test_a_consumer_that_was_taken_for_dead_goes_on_under_a_new_number(
    database_url: str,
) -> None:
    add_runs(database_url, 0)
    async with pool(database_url) as database:
        await put(database, 0)
        books = ledger(database)
        first = await books.beat()
        change(database_url, "DELETE FROM procrastinate_workers")
        assert await books.next() is not None
        assert await books.beat() != first


@looped
async def test_a_run_that_somebody_is_changing_is_left_for_the_next_look(database_url: str) -> None:
    add_runs(database_url, 0)
    async with pool(database_url) as database, pool(database_url) as other:
        await put(database, 0)
        books = ledger(database)

        async def hold(tx: Tx) -> None:
            await tx.one("SELECT 1 FROM test_runs FOR UPDATE")
            assert await books.next() is None

        await other.transact(hold, name="hold")
        assert await books.next() is not None
