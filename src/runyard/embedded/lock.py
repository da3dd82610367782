"""The lock on a data directory, shared by all processes of one running owner.

It is a `flock`, which belongs to an open file and not to a process: the owner's children inherit it, so it
stays taken until the last of them has exited, even when their parent was killed. The next owner waits for such
orphans, which end by themselves, and is refused at once while the previous owner runs.
"""

import fcntl
import os
import threading
import time
from pathlib import Path

_ORPHAN_PATIENCE = 45.0
_POLL = 0.02


class DirectoryInUse(Exception):
    """Another live process owns the directory."""


class DirectoryStuck(Exception):
    """The owner has died, and a process that it started does not end."""


class GivenUp(Exception):
    """The wait for the lock was cancelled."""


class DirectoryLock:
    """Ensures that a directory has at most one owner."""

    def __init__(self, folder: Path, *, patience: float = _ORPHAN_PATIENCE) -> None:
        self._path = folder / "lock"
        self._patience = patience
        self._given_up = threading.Event()
        self.descriptor = -1

    def acquire(self) -> None:
        """Takes the lock; waits only for children whose owner has died and which are about to end."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._wait(descriptor)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except BaseException:
            os.close(descriptor)
            raise
        self.descriptor = descriptor

    def give_up(self) -> None:
        """Makes an `acquire` that waits in another thread, and every later one, raise `GivenUp`."""
        self._given_up.set()

    def release(self) -> None:
        """Frees the lock, also for copies of it in processes that were forked from this one."""
        if self.descriptor >= 0:
            fcntl.flock(self.descriptor, fcntl.LOCK_UN)
            os.close(self.descriptor)
            self.descriptor = -1

    def _wait(self, descriptor: int) -> None:
        end = time.monotonic() + self._patience
        while not _try(descriptor):
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            if _alive(holder):
                raise DirectoryInUse(
                    f"{self._path.parent} is in use by the process {holder or '(just starting)'}"
                )
            if time.monotonic() > end:
                raise DirectoryStuck(
                    f"{self._path.parent} is still held by a process whose owner ({holder}) is gone"
                )
            if self._given_up.wait(_POLL):
                raise GivenUp(f"the wait for {self._path.parent} was cancelled")


def is_owned(folder: Path) -> bool:
    """Whether a process owns the directory now."""
    try:
        descriptor = os.open(folder / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)  # gives a shared lock back
    return False


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _alive(holder: str) -> bool:
    """Whether that process runs; an empty name is an owner that has just taken the lock.

    A zombie does not: it holds nothing any more, and without a reaper it stays one.
    """
    if not holder.isdigit():
        return True
    try:
        if (
            Path(f"/proc/{holder}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
            == "Z"
        ):
            return False
    except (OSError, IndexError):
        pass  # no such file system here, or no such process
    try:
        os.kill(int(holder), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
