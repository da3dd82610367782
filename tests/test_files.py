"""Tests writing small files: replaced whole, and never readable by other users."""

import os
import subprocess
from pathlib import Path

import pytest

from runyard.files import remove_drafts, write_whole


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_file_is_never_seen_half_written_and_becomes_private(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("old")
    path.chmod(0o644)
    write_whole(path, "new")
    assert (path.read_text(), mode(path)) == ("new", 0o600)
    assert [each.name for each in tmp_path.iterdir()] == ["token"]


def test_a_draft_of_a_crashed_process_is_replaced_and_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    leftover = tmp_path / f".token.{os.getpid()}"
    leftover.write_text("half")
    leftover.chmod(0o666)
    write_whole(tmp_path / "token", b"new")
    assert mode(tmp_path / "token") == 0o600
    leftover.symlink_to(elsewhere)
    write_whole(tmp_path / "token", b"newer")
    assert (tmp_path / "token").read_bytes() == b"newer"
    assert elsewhere.read_text() == "mine"


def test_a_write_that_failed_leaves_the_old_file_and_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "token"
    write_whole(path, "old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["token"]


def test_a_certificate_may_be_read_by_others(tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        write_whole(tmp_path / "ca.crt", b"x", mode=0o644)
    finally:
        os.umask(old)
    assert mode(tmp_path / "ca.crt") == 0o644


def test_drafts_of_killed_processes_do_not_pile_up(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    kept = ["record.json", f".record.json.{os.getpid()}", ".hidden.json", ".9"]
    for name in (*kept, f".record.json.{ended.pid}"):
        (tmp_path / name).touch()
    remove_drafts(tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(kept)
    remove_drafts(tmp_path / "absent")
