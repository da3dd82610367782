"""Tests that a failing attempt never costs the worker, the results of another attempt, or disk space."""

import asyncio
import errno
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.xcresult.processor.processor_harness import (
    Harness,
    archived,
    change,
    jobs_of,
    lapse,
    looped,
    query,
    row_of,
    zipped,
)
from tests.xcresult.writer.plan import Plan
from tests.xcresult.writer.writing import write_bundle

from runyard.wire.reasons_results import Unprocessed
from runyard.xcresult.archives.limits import Limits
from runyard.xcresult.processor.child_process import MODULE
from runyard.xcresult.reader.frames import compress
from runyard.xcresult.reader.ids import content_id, encode_refs
from runyard.xcresult.settings import MEBIBYTE

SMALL = Plan(cases=3, attachments=2)


class Gate:
    """Object storage whose downloads wait until the gate is opened."""

    def __init__(self, harness: Harness, *, error: Exception | None = None) -> None:
        self._blobs = harness.blobs
        self._error = error
        self.reached = asyncio.Event()
        self.open = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._blobs, name)

    async def download(self, key: str, path: Path) -> int:
        (path.parent / "half").write_bytes(b"x" * 100)
        self.reached.set()
        if self._error is not None:
            raise self._error
        await self.open.wait()
        return await self._blobs.download(key, path)


def children() -> list[int]:
    """The living child processes of this process that read bundles."""
    listed = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in listed if MODULE in _command(pid)]


