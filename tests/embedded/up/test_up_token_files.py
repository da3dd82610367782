"""Tokens in files: private, written once, and the same for every process that reads them."""

import random
import threading
from pathlib import Path

import pytest
from tests.cli.server_harness import run_here

from runyard.embedded.lock import DirectoryLock, is_owned
from runyard.embedded.up.layout import BadDirectory
from runyard.embedded.up.token_files import ensure_token, read_token


def test_two_processes_that_start_together_use_the_same_token(tmp_path: Path) -> None:
    path, found = tmp_path / "data" / "dashboard.token", set()
    together = threading.Barrier(8)

    def start() -> None:
        together.wait()
        found.add(ensure_token(path, random.SystemRandom()))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == {read_token(path)}
    assert [each.name for each in path.parent.iterdir()] == ["dashboard.token"]


def test_a_token_that_its_owner_wrote_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "dashboard.token"
    path.write_text("chosen by its owner\n")
    assert ensure_token(path, random.Random(1), first="another") == "chosen by its owner"


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff", b"a\nb"])
def test_a_file_without_a_token_is_reported(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "dashboard.token"
    path.write_bytes(content)
    with pytest.raises(BadDirectory, match="token"):
        ensure_token(path, random.Random(1))


def test_the_token_is_not_sent_to_a_port_that_the_machine_has_left(tmp_path: Path) -> None:
    (tmp_path / "ports.json").write_text('{"server": 1}')
    ensure_token(tmp_path / "dashboard.token", random.Random(1))
    line = ("tenant", "list", "--data", str(tmp_path))
    code, _, err = run_here(*line)
    assert code == 2 and "does not run in" in err
    lock = DirectoryLock(tmp_path)
    lock.acquire()
    try:
        assert is_owned(tmp_path)
        code, _, err = run_here(*line)
        assert code == 2 and "does not respond" in err
    finally:
        lock.release()
    assert not is_owned(tmp_path)
