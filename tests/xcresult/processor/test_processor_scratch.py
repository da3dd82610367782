"""Rooms are gone when their attempt is over; what a dead process left is swept, and nothing else."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runyard.xcresult.plans.leftovers import name_of
from runyard.xcresult.processor.scratch import Room, RoomGone, Scratch, occupied

RUN = "0190a1b2-0000-7000-8000-0000000000aa"
HOLD = """
import sys
from pathlib import Path
from runyard.xcresult.processor.scratch import Scratch
with Scratch(Path(sys.argv[1])).room(run_id=sys.argv[2], shard=0, attempt=1, token="deadbeef") as room:
    (room.path / "big").write_bytes(b"x" * 1000)
    print("in", flush=True)
    sys.stdin.read()
"""
ENTER = """
import sys
from pathlib import Path
from runyard.xcresult.processor.scratch import Room, occupied
with occupied(Room(path=Path(sys.argv[1]))):
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


def test_a_room_is_gone_also_when_its_attempt_raises(tmp_path: Path) -> None:
    where = scratch(tmp_path)
    with (
        pytest.raises(ValueError, match="broken"),
        where.room(run_id=RUN, shard=0, attempt=1, token="deadbeef") as room,
    ):
        (room.attachments / "picture").write_bytes(b"12345")
        assert where.used() == 5
        raise ValueError("broken")
    assert list(where.root.iterdir()) == []


def test_a_killed_workers_room_is_swept_and_a_living_ones_is_not(tmp_path: Path) -> None:
    where = scratch(tmp_path)
    worker = started(HOLD, str(where.root), RUN)
    assert where.sweep() == ()
    assert where.used() == 1000
    ended(worker, signal.SIGKILL)
    assert where.sweep() == (name_of(run_id=RUN, shard=0, attempt=1, token="deadbeef"),)
    assert (where.used(), list(where.root.iterdir())) == (0, [])


def test_a_room_stays_while_the_child_of_a_killed_worker_is_still_in_it(tmp_path: Path) -> None:
    where = scratch(tmp_path)
    worker = started(HOLD, str(where.root), RUN)
    room = where.root / name_of(run_id=RUN, shard=0, attempt=1, token="deadbeef")
    child = started(ENTER, str(room))
    ended(worker, signal.SIGKILL)
    assert where.sweep() == ()
    ended(child, signal.SIGKILL)
    assert where.sweep() == (room.name,)


def test_who_comes_too_late_is_told_that_the_room_is_gone(tmp_path: Path) -> None:
    where = scratch(tmp_path)
    with pytest.raises(RoomGone), occupied(Room(path=where.root / "nothing")):
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


def test_a_room_that_is_a_link_goes_alone_and_keeps_no_other_from_being_swept(
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
    }, "a file in the place of a room stays, and is tried again"
    assert (precious / "mine").exists()


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    where = scratch(tmp_path)
    precious = tmp_path / "precious"
    precious.write_text("mine")
    name = name_of(run_id=RUN, shard=0, attempt=1, token="deadbeef")
    (where.root / f"{name}.lock").symlink_to(precious)
    assert where.sweep() == ()
    assert precious.read_text() == "mine"