def _command(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


@pytest.mark.slow
@looped
async def test_a_worker_that_lost_its_run_cannot_write_over_the_newer_result(
    database_url: str, tmp_path: Path
) -> None:
    harness = Harness(database_url, tmp_path)
    await harness.upload(zipped(tmp_path, SMALL), 0)
    gate = Gate(harness)
    async with harness.processing(name="slow", slots=1, blobs=gate, beat=1000, sweep=1000):
        await gate.reached.wait()
        lapse(database_url)
        async with harness.processing(name="quick"):
            await harness.over(1)
        before = query(database_url, "SELECT xmin::text FROM test_case_runs ORDER BY number")
        gate.open.set()
    assert query(database_url, "SELECT xmin::text FROM test_case_runs ORDER BY number") == before
    assert query(
        database_url,
        "SELECT outcome, split_part(owner, '/', 1) FROM test_attempts ORDER BY attempt",
    ) == [
        ("lost", "slow"),
        ("processed", "quick"),
    ]
    assert row_of(database_url)[:3] == ("processed", 2, 2)
    assert harness.left() == []


@looped
async def test_a_run_that_is_deleted_stops_the_work_on_it_and_leaves_nothing(
    database_url: str, tmp_path: Path
) -> None:
    harness = Harness(database_url, tmp_path)
    await harness.upload(zipped(tmp_path, SMALL), 0)
    gate = Gate(harness)
    async with harness.processing(blobs=gate, beat=0.05):
        await gate.reached.wait()
        assert harness.left() != []
        change(database_url, "DELETE FROM test_runs")
        async with asyncio.timeout(20):
            while harness.left():
                await asyncio.sleep(0.02)
    assert children() == []


@pytest.mark.slow
@looped
async def test_a_worker_that_is_stopped_gives_its_run_back_at_no_cost(
    database_url: str, tmp_path: Path
) -> None:
    harness = Harness(database_url, tmp_path)
    await harness.upload(zipped(tmp_path, SMALL), 0)
    gate = Gate(harness)
    async with harness.processing(blobs=gate, finish_within=0.0):
        await gate.reached.wait()
    assert row_of(database_url)[:4] == ("queued", 1, 0, "")
    assert jobs_of(database_url) == ["todo"]
    assert harness.left() == []
    assert query(database_url, "SELECT count(*) FROM procrastinate_workers") == [(0,)]
    async with harness.processing():
        await harness.over(1)
    assert row_of(database_url)[:3] == ("processed", 2, 1)


@pytest.mark.slow
@looped
async def test_a_worker_that_is_stopped_finishes_a_run_within_the_grace_time(
    database_url: str, tmp_path: Path
) -> None:
    harness = Harness(database_url, tmp_path)
    await harness.upload(zipped(tmp_path, SMALL), 0, 1)
    gate = Gate(harness)
    async with harness.processing(slots=1, blobs=gate):
        await gate.reached.wait()
        gate.open.set()
    assert sorted(state for (state,) in query(database_url, "SELECT state FROM test_runs")) == [
        "processed",
        "queued",
    ]


@looped
async def test_a_full_disk_is_not_an_error_of_the_bundle(database_url: str, tmp_path: Path) -> None:
    harness = Harness(database_url, tmp_path)
    await harness.upload(zipped(tmp_path, SMALL), 0)
    gate = Gate(harness, error=OSError(errno.ENOSPC, "No space left on device"))
    async with harness.processing(blobs=gate):
        await harness.until(
            "SELECT count(*) FROM test_attempts WHERE outcome = 'released'", lambda n: n == 1
        )
    assert row_of(database_url) == ("queued", 1, 0, "", Unprocessed.NO_SPACE)
    assert harness.left() == []


@pytest.mark.slow
@looped
async def test_a_bundle_that_does_not_fit_is_left_to_another_machine(
    database_url: str, tmp_path: Path
) -> None:
    harness = Harness(database_url, tmp_path)
    await harness.upload(zipped(tmp_path, SMALL), 0)
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    async with harness.processing(reserve=free + 100 * MEBIBYTE) as full:
        await harness.until("SELECT count(*) FROM procrastinate_workers", lambda n: n == 1)
        async with harness.processing(name="roomy"):
            await harness.over(1)
        assert full.health.conditions()["scratch-full"] is False, (
            "the condition is too recent to be shown"
        )
    assert row_of(database_url)[:2] == ("processed", 1)
    assert query(database_url, "SELECT split_part(owner, '/', 1) FROM test_attempts") == [
        ("roomy",)
    ]


@looped
async def test_reading_longer_than_the_limit_is_ended_and_tried_again(
    database_url: str, tmp_path: Path
) -> None:
    harness = Harness(database_url, tmp_path)
    await harness.upload(zipped(tmp_path, SMALL), 0)
    async with harness.processing(limit=0.05, grace=0.1):
        await harness.until("SELECT spent FROM test_runs", lambda spent: spent == 1)
    assert row_of(database_url) == ("queued", 1, 1, "", Unprocessed.READ_TIMEOUT)
    assert query(database_url, "SELECT reason_detail FROM test_runs") == [({"limit": 0.05},)]
    assert (harness.left(), children()) == ([], [])


@looped
async def test_a_download_longer_than_the_limit_is_ended_and_tried_again(
    database_url: str, tmp_path: Path
) -> None:
    harness = Harness(database_url, tmp_path)
    await harness.upload(zipped(tmp_path, SMALL), 0)
    async with harness.processing(limit=0.01, blobs=Gate(harness)):
        await harness.until("SELECT spent FROM test_runs", lambda spent: spent == 1)
    assert row_of(database_url) == ("queued", 1, 1, "", Unprocessed.DOWNLOAD_TIMEOUT)
    assert harness.left() == []


@pytest.mark.slow
@looped
async def test_a_bundle_that_uses_all_memory_ends_only_its_child_process_and_is_not_tried_again(
    database_url: str, tmp_path: Path
) -> None:
    harness = Harness(database_url, tmp_path)
    await harness.upload(_bomb(tmp_path, 300 * MEBIBYTE), 0)
    await harness.upload(zipped(tmp_path, SMALL), 1)
    large = Limits(object_bytes=512 * MEBIBYTE)
    async with harness.processing(memory=320 * MEBIBYTE, limits=large):
        await harness.over(2)
    exhausted = ("failed_processing", 1, 1, "", Unprocessed.MEMORY_EXCEEDED)
    assert (row_of(database_url), row_of(database_url, 1)[0]) == (exhausted, "processed")
    assert harness.left() == []


def _bomb(folder: Path, size: int) -> bytes:
    """Build a bundle whose root is small on disk and large when decompressed."""
    bundle = folder / "Tests.xcresult"
    written = write_bundle(bundle, SMALL)
    stored = compress(b"[" + b"x" * size)
    root = content_id((), (stored,))
    (bundle / "Data" / f"data.{root}").write_bytes(stored)
    (bundle / "Data" / f"refs.{root}").write_bytes(encode_refs(()))
    info = bundle / "Info.plist"
    info.write_text(info.read_text().replace(written.root_id, root))
    return archived(bundle)


@pytest.mark.slow
@looped
async def test_a_bundle_that_uses_all_processor_time_does_not_use_it_again(
    database_url: str, tmp_path: Path
) -> None:
    harness = Harness(database_url, tmp_path)
    await harness.upload(zipped(tmp_path, Plan(cases=300)), 0)
    async with harness.processing():
        os.kill(await _child(), signal.SIGXCPU)  # as the kernel does at the limit
        await harness.over(1)
    exhausted = ("failed_processing", 1, 1, "", Unprocessed.CPU_TIME_EXCEEDED)
    assert row_of(database_url) == exhausted
    assert harness.left() == []


async def _child() -> int:
    async with asyncio.timeout(20):
        while not (found := children()):
            await asyncio.sleep(0.01)
    return found[0]


@pytest.mark.slow
@looped
async def test_a_crashed_child_process_is_reported_with_its_signal_and_retried(
    database_url: str, tmp_path: Path
) -> None:
    harness = Harness(database_url, tmp_path)
    await harness.upload(zipped(tmp_path, Plan(cases=300)), 0)
    async with harness.processing():
        os.kill(await _child(), signal.SIGSEGV)
        await harness.until("SELECT spent FROM test_runs", lambda spent: spent == 1)
    stored = "SELECT reason_code, reason_detail FROM"
    crashed = (Unprocessed.READER_CRASHED, {"signal": "SIGSEGV"})
    assert query(database_url, f"{stored} test_runs") == [crashed]
    assert query(database_url, f"{stored} test_attempts") == [crashed]
    assert harness.left() == []


@pytest.mark.slow
@looped
async def test_reading_writes_only_in_its_workdir(database_url: str, tmp_path: Path) -> None:
    harness = Harness(database_url, tmp_path)
    trace = tmp_path / "trace"
    harness.trace = str(trace)
    plan = Plan(cases=20, failures=3, attachments=5, coverage=2, crashes=1, build_issues=1)
    await harness.upload(zipped(tmp_path, plan), 0)
    async with harness.processing():
        await harness.over(1)
    written = [Path(line) for line in trace.read_text().splitlines()]
    assert len(written) > 20
    outside = [path for path in written if not path.is_relative_to(harness.scratch)]
    assert outside == []
    assert harness.left() == []
