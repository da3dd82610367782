"""Tests that workdirs are deleted with their attempt, and that the sweep deletes only those of dead processes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runyard.xcresult.plans.scratch_sweep import name_of
from runyard.xcresult.processor.scratch import Scratch, Workdir, WorkdirGone, occupied

RUN = "0190a1b2-0000-7000-8000-0000000000aa"
HOLD = """
import sys
from pathlib import Path
from runyard.xcresult.processor.scratch import Scratch
with Scratch(Path(sys.argv[1])).workdir(run_id=sys.argv[2], shard=0, attempt=1, token="deadbeef") as workdir:
    (workdir.path / "big").write_bytes(b"x" * 1000)
    print("in", flush=True)
    sys.stdin.read()
"""
ENTER = """
import sys
from pathlib import Path
from runyard.xcresult.processor.scratch import Workdir, occupied
with occupied(Workdir(path=Path(sys.argv[1]))):
    print("in", flush=True)
    sys.stdin.read()
"""


def scratch(tmp_path: Path) -> Scratch:
    made = Scratch(tmp_path / "scratch")
    made.prepare()
    return made


def started(code: str, *words: str) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None and process.stdout.readline() == b"in\n"
    return process


def ended(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    with process:
        process.send_signal(number)


def test_a_workdir_is_deleted_also_when_its_attempt_raises(tmp_path: Path) -> None:
    where = scratch(tmp_path)
    with (
        pytest.raises(ValueError, match="broken"),
        where.workdir(run_id=RUN, shard=0, attempt=1, token="deadbeef") as workdir,
    ):
        (workdir.attachments / "picture").write_bytes(b"12345")
        assert where.used() == 5
        raise ValueError("broken")
    assert list(where.root.iterdir()) == []


def test_the_workdir_of_a_killed_worker_is_swept_and_of_a_live_one_is_not(tmp_path: Path) -> None:
    where = scratch(tmp_path)
    worker = started(HOLD, str(where.root), RUN)
    assert where.sweep() == ()
    assert where.used() == 1000
    ended(worker, signal.SIGKILL)
    assert where.sweep() == (name_of(run_id=RUN, shard=0, attempt=1, token="deadbeef"),)
    assert (where.used(), list(where.root.iterdir())) == (0, [])


def test_a_workdir_stays_while_the_child_of_a_killed_worker_uses_it(tmp_path: Path) -> None:
    where = scratch(tmp_path)
    worker = started(HOLD, str(where.root), RUN)
    workdir = where.root / name_of(run_id=RUN, shard=0, attempt=1, token="deadbeef")
    child = started(ENTER, str(workdir))
    ended(worker, signal.SIGKILL)
    assert where.sweep() == ()
    ended(child, signal.SIGKILL)
    assert where.sweep() == (workdir.name,)


def test_a_swept_workdir_raises_workdir_gone(tmp_path: Path) -> None:
    where = scratch(tmp_path)
    with pytest.raises(WorkdirGone), occupied(Workdir(path=where.root / "nothing")):
        pytest.fail("entered")


def test_what_is_not_ours_is_left_and_counted(tmp_path: Path) -> None:
    where = scratch(tmp_path)
    (where.root / "photos").mkdir()
    (where.root / "photos" / "cat").write_bytes(b"123")
    (where.root / "photos.lock").touch()
    (where.root / name_of(run_id=RUN, shard=0, attempt=1, token="0badcafe")).mkdir()
    assert where.sweep() == ()
    assert where.used() == 3
    assert len(os.listdir(where.root)) == 3  # noqa: PTH208  (names only)


def test_a_workdir_that_is_a_link_is_deleted_without_its_target(
    tmp_path: Path,
) -> None:
    where = scratch(tmp_path)
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "mine").touch()
    for token in ("0badcafe", "deadbeef", "ffffffff"):
        name = name_of(run_id=RUN, shard=0, attempt=1, token=token)
        (where.root / f"{name}.lock").touch()
    (where.root / name_of(run_id=RUN, shard=0, attempt=1, token="0badcafe")).symlink_to(precious)
    (where.root / name_of(run_id=RUN, shard=0, attempt=1, token="deadbeef")).touch()
    assert len(where.sweep()) == 2
    assert {path.name.partition("-1-")[2] for path in where.root.iterdir()} == {
        "deadbeef",
        "deadbeef.lock",
    }, "a file in place of a workdir stays and is retried"
    assert (precious / "mine").exists()


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    where = scratch(tmp_path)
    precious = tmp_path / "precious"
    precious.write_text("mine")
    name = name_of(run_id=RUN, shard=0, attempt=1, token="deadbeef")
    (where.root / f"{name}.lock").symlink_to(precious)
    assert where.sweep() == ()
    assert precious.read_text() == "mine"
