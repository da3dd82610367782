"""Tests that an upload becomes rows: everything in the bundle once, and no files are left."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.xcresult.fixtures import HOME, bundle
from tests.xcresult.fixtures import names as names_of_bundles
from tests.xcresult.processor.processor_harness import (
    Harness,
    change,
    looped,
    pool,
    put,
    query,
    row_of,
    zipped,
)
from tests.xcresult.writer.plan import Plan

from runyard.blobs.errors import BlobsUnavailable
from runyard.telemetry.catalogue import RUNYARD_PROCESSOR_ATTACHMENTS_TOTAL
from runyard.wire.reasons_results import Unprocessed
from runyard.xcresult.bundle.reading import read, read_bundle
from runyard.xcresult.coverage_encoding import unpack
from runyard.xcresult.errors import XcresultError
from runyard.xcresult.processor.failures import refusal
from runyard.xcresult.reader.report import report

RICH = Plan(
    cases=40,
    targets=2,
    suites=4,
    failures=4,
    skips=3,
    retries=3,
    arguments=4,
    attachments=12,
    payloads=5,
    crashes=1,
    coverage=3,
    build_issues=2,
)
TABLES = (
    *("test_modules", "test_suites", "test_cases", "test_case_runs", "test_arguments"),
    *("test_repetitions", "test_failures", "test_payloads", "test_attachments", "test_crashes"),
    *("coverage_targets", "coverage_files"),
)


def counts(url: str) -> dict[str, int]:
    return {table: query(url, f"SELECT count(*) FROM {table}")[0][0] for table in TABLES}


def contents(url: str) -> dict[str, list[str]]:
    """The content of all tables, without times."""
    return {
        table: sorted(
            text
            for (text,) in query(url, f"SELECT (to_jsonb(t) - 'touched_at')::text FROM {table} t")
        )
        for table in TABLES
    }


@pytest.mark.slow
@looped
async def test_a_bundle_becomes_rows_and_processing_it_again_gives_the_same(
    database_url: str, tmp_path: Path
) -> None:
    harness = Harness(database_url, tmp_path)
    await harness.upload(zipped(tmp_path, RICH), 0)
    async with harness.processing():
        await harness.over(1)
        assert row_of(database_url) == ("processed", 1, 1, "", "")
        first = contents(database_url)
        assert all(counts(database_url).values())
        async with pool(database_url) as database:
            await put(database, 0)
        await harness.over(1)
    assert row_of(database_url)[:2] == ("processed", 2)
    assert contents(database_url) == first
    assert harness.left() == []


@pytest.mark.slow
@looped
async def test_the_rows_equal_the_report(database_url: str, tmp_path: Path) -> None:
    harness = Harness(database_url, tmp_path)
    content = zipped(tmp_path, RICH)
    await harness.upload(content, 0)
    async with harness.processing():
        await harness.over(1)
    (tmp_path / "b.zip").write_bytes(content)
    expected = report(read(tmp_path / "b.zip"))
    cases = [case for module in expected.test_modules for case in module.test_cases]
    assert query(
        database_url,
        "SELECT r.name, s.name, m.name, r.status, r.duration_ms, r.is_flaky FROM test_case_runs r"
        " JOIN test_modules m USING (run_id, shard, module)"
        " LEFT JOIN test_suites s USING (run_id, shard, suite) ORDER BY number",
    ) == [
        (case.name, case.test_suite_name, case.module, case.status, case.duration, case.is_flaky)
        for case in cases
    ]
    ((status, found, failed, skipped, flaky, plan),) = query(
        database_url, "SELECT status, cases, failed, skipped, flaky, test_plan FROM test_runs"
    )
    assert (status, found, plan) == (expected.status, len(cases), expected.test_plan_name)
    assert failed == sum(case.status == "failure" for case in cases) > 0
    assert skipped == sum(case.status == "skipped" for case in cases) > 0
    assert flaky == sum(case.is_flaky for case in cases) > 0
    assert query(
        database_url,
        "SELECT message, path, line_number FROM test_failures"
        " WHERE repetition = 0 AND argument = 0 ORDER BY number, failure",
    ) == [
        (failure.message, failure.path or "", failure.line_number)
        for case in cases
        for failure in case.failures
    ]
    packed = query(database_url, "SELECT executable_lines, lines FROM coverage_files ORDER BY file")
    assert [len(unpack(lines)) for _, lines in packed] == [count for count, _ in packed]


@pytest.mark.slow
@looped
async def test_attachments_are_stored_once_a_project_with_their_bytes(
    database_url: str, tmp_path: Path
) -> None:
    harness = Harness(database_url, tmp_path)
    plan = Plan(cases=4, attachments=6, payloads=2, attachment_bytes=200_000)
    content = zipped(tmp_path, plan)
    await harness.upload(content, 0, 1)
    async with harness.processing(slots=1):
        await harness.over(2)
    keys = query(
        database_url, "SELECT storage_key, size, uploaded_at IS NOT NULL FROM test_payloads"
    )
    assert len(keys) == 2
    for key, size, uploaded in keys:
        stored = await harness.blobs.head(key)
        assert stored is not None and stored.size == size and uploaded
    assert counts(database_url)["test_attachments"] == 12
    assert harness.meter.get(RUNYARD_PROCESSOR_ATTACHMENTS_TOTAL, outcome="known") == 2


class Refusing:
    """Object storage that refuses some attachments, or does not respond."""

    def __init__(self, harness: Harness, *, takes: int, silent: bool = False) -> None:
        self._blobs = harness.blobs
        self._takes = takes
        self._silent = silent
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._blobs, name)

    async def put(self, key: str, content: Any, *, limit: int | None = None) -> int:
        self._takes -= 1
        self.asked += 1
        if self._takes < 0 and self._silent:
            await asyncio.Event().wait()
        if self._takes < 0:
            raise BlobsUnavailable("no")
        return await self._blobs.put(key, content, limit=limit)


@pytest.mark.slow
@looped
async def test_an_upload_that_fails_costs_that_attachment_only(
    database_url: str, tmp_path: Path
) -> None:
    harness = Harness(database_url, tmp_path)
    await harness.upload(zipped(tmp_path, Plan(cases=4, attachments=4)), 0)
    async with harness.processing(blobs=Refusing(harness, takes=3)):
        await harness.over(1)
    assert query(database_url, "SELECT state, attachments_dropped FROM test_runs") == [
        ("processed", 1)
    ]
    assert counts(database_url)["test_attachments"] == 3


@pytest.mark.slow
@looped
async def test_an_unavailable_store_is_retried_and_at_last_results_have_no_attachments(
    database_url: str, tmp_path: Path
) -> None:
    harness = Harness(database_url, tmp_path)
    await harness.upload(zipped(tmp_path, Plan(cases=2, attachments=2)), 0)
    async with harness.processing(blobs=Refusing(harness, takes=0)) as processor:
        await harness.until("SELECT spent FROM test_runs", lambda spent: spent == 1)
        await harness.wait_for_log("ended")
        assert "object-store-unreachable" in processor.health._failing, (
            "the condition is shown after a while"
        )
        assert row_of(database_url)[4] == Unprocessed.STORAGE_UNAVAILABLE
        change(database_url, "UPDATE test_runs SET spent = 4, due_at = now()")
        change(database_url, "UPDATE procrastinate_jobs SET scheduled_at = now()")
        await harness.over(1)
    assert query(database_url, "SELECT state, attachments_dropped FROM test_runs") == [
        ("processed", 2)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("silent", [False, True])
@looped
async def test_an_unavailable_store_loses_no_attachments_when_others_are_stored(
    database_url: str, tmp_path: Path, silent: bool
) -> None:
    harness = Harness(database_url, tmp_path)
    content = zipped(tmp_path, Plan(cases=2, attachments=2))
    await harness.upload(content, 0)
    async with harness.processing():
        await harness.over(1)
    change(
        database_url,
        "UPDATE test_payloads SET uploaded_at = NULL"
        " WHERE content_id = (SELECT max(content_id) FROM test_payloads)",
    )
    await harness.upload(content, 1)
    away = Refusing(harness, takes=0, silent=silent)
    async with harness.processing(blobs=away, upload_within=0.05):
        await harness.until(
            "SELECT count(*) FROM test_attempts WHERE outcome = 'retry'", lambda n: n == 1
        )
    assert away.asked == 1
    assert query(database_url, "SELECT reason_code FROM test_runs WHERE state = 'queued'") == [
        (Unprocessed.STORAGE_UNAVAILABLE,)
    ]


@pytest.mark.slow
@looped
async def test_no_more_uploads_are_sent_to_an_unavailable_store(
    database_url: str, tmp_path: Path
) -> None:
    harness = Harness(database_url, tmp_path)
    await harness.upload(zipped(tmp_path, Plan(cases=2, attachments=60, payloads=60)), 0)
    away = Refusing(harness, takes=20)
    async with harness.processing(blobs=away, uploads=4):
        await harness.until("SELECT spent FROM test_runs", lambda spent: spent == 1)
    assert 24 <= away.asked <= 30
    assert row_of(database_url)[4] == Unprocessed.STORAGE_UNAVAILABLE


@pytest.mark.slow
@looped
async def test_quarantined_failures_do_not_fail_a_run(database_url: str, tmp_path: Path) -> None:
    harness = Harness(database_url, tmp_path)
    content = zipped(tmp_path, Plan(cases=6, failures=2))
    await harness.upload(content, 0)
    async with harness.processing():
        await harness.over(1)
        (targets,) = query(database_url, "SELECT array_agg(name) FROM test_modules")[0]
        listed = json.dumps([{"target": name} for name in targets]).encode()
        await harness.upload(
            zipped(tmp_path, Plan(cases=6, failures=2), quarantined_tests__json=listed), 1
        )
        await harness.upload(
            zipped(tmp_path, Plan(cases=6, failures=2), quarantined_tests__json=b"{"), 2
        )
        await harness.over(3)
    assert query(
        database_url,
        "SELECT status, failed, jsonb_array_length(warnings),"
        " (SELECT count(*) FROM test_case_runs c WHERE c.run_id = r.run_id AND is_quarantined)"
        " FROM test_runs r ORDER BY run_id",
    ) == [("failure", 2, 0, 0), ("success", 2, 0, 6), ("failure", 2, 1, 0)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"PK nonsense", Unprocessed.BUNDLE_INVALID),
        (b"", Unprocessed.XCRESULT_NOT_FOUND),
        (b"hello, world", Unprocessed.UNSUPPORTED_FORMAT),
    ],
)
@looped
async def test_an_upload_that_is_not_a_bundle_fails_at_once_with_a_reason(
    database_url: str, tmp_path: Path, content: bytes, code: Unprocessed
) -> None:
    harness = Harness(database_url, tmp_path)
    await harness.upload(content, 0)
    async with harness.processing():
        await harness.over(1)
    assert row_of(database_url) == ("failed_processing", 1, 1, "", code)
    assert harness.left() == []


@looped
async def test_a_missing_upload_is_retried_and_reported(database_url: str, tmp_path: Path) -> None:
    harness = Harness(database_url, tmp_path)
    await harness.upload(b"", 0)
    await harness.blobs.delete(["uploads/0"])
    async with harness.processing():
        await harness.until("SELECT spent FROM test_runs", lambda spent: spent == 1)
    assert row_of(database_url) == ("queued", 1, 1, "", Unprocessed.UPLOAD_MISSING)


@pytest.mark.slow
@looped
async def test_a_bundle_without_tests_failed_and_was_not_skipped(
    database_url: str, tmp_path: Path
) -> None:
    harness = Harness(database_url, tmp_path)
    await harness.upload(zipped(tmp_path, Plan(cases=0)), 0)
    async with harness.processing():
        await harness.over(1)
    assert row_of(database_url)[::4] == ("failed_processing", Unprocessed.NO_TESTS)


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(9, marks=pytest.mark.slow),
        pytest.param(1, marks=[pytest.mark.long, pytest.mark.timeout(600)]),
    ],
    ids=["some", "all"],
)
@looped
async def test_the_real_bundles_become_rows(database_url: str, tmp_path: Path, step: int) -> None:
    harness = Harness(database_url, tmp_path)
    if not (names := names_of_bundles()[::step]):
        pytest.skip("no real result bundles here")
    for number, name in enumerate(names):
        await harness.upload((HOME / f"{name}.xcresult.zip").read_bytes(), number)
    async with harness.processing():
        await harness.over(len(names), within=120)
    rows = query(
        database_url, "SELECT state, status, cases, reason_code FROM test_runs ORDER BY run_id"
    )
    assert [_expected(name) for name in names] == rows
    assert harness.left() == []


def _expected(name: str) -> tuple[str, str, int, str]:
    try:
        expected = report(read_bundle(bundle(name)))
    except XcresultError as error:
        return "failed_processing", "", 0, refusal(error)
    cases = sum(len(module.test_cases) for module in expected.test_modules)
    if not expected.test_modules:
        return "failed_processing", "", 0, Unprocessed.NO_TESTS
    return "processed", expected.status, cases, ""
