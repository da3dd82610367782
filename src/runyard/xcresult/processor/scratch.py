"""Manages the scratch directory, the only place on disk that processing writes to.

Each attempt has a *workdir*: a directory below the scratch directory, with a lock file of the same name beside it. A
process that uses a workdir holds a shared lock, which the kernel releases when the process dies. The sweep proves that
a workdir is unused by taking the lock exclusively. That works between processes and after a reboot.

Invariants:
- A workdir is deleted when its context ends, also by an exception. What a crash leaves, the next sweep deletes.
- A workdir in use is never deleted, nor any file that is not ours.
- The lock file is created before the directory and deleted after it.
"""

import contextlib
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from runyard.xcresult.plans.scratch_sweep import LOCK, Entry, name_of, ours, removable

ATTACHMENTS = "xcresult-attachments"
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class WorkdirGone(Exception):
    """The sweep of another process deleted the workdir before its lock was held."""


class Workdir(msgspec.Struct, frozen=True, kw_only=True):
    """The directory of one attempt."""

    path: Path

    @property
    def lock(self) -> Path:
        """The lock file, held by every process that uses the workdir."""
        return self.path.with_name(self.path.name + LOCK)

    @property
    def archive(self) -> Path:
        """The downloaded upload."""
        return self.path / "upload"

    @property
    def bundle(self) -> Path:
        """The directory into which the upload is extracted."""
        return self.path / "bundle"

    @property
    def rows(self) -> Path:
        """The rows to load."""
        return self.path / "rows"

    @property
    def expected(self) -> Path:
        """What xcresulttool should print for the bundle."""
        return self.path / "expected.json"

    @property
    def attachments(self) -> Path:
        """Attachments that had to be written to files."""
        return self.path / ATTACHMENTS

    @property
    def temporary(self) -> Path:
        """The temporary directory for libraries."""
        return self.path / "tmp"

    def empty(self) -> None:
        """Delete everything in it; may take a while, and is safe while another process uses the workdir."""
        with contextlib.suppress(FileNotFoundError):
            if self.path.is_symlink():
                self.path.unlink()  # a link that we did not make; its target is not ours either
            else:
                shutil.rmtree(self.path)


class Scratch:
    """A directory of workdirs; processors on one machine may share it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def prepare(self) -> None:
        """Create it, readable by its owner only."""
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)

    @contextlib.contextmanager
    def workdir(self, *, run_id: str, shard: int, attempt: int, token: str) -> Iterator[Workdir]:
        """A new workdir, deleted at the end."""
        name = name_of(run_id=run_id, shard=shard, attempt=attempt, token=token)
        workdir = Workdir(path=self.root / name)
        with occupied(workdir, make=True):
            try:
                workdir.path.mkdir(mode=0o700)
                for inner in (workdir.attachments, workdir.temporary):
                    inner.mkdir()
                yield workdir
            finally:
                _remove(workdir)

    def sweep(self) -> tuple[str, ...]:
        """Delete unused workdirs; returns their names. Those that cannot be deleted are retried by the next sweep."""
        gone: list[str] = []
        for lock in sorted(self.root.glob(f"*{LOCK}")):
            workdir = Workdir(path=lock.with_name(lock.name.removesuffix(LOCK)))
            if not ours(workdir.path.name):
                continue
            with contextlib.suppress(OSError), _alone(workdir) as free:
                if removable((Entry(workdir.path.name, free=free),)):
                    _remove(workdir)
                    gone.append(workdir.path.name)
        return tuple(gone)

    def used(self) -> int:
        """Bytes of all files in it, also of files that are not ours."""
        return sum(_sizes(self.root))

    def free(self) -> int:
        """Free bytes of its filesystem."""
        found = os.statvfs(self.root)
        return found.f_bavail * found.f_frsize


@contextlib.contextmanager
def occupied(workdir: Workdir, *, make: bool = False) -> Iterator[None]:
    """Hold a workdir's lock. The child process takes it itself; raises `WorkdirGone` if the workdir was swept."""
    flags = _FLAGS | os.O_EXCL if make else _FLAGS & ~os.O_CREAT
    try:
        handle = os.open(workdir.lock, flags, 0o600)
    except FileNotFoundError:
        raise WorkdirGone(workdir.path.name) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH)
        if not _same(handle, workdir.lock):  # deleted by a sweep between open and lock
            raise WorkdirGone(workdir.path.name)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def _alone(workdir: Workdir) -> Iterator[bool | None]:
    """Whether no process uses the workdir; that stays true while the context lasts."""
    try:
        handle = os.open(workdir.lock, _FLAGS & ~os.O_CREAT)
    except OSError:
        yield None
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield _same(handle, workdir.lock)
    finally:
        os.close(handle)


def _same(handle: int, path: Path) -> bool:
    """Whether the open file is still the file of that name."""
    try:
        there = os.lstat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(handle), there)


def _remove(workdir: Workdir) -> None:
    workdir.empty()
    workdir.lock.unlink(missing_ok=True)


def _sizes(root: Path) -> Iterator[int]:
    waiting = [root]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    found = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(found.st_mode):
                        waiting.append(Path(entry.path))
                    else:
                        yield found.st_size
        except FileNotFoundError:
            continue  # deleted meanwhile
