"""`runyard processor` as a real process: it says what is missing, works, shows its numbers, and ends in order."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.cli.server_harness import SOON, Process, ask, run_here
from tests.xcresult.processor.processor_harness import Harness, looped, query, zipped
from tests.xcresult.writer.plan import Plan

from runyard.xcresult.settings import Settings


@contextlib.asynccontextmanager
async def processor(
    harness: Harness, folder: Path, *words: str, url: str = ""
) -> AsyncIterator[Process]:
    """One process; killed at the end if it has not ended."""
    secret = folder / "db.url"
    secret.write_text(url or harness.url)
    log = folder / "processor.log"
    command = [
        *(sys.executable, "-c", "from runyard.cli.main import main; main()", "processor"),
        *("--database-url-file", str(secret), "--blobs", str(harness.place.path)),
        *("--scratch", str(harness.scratch), "--reserve", "1M", "--poll", "0.05"),
        *("--listen", "127.0.0.1:0", "--json", *words),
    ]
    environ = {key: value for key, value in os.environ.items() if not key.startswith("RUNYARD_")}
    with log.open("wb") as out:
        started = Process(
            await asyncio.create_subprocess_exec(
                *command, stdout=asyncio.subprocess.PIPE, stderr=out, env=environ
            ),
            log,
        )
    try:
        yield started
    finally:
        await started.end(signal.SIGKILL)


@pytest.mark.slow
@looped
async def test_it_processes_shows_its_numbers_and_ends_in_order(
    database_url: str, tmp_path: Path
) -> None:
    harness = Harness(database_url, tmp_path)
    await harness.upload(zipped(tmp_path, Plan(cases=3, attachments=1)), 0, 1)
    async with processor(harness, tmp_path) as process:
        url = await process.serving()
        await harness.over(2)
        assert (await ask(url, "GET", "/healthz")).status == 200
        ready = await ask(url, "GET", "/readyz")
        assert ready.json()["conditions"] == []
        numbers = (await ask(url, "GET", "/metrics")).body.decode()
        for line in (
            'tuist_oban_queue_length_count{queue="process_xcresult",state="available"}',
            'tuist_oban_queue_oldest_available_age_seconds{queue="process_xcresult"}',
            'tuist_oban_job_processing_duration_milliseconds_count{queue="process_xcresult",state="completed"} 2.0',
            'tuist_repo_pool_ready_conn_count{repo="postgres"}',
            'tuist_repo_pool_size{repo="postgres"}',
            'tuist_repo_pool_checkout_queue_starved_samples{repo="postgres"} 0.0',
            'runyard_processor_attempts_total{code="none",outcome="processed"} 2.0',
            "runyard_processor_scratch_free_bytes",
            'runyard_condition{condition="no-consumer"} 0.0',
        ):
            assert line in numbers
        assert await process.end() == 0
        assert "Traceback" not in process.said()
        assert harness.url.split("password=")[1].split()[0] not in process.said()
    assert query(database_url, "SELECT count(*) FROM procrastinate_workers") == [(0,)]
    assert harness.left() == []


@pytest.mark.slow
@looped
async def test_without_its_database_it_lives_and_says_what_it_waits_for(
    database_url: str, tmp_path: Path
) -> None:
    harness = Harness(database_url, tmp_path)
    async with processor(harness, tmp_path, url="postgresql://nobody@127.0.0.1:1/none") as process:
        async with asyncio.timeout(SOON):
            while "Postgres does not respond" not in process.said():
                await asyncio.sleep(0.05)
        assert await process.end() == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "--database-url is missing"),
        (("--database-url", "postgresql://h/d"), "--blobs is missing"),
        (
            ("--database-url", "postgresql://h/d", "--blobs", "ftp://x"),
            "--blobs: ftp:// is not known",
        ),
        (
            ("--database-url", "postgresql://h/d", "--blobs", "B", "--memory", "lots"),
            "--memory: 'lots' is not a size",
        ),
        (
            ("--database-url", "postgresql://h/d", "--blobs", "B", "--scratch", "/proc/nope"),
            "--scratch:",
        ),
        (
            ("--database-url", "postgresql://h/d", "--blobs", "B", "--blobs-region", "x"),
            "are for s3://",
        ),
    ],
)
def test_a_bad_setting_is_one_line_with_its_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DATABASE_URL", raising=False)
    code, _, said = run_here("processor", *words)
    assert code == 2
    assert told in said and said.count("\n") == 1


def test_a_second_opinion_without_xcode_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("xcrun") is not None:
        monkeypatch.setenv("PATH", str(tmp_path))
    words = ("--database-url", "postgresql://h/d", "--blobs", str(tmp_path / "b"))
    code, _, said = run_here("processor", *words, "--verify-with-xcresulttool")
    assert code == 2 and "xcrun was not found" in said


def test_a_dead_workers_run_is_noticed_within_half_a_minute_by_the_settings_that_are_shipped() -> (
    None
):
    shipped = Settings(scratch=Path("/nonexistent"))
    jitter = 1.1  # of loops
    assert shipped.lease + jitter * shipped.sweep + jitter * shipped.poll < 30.0
    assert 2 * jitter * shipped.beat < shipped.lease, "one heartbeat may be lost"
