"""Tests retention: old rows and then objects are deleted; shared, young and unfinished ones stay."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.xcresult.rest.results_harness import OTHER_RUN, RUN, Harness, play

from runyard.blobs.errors import BlobsUnavailable
from runyard.telemetry.catalogue import (
    RUNYARD_BLOBS_PENDING_DELETION,
    RUNYARD_BLOBS_REMOVED_TOTAL,
    RUNYARD_PRUNED_ROWS_TOTAL,
    RUNYARD_TEST_UPLOADS_TOTAL,
)
from runyard.xcresult.plans.retention import Times, fate, plan
from runyard.xcresult.rest.settings import Retention, Settings

THIRD_RUN = "33333333-3333-4333-8333-333333333333"


async def keys(harness: Harness) -> list[str]:
    """List the keys in the store: `uploads` or `payloads`, and the end of the key."""
    found = [blob.key.split("/")[2:] async for blob in harness.blobs.list()]
    return sorted(f"{parts[0]}/{parts[1][:8]}" for parts in found)


def count(harness: Harness, table: str) -> int:
    return int(harness.rows(f"SELECT count(*) FROM {table}")[0][0])


async def uploaded(harness: Harness, run: str = RUN, **columns: object) -> None:
    """A processed run whose upload is in the store."""
    harness.run(run, hours=0, **columns)
    (key,) = harness.rows("SELECT storage_key FROM test_runs WHERE run_id = %s", run)[0]
    await harness.blobs.put(key, b"bundle")


async def attached(harness: Harness, run: str, *contents: bytes) -> None:
    await uploaded(harness, run)
    harness.case(run)
    for place, content in enumerate(contents, 1):
        await harness.attachment(run, content, place=place)


def test_each_thing_is_kept_for_its_own_time(database_url: str, tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        await attached(harness, RUN, b"one")
        steps = (
            (13, 1, 1, 1, 2),
            (2, 1, 1, 1, 1),  # 15 days: the upload
            (14, 1, 1, 1, 1),
            (2, 1, 0, 1, 0),  # 31 days: attachments, and their bytes with them
            (58, 1, 0, 1, 0),
            (2, 0, 0, 0, 0),  # 91 days: the run, and the test without results
        )
        for days, runs, attachments, tests, objects in steps:
            harness.age(days)
            await harness.results.retention.step()
            there = (count(harness, "test_runs"), count(harness, "test_attachments"))
            assert (*there, count(harness, "test_cases")) == (runs, attachments, tests), days
            assert len(await keys(harness)) == objects, days
            assert count(harness, "blob_graves") == 0
        for table in (
            "test_runs",
            "test_uploads",
            "test_attachments",
            "test_payloads",
            "test_cases",
        ):
            assert harness.meter.get(RUNYARD_PRUNED_ROWS_TOTAL, table=table) == 1, table
        assert harness.meter.get(RUNYARD_BLOBS_REMOVED_TOTAL, kind="upload", outcome="removed") == 1
        assert harness.meter.get(RUNYARD_BLOBS_PENDING_DELETION) == 0

    play(scenario, database_url, tmp_path)


def test_payloads_that_another_run_refers_to_stay(database_url: str, tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        await attached(harness, RUN, b"shared", b"own")
        harness.age(40)
        await attached(harness, OTHER_RUN, b"shared")
        harness.change("UPDATE test_payloads SET touched_at = now() - interval '40 days'")
        await harness.results.retention.step()
        assert harness.rows("SELECT run_id::text FROM test_attachments") == [(OTHER_RUN,)]
        assert len([key for key in await keys(harness) if key.startswith("payloads")]) == 1
        attachment = harness.rows("SELECT attachment_id::text FROM test_attachments")[0][0]
        found = await harness.get(f"/api/v1/test-attachments/{attachment}")
        assert (await harness.follow(found["url"])).body == b"shared"

    play(scenario, database_url, tmp_path)


def test_payloads_that_were_touched_recently_stay(database_url: str, tmp_path: Path) -> None:
    """A processor stores payloads and touches their rows minutes before it writes its results."""

    async def scenario(harness: Harness) -> None:
        await attached(harness, RUN, b"again")
        harness.age(40)
        harness.change("UPDATE test_payloads SET touched_at = now() - interval '10 minutes'")
        await harness.results.retention.step()
        assert count(harness, "test_attachments") == 0
        assert count(harness, "test_payloads") == 1 and len(await keys(harness)) == 1

    play(scenario, database_url, tmp_path)


def test_a_crash_between_row_and_object_is_repaired(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(_: Sequence[str]) -> None:
        raise BlobsUnavailable("no answer")

    async def scenario(harness: Harness) -> None:
        await attached(harness, RUN, b"one")
        harness.age(100)
        with monkeypatch.context() as patch:
            patch.setattr(harness.blobs, "delete", away)
            await harness.results.retention.step()
        assert (count(harness, "test_runs"), count(harness, "test_payloads")) == (0, 0)
        assert count(harness, "blob_graves") == 2 and len(await keys(harness)) == 2
        assert harness.meter.get(RUNYARD_BLOBS_PENDING_DELETION) == 2
        await harness.results.retention.step()  # not at once: retries are delayed
        assert count(harness, "blob_graves") == 2
        harness.change("UPDATE blob_graves SET next_try = now()")
        await harness.results.retention.step()
        assert count(harness, "blob_graves") == 0 and await keys(harness) == []

    play(scenario, database_url, tmp_path)


def test_what_is_not_over_stays_however_old(database_url: str, tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        await uploaded(harness, RUN)
        harness.change(
            "UPDATE test_runs SET state = 'queued', status = '', due_at = now(), finished_at = NULL"
        )
        harness.age(400)
        await harness.results.retention.step()
        assert count(harness, "test_runs") == 1 and len(await keys(harness)) == 1

    play(scenario, database_url, tmp_path)


@pytest.mark.slow
def test_an_upload_that_was_not_completed_is_processed(database_url: str, tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        made = await harness.announced()
        await harness.follow(made["upload"]["url"], "PUT", b"bundle")
        await harness.results.retention.step()
        assert harness.rows("SELECT state FROM test_runs") == [("awaiting_upload",)]
        harness.age(0.02)
        await harness.results.retention.step()
        assert harness.rows("SELECT state, archive_bytes FROM test_runs") == [("queued", 6)]
        assert count(harness, "procrastinate_jobs") == 1
        assert harness.meter.get(RUNYARD_TEST_UPLOADS_TOTAL, outcome="adopted") == 1

    play(scenario, database_url, tmp_path)


@pytest.mark.slow
def test_a_run_that_was_never_uploaded_is_forgotten(database_url: str, tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        first = await harness.announced()
        empty = await harness.announced(id=OTHER_RUN)
        await harness.follow(empty["upload"]["url"], "PUT", b"")
        harness.age(0.9)
        await harness.announced(id=THIRD_RUN)
        await harness.results.retention.step()
        assert count(harness, "test_runs") == 3
        harness.age(0.2)
        await harness.results.retention.step()
        assert harness.rows("SELECT run_id::text FROM test_runs") == [(THIRD_RUN,)]
        # A client may still upload by a valid link: that object is deleted when the link has expired.
        await harness.follow(first["upload"]["url"], "PUT", b"late")
        assert len(await keys(harness)) == 2 and count(harness, "blob_graves") == 2
        # A link may have been made just now, and its upload may begin just before it expires.
        settings = Settings()
        latest = settings.upload_lasts + settings.upload_longest
        ((early,),) = harness.rows(
            "SELECT count(*) FROM blob_graves WHERE next_try < now() + make_interval(secs => %s)",
            latest - 60,
        )
        assert early == 0
        harness.change("UPDATE blob_graves SET next_try = now()")
        await harness.results.retention.step()
        assert await keys(harness) == []

    play(scenario, database_url, tmp_path)


def test_a_run_announced_again_is_not_deleted_with_its_first_upload(
    database_url: str, tmp_path: Path
) -> None:
    """The deletion of its first upload may still be pending: the second has another key."""

    async def scenario(harness: Harness) -> None:
        await harness.announced()
        harness.age(2)
        await harness.results.retention.step()
        assert count(harness, "blob_graves") == 1
        again = await harness.announced()
        await harness.follow(again["upload"]["url"], "PUT", b"bundle")
        harness.change("UPDATE blob_graves SET next_try = now()")
        await harness.results.retention.step()
        assert count(harness, "blob_graves") == 0 and len(await keys(harness)) == 1

    play(scenario, database_url, tmp_path)


@pytest.mark.slow
def test_a_backlog_goes_in_small_batches_in_one_step(database_url: str, tmp_path: Path) -> None:
    settings = Settings(retention=Retention(batch=1))

    async def scenario(harness: Harness) -> None:
        for number in range(10):
            run = f"00000000-0000-4000-8000-{number:012d}"
            await attached(harness, run, b"%d" % number, b"same")
            for case in range(1, 9):
                harness.case(run, f"test{case}()", number=case, status="failure")
                harness.failure(run, "broken", number=case)
            harness.covered(run, "/a.swift", {1: 1})
        harness.age(100)
        await harness.results.retention.step()
        for table in (
            "test_runs",
            "test_attachments",
            "test_payloads",
            "test_cases",
            "blob_graves",
        ):
            assert count(harness, table) == 0, table
        assert await keys(harness) == []

    play(scenario, database_url, tmp_path, settings=settings)


def test_nothing_outlives_the_run_that_it_belongs_to() -> None:
    found = plan(Times(runs=10, attachments=50, uploads=50), batch=1)
    rules = (found.results, found.runs, *found.parts)
    assert {rule.older for rule in rules} == {10}
    assert all(rule.limit >= 1 for rule in rules)


@pytest.mark.parametrize(
    ("size", "over", "expected"),
    [
        (5, False, "adopt"),
        (5, True, "adopt"),
        (0, False, "wait"),
        (0, True, "abandon"),
        (11, False, "wait"),
        (11, True, "abandon"),
        (None, False, "wait"),
        (None, True, "abandon"),
    ],
)
def test_the_fate_of_an_unfinished_upload(size: int | None, over: bool, expected: str) -> None:
    assert fate(size, limit=10, over=over) == expected
