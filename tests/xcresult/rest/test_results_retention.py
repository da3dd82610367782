"""Tests retention: old rows and then objects are deleted; shared, young and unfinished ones stay."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.xcresult.rest.results_harness import OTHER_RUN, RUN, World, play

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


async def keys(world: World) -> list[str]:
    """List the keys in the store: `uploads` or `payloads`, and the end of the key."""
    found = [blob.key.split("/")[2:] async for blob in world.blobs.list()]
    return sorted(f"{parts[0]}/{parts[1][:8]}" for parts in found)


def count(world: World, table: str) -> int:
    return int(world.rows(f"SELECT count(*) FROM {table}")[0][0])


async def uploaded(world: World, run: str = RUN, **columns: object) -> None:
    """A processed run whose upload is in the store."""
    world.run(run, hours=0, **columns)
    (key,) = world.rows("SELECT storage_key FROM test_runs WHERE run_id = %s", run)[0]
    await world.blobs.put(key, b"bundle")


async def attached(world: World, run: str, *contents: bytes) -> None:
    await uploaded(world, run)
    world.case(run)
    for place, content in enumerate(contents, 1):
        await world.attachment(run, content, place=place)


def test_each_thing_is_kept_for_its_own_time(database_url: str, tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await attached(world, RUN, b"one")
        steps = (
            (13, 1, 1, 1, 2),
            (2, 1, 1, 1, 1),  # 15 days: the upload
            (14, 1, 1, 1, 1),
            (2, 1, 0, 1, 0),  # 31 days: attachments, and their bytes with them
            (58, 1, 0, 1, 0),
            (2, 0, 0, 0, 0),  # 91 days: the run, and the test without results
        )
        for days, runs, attachments, tests, objects in steps:
            world.age(days)
            await world.results.retention.step()
            there = (count(world, "test_runs"), count(world, "test_attachments"))
            assert (*there, count(world, "test_cases")) == (runs, attachments, tests), days
            assert len(await keys(world)) == objects, days
            assert count(world, "blob_graves") == 0
        for table in (
            "test_runs",
            "test_uploads",
            "test_attachments",
            "test_payloads",
            "test_cases",
        ):
            assert world.meter.get(RUNYARD_PRUNED_ROWS_TOTAL, table=table) == 1, table
        assert world.meter.get(RUNYARD_BLOBS_REMOVED_TOTAL, kind="upload", outcome="removed") == 1
        assert world.meter.get(RUNYARD_BLOBS_PENDING_DELETION) == 0

    play(scenario, database_url, tmp_path)


def test_payloads_that_another_run_refers_to_stay(database_url: str, tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await attached(world, RUN, b"shared", b"own")
        world.age(40)
        await attached(world, OTHER_RUN, b"shared")
        world.change("UPDATE test_payloads SET touched_at = now() - interval '40 days'")
        await world.results.retention.step()
        assert world.rows("SELECT run_id::text FROM test_attachments") == [(OTHER_RUN,)]
        assert len([key for key in await keys(world) if key.startswith("payloads")]) == 1
        attachment = world.rows("SELECT attachment_id::text FROM test_attachments")[0][0]
        found = await world.get(f"/api/v1/test-attachments/{attachment}")
        assert (await world.follow(found["url"])).body == b"shared"

    play(scenario, database_url, tmp_path)


def test_payloads_that_were_touched_recently_stay(database_url: str, tmp_path: Path) -> None:
    """A processor stores payloads and touches their rows minutes before it writes its results."""

    async def scenario(world: World) -> None:
        await attached(world, RUN, b"again")
        world.age(40)
        world.change("UPDATE test_payloads SET touched_at = now() - interval '10 minutes'")
        await world.results.retention.step()
        assert count(world, "test_attachments") == 0
        assert count(world, "test_payloads") == 1 and len(await keys(world)) == 1

    play(scenario, database_url, tmp_path)


def test_a_crash_between_row_and_object_is_repaired(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(_: Sequence[str]) -> None:
        raise BlobsUnavailable("no answer")

    async def scenario(world: World) -> None:
        await attached(world, RUN, b"one")
        world.age(100)
        with monkeypatch.context() as patch:
            patch.setattr(world.blobs, "delete", away)
            await world.results.retention.step()
        assert (count(world, "test_runs"), count(world, "test_payloads")) == (0, 0)
        assert count(world, "blob_graves") == 2 and len(await keys(world)) == 2
        assert world.meter.get(RUNYARD_BLOBS_PENDING_DELETION) == 2
        await world.results.retention.step()  # not at once: retries are delayed
        assert count(world, "blob_graves") == 2
        world.change("UPDATE blob_graves SET next_try = now()")
        await world.results.retention.step()
        assert count(world, "blob_graves") == 0 and await keys(world) == []

    play(scenario, database_url, tmp_path)


def test_what_is_not_over_stays_however_old(database_url: str, tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await uploaded(world, RUN)
        world.change(
            "UPDATE test_runs SET state = 'queued', status = '', due_at = now(), finished_at = NULL"
        )
        world.age(400)
        await world.results.retention.step()
        assert count(world, "test_runs") == 1 and len(await keys(world)) == 1

    play(scenario, database_url, tmp_path)


@pytest.mark.slow
def test_an_upload_that_was_not_completed_is_processed(database_url: str, tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        made = await world.announced()
        await world.follow(made["upload"]["url"], "PUT", b"bundle")
        await world.results.retention.step()
        assert world.rows("SELECT state FROM test_runs") == [("awaiting_upload",)]
        world.age(0.02)
        await world.results.retention.step()
        assert world.rows("SELECT state, archive_bytes FROM test_runs") == [("queued", 6)]
        assert count(world, "procrastinate_jobs") == 1
        assert world.meter.get(RUNYARD_TEST_UPLOADS_TOTAL, outcome="adopted") == 1

    play(scenario, database_url, tmp_path)


@pytest.mark.slow
def test_a_run_that_was_never_uploaded_is_forgotten(database_url: str, tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        first = await world.announced()
        empty = await world.announced(id=OTHER_RUN)
        await world.follow(empty["upload"]["url"], "PUT", b"")
        world.age(0.9)
        await world.announced(id=THIRD_RUN)
        await world.results.retention.step()
        assert count(world, "test_runs") == 3
        world.age(0.2)
        await world.results.retention.step()
        assert world.rows("SELECT run_id::text FROM test_runs") == [(THIRD_RUN,)]
        # A client may still upload by a valid link: that object is deleted when the link has expired.
        await world.follow(first["upload"]["url"], "PUT", b"late")
        assert len(await keys(world)) == 2 and count(world, "blob_graves") == 2
        world.change("UPDATE blob_graves SET next_try = now()")
        await world.results.retention.step()
        assert await keys(world) == []

    play(scenario, database_url, tmp_path)


def test_a_run_announced_again_is_not_deleted_with_its_first_upload(
    database_url: str, tmp_path: Path
) -> None:
    """The deletion of its first upload may still be pending: the second has another key."""

    async def scenario(world: World) -> None:
        await world.announced()
        world.age(2)
        await world.results.retention.step()
        assert count(world, "blob_graves") == 1
        again = await world.announced()
        await world.follow(again["upload"]["url"], "PUT", b"bundle")
        world.change("UPDATE blob_graves SET next_try = now()")
        await world.results.retention.step()
        assert count(world, "blob_graves") == 0 and len(await keys(world)) == 1

    play(scenario, database_url, tmp_path)


@pytest.mark.slow
def test_a_backlog_goes_in_small_batches_in_one_step(database_url: str, tmp_path: Path) -> None:
    settings = Settings(retention=Retention(batch=1))

    async def scenario(world: World) -> None:
        for number in range(10):
            run = f"00000000-0000-4000-8000-{number:012d}"
            await attached(world, run, b"%d" % number, b"same")
            for case in range(1, 9):
                world.case(run, f"test{case}()", number=case, status="failure")
                world.failure(run, "broken", number=case)
            world.covered(run, "/a.swift", {1: 1})
        world.age(100)
        await world.results.retention.step()
        for table in (
            "test_runs",
            "test_attachments",
            "test_payloads",
            "test_cases",
            "blob_graves",
        ):
            assert count(world, table) == 0, table
        assert await keys(world) == []

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
