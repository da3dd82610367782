"""Measures the processor: real uploads in a directory, a real Postgres, `runyard processor` as a process.

All runs are queued before it starts, so that no waiting is measured.
"""

import asyncio
import io
import os
import random
import resource
import signal
import subprocess
import sys
import time
import uuid
import zipfile
from pathlib import Path

import msgspec
import psycopg
from tests.xcresult.writer.plan import Plan
from tests.xcresult.writer.writing import write_bundle

from runyard.blobs.location import Directory
from runyard.blobs.opening import open_blobs
from runyard.clock import RealClock
from runyard.db import migrate
from runyard.db.contract import Tx
from runyard.db.pooled import open_pool
from runyard.embedded.postgres.provide import provide
from runyard.xcresult.processor.enqueueing import enqueue

ROOT = Path(__file__).parents[2]
KEY = "uploads/bundle.zip"
PLAN = Plan(
    cases=200,
    targets=2,
    suites=10,
    activities=6,
    failures=10,
    retries=5,
    skips=5,
    attachments=20,
    attachment_bytes=50_000,
    coverage=20,
)
PATIENCE = 600.0
RUNYARD = "from runyard.cli.main import main; main()"
_DONE = "SELECT count(*) FROM test_runs WHERE state IN ('processed', 'failed_processing')"
_GOOD = "SELECT count(*), coalesce(sum(cases), 0) FROM test_runs WHERE state = 'processed'"


class Processed(msgspec.Struct, frozen=True, kw_only=True):
    """The work of a processor."""

    jobs: int
    good: int
    cases: int
    seconds: float
    """Wall-clock time from its first output to its last run."""
    cpu: float
    """CPU seconds, including its child processes."""


def archive(folder: Path) -> bytes:
    """Build the upload: a bundle as a ZIP."""
    bundle = folder / "Tests.xcresult"
    write_bundle(bundle, PLAN)
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as file:
        for path in sorted(bundle.rglob("*")):
            if path.is_file():
                file.write(path, path.relative_to(folder))
    return memory.getvalue()


async def prepare(url: str, blobs: Path, content: bytes, jobs: int) -> None:
    """Queue this many runs, all with the same upload."""
    await open_blobs(Directory(path=blobs), clock=RealClock()).put(KEY, content)
    runs = [str(uuid.UUID(int=number + 1)) for number in range(jobs)]
    with psycopg.connect(url, autocommit=True) as link, link.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO test_runs (run_id, account, project, storage_key, archive_bytes)"
            " VALUES (%s, 'acme', 'shop', %s, %s)",
            [(run_id, KEY, len(content)) for run_id in runs],
        )

    async def work(tx: Tx) -> None:
        for run_id in runs:
            await enqueue(tx, run_id=run_id)

    async with open_pool(url, clock=RealClock(), rng=random.Random(1)) as database:
        await database.transact(work, name="prepare")


def measure(home: Path, *, jobs: int, slots: int) -> Processed:
    """Process all runs and measure it."""
    with provide(home / "postgres", durable=True, max_connections=50) as url:
        migrate.apply(url, phase="all")
        blobs = home / "blobs"
        asyncio.run(prepare(url, blobs, archive(home), jobs))
        command = [sys.executable, "-c", RUNYARD, "processor", "--slots", str(slots)]
        command += ["--blobs", str(blobs), "--scratch", str(home / "scratch")]
        command += ["--listen", "127.0.0.1:0", "--log-level", "warning", "--poll", "0.05"]
        env = os.environ | {"DATABASE_URL": url, "PYTHONPATH": str(ROOT / "src")}
        before = _children()
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline(), "the processor did not start; see above"
            begun = time.monotonic()
            _until(url, jobs)
            seconds = time.monotonic() - begun
            process.send_signal(signal.SIGTERM)
        with psycopg.connect(url) as link:
            row = link.execute(_GOOD).fetchone()
        assert row is not None
        good, cases = row
    return Processed(
        jobs=jobs, good=good, cases=int(cases), seconds=seconds, cpu=_children() - before
    )


def _until(url: str, jobs: int) -> None:
    deadline = time.monotonic() + PATIENCE
    with psycopg.connect(url, autocommit=True) as link:
        while (row := link.execute(_DONE).fetchone()) is None or row[0] < jobs:
            assert time.monotonic() < deadline, f"only {row} of {jobs} jobs are done"
            time.sleep(0.05)


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
