"""Tests that all runs end and the disk is empty when processors are killed at random on a small disk."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Absent
from tests.xcresult.processor.processor_harness import Harness, looped, query, zipped
from tests.xcresult.writer.plan import Plan

ROOT = Path(__file__).resolve().parents[3]
SIZE = 64
PLANS = (
    Plan(cases=3),
    Plan(cases=10, failures=2, attachments=4, attachment_bytes=500_000, compressible=False),
    Plan(cases=40, retries=3, arguments=3, attachments=10, coverage=2),
)


def in_small_disk(scratch: Path, *command: str) -> list[str]:
    """Wrap a command so that it runs in its own mount namespace with a small filesystem at `scratch`."""
    mount = f'mount -t tmpfs -o size={SIZE}m none "$0" && exec "$@"'
    alone = ["unshare", "--user", "--map-root-user", "--mount"]
    return [*alone, "sh", "-c", mount, str(scratch), *command]


@pytest.fixture
def scratch(tmp_path: Path, absent: Absent) -> Path:
    """A directory that can become a small filesystem."""
    made = tmp_path / "small"
    made.mkdir()
    if shutil.which("unshare") is None:
        absent("unshare", "install util-linux, on Linux")
    tried = subprocess.run(in_small_disk(made, "true"), capture_output=True, check=False)
    if tried.returncode != 0:
        absent("mounts in a user namespace", "allow unprivileged user namespaces")
    return made


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(24, marks=pytest.mark.slow),
        pytest.param(1000, marks=[pytest.mark.long, pytest.mark.timeout(2400)]),
    ],
)
@looped
async def test_nothing_stays_on_the_disk_when_processors_are_killed(
    database_url: str, tmp_path: Path, scratch: Path, count: int
) -> None:
    harness = Harness(database_url, tmp_path)
    uploads = [zipped(tmp_path, plan) for plan in PLANS]
    for place, content in enumerate(uploads):
        await harness.upload(content, *range(place, count, len(uploads)))
    report = await _killing(harness, scratch, count)
    assert report["size"] == SIZE * 1024 * 1024, "the scratch directory is not on the small disk"
    assert report["workers"] >= 2
    assert (report["left"], report["used"]) == ([], 0)
    states = query(database_url, "SELECT state, reason_code, count(*) FROM test_runs GROUP BY 1, 2")
    assert states == [("processed", "", count)]
    lost = "SELECT count(*) FROM test_attempts WHERE outcome = 'running'"
    assert query(database_url, lost) == [(0,)]
    assert query(
        database_url, "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"
    ) == [(0,)]


async def _killing(harness: Harness, scratch: Path, count: int) -> dict[str, Any]:
    module = "tests.xcresult.processor.killing"
    words = (harness.url, str(harness.place.path), str(scratch), str(count), "7")
    done = subprocess.run(
        in_small_disk(scratch, sys.executable, "-m", module, *words),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    report: dict[str, Any] = json.loads(done.stdout)
    return report
