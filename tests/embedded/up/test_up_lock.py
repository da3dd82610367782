"""One process owns a directory: a second one is refused at once, and children of a dead owner are waited for."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runyard.embedded.lock import DirectoryInUse, DirectoryLock, DirectoryStuck, GivenUp

# Takes the lock, starts a child that keeps it until its input ends, prints both, and waits.
_OWNER = """
import subprocess, sys
from pathlib import Path
from runyard.embedded.lock import DirectoryLock
lock = DirectoryLock(Path(sys.argv[1]))
lock.acquire()
keep = (lock.descriptor,)
child = subprocess.Popen(["cat"], stdin=int(sys.argv[2]), stdout=subprocess.DEVNULL, pass_fds=keep)
print("taken", child.pid, flush=True)
sys.stdin.read()
"""


class Owner:
    """A process that owns a directory, and its child, which outlives it."""

    def __init__(self, folder: Path) -> None:
        self._orphan_reads, self.orphan_input = os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, "-c", _OWNER, str(folder), str(self._orphan_reads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[self._orphan_reads],
            env={"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ["PATH"]},
        )
        os.close(self._orphan_reads)
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith(b"taken")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def let_orphan_end(self) -> None:
        if self.orphan_input >= 0:
            os.close(self.orphan_input)
            self.orphan_input = -1


@contextmanager
def owner_of(folder: Path) -> Iterator[Owner]:
    owner = Owner(folder)
    try:
        yield owner
    finally:
        owner.let_orphan_end()
        owner.process.communicate()


def test_a_directory_in_use_names_the_process_that_uses_it(tmp_path: Path) -> None:
    with owner_of(tmp_path) as owner, pytest.raises(DirectoryInUse) as caught:
        DirectoryLock(tmp_path, patience=0.0).acquire()
    assert str(caught.value) == f"{tmp_path} is in use by the process {owner.process.pid}"


def test_an_orphan_that_does_not_end_is_reported_after_the_timeout(tmp_path: Path) -> None:
    with owner_of(tmp_path) as owner:
        owner.kill()
        with pytest.raises(DirectoryStuck, match=rf"owner \({owner.process.pid}\) is gone"):
            DirectoryLock(tmp_path, patience=0.0).acquire()


def test_an_orphan_that_ends_is_waited_for(tmp_path: Path) -> None:
    with owner_of(tmp_path) as owner:
        owner.kill()
        waiting = subprocess.Popen(
            [sys.executable, "-c", _OWNER, str(tmp_path), "0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ["PATH"]},
        )
        assert waiting.stdout is not None and waiting.stdin is not None
        owner.let_orphan_end()
        assert waiting.stdout.readline().startswith(b"taken")
        waiting.communicate()


def test_a_wait_for_an_orphan_can_be_cancelled(tmp_path: Path) -> None:
    with owner_of(tmp_path) as owner:
        owner.kill()
        lock = DirectoryLock(tmp_path, patience=3600.0)
        lock.give_up()
        with pytest.raises(GivenUp):
            lock.acquire()


def test_a_lock_that_was_released_is_free_for_the_next(tmp_path: Path) -> None:
    first, second = DirectoryLock(tmp_path), DirectoryLock(tmp_path, patience=0.0)
    first.acquire()
    with pytest.raises(DirectoryInUse, match=f"process {os.getpid()}"):
        second.acquire()
    first.release()
    first.release()  # once more does no harm
    second.acquire()
    assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    second.release()


def test_a_refused_lock_keeps_no_file_open(tmp_path: Path) -> None:
    holder = DirectoryLock(tmp_path)
    holder.acquire()
    before = len(list(Path("/dev/fd").iterdir()))
    with pytest.raises(DirectoryInUse):
        DirectoryLock(tmp_path, patience=0.0).acquire()
    assert len(list(Path("/dev/fd").iterdir())) == before
    holder.release()
