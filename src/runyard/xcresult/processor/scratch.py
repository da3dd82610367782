"""The one place on disk that processing writes to, and how it becomes empty again.

Each attempt has a *room*: a directory of its own below the scratch, beside a lock file of the same name. Whoever works
in a room holds its lock (shared); the kernel lets go of it when they are dead. So the sweep can prove that a room was
left behind: it gets the lock for itself. That holds between processes, and over a crash of the machine.

Invariants:
- A room is gone when its context ends, however it ends. What a crash leaves, the next sweep of anybody removes.
- A room in use is never touched; nor is anything that is not ours.
- The lock is made before the directory and removed after it.
"""

import contextlib
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from runyard.xcresult.plans.leftovers import LOCK, Entry, name_of, ours, removable

ATTACHMENTS = "xcresult-attachments"
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class RoomGone(Exception):
    """The room was taken for left behind before it was entered."""


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """The directory of one attempt."""

    path: Path

    @property
    def lock(self) -> Path:
        """What is held while somebody is in it."""
        return self.path.with_name(self.path.name + LOCK)

    @property
    def archive(self) -> Path:
        """The upload."""
        return self.path / "upload"

    @property
    def bundle(self) -> Path:
        """Where the upload is extracted to."""
        return self.path / "bundle"

    @property
    def rows(self) -> Path:
        """What reading it found, ready to be loaded."""
        return self.path / "rows"

    @property
    def expected(self) -> Path:
        """What Apple's tool should say of it."""
        return self.path / "expected.json"

    @property
    def attachments(self) -> Path:
        """Attachments that had to become files."""
        return self.path / ATTACHMENTS

    @property
    def temporary(self) -> Path:
        """For libraries that want a directory for temporary files."""
        return self.path / "tmp"

    def empty(self) -> None:
        """Remove everything in it; it may take a while, and may be done while somebody is in there."""
        with contextlib.suppress(FileNotFoundError):
            if self.path.is_symlink():
                self.path.unlink()  # not of our making; what it leads to is not ours either
            else:
                shutil.rmtree(self.path)


class Scratch:
    """A directory with rooms in it; processors of one machine may share it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def prepare(self) -> None:
        """Make it, for nobody else to look into."""
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)

    @contextlib.contextmanager
    def room(self, *, run_id: str, shard: int, attempt: int, token: str) -> Iterator[Room]:
        """A new room, removed at the end."""
        name = name_of(run_id=run_id, shard=shard, attempt=attempt, token=token)
        room = Room(path=self.root / name)
        with occupied(room, make=True):
            try:
                room.path.mkdir(mode=0o700)
                for inner in (room.attachments, room.temporary):
                    inner.mkdir()
                yield room
            finally:
                _remove(room)

    def sweep(self) -> tuple[str, ...]:
        """Remove what was left behind: the names. What cannot be removed is passed over, and tried the next time."""
        gone: list[str] = []
        for lock in sorted(self.root.glob(f"*{LOCK}")):
            room = Room(path=lock.with_name(lock.name.removesuffix(LOCK)))
            if not ours(room.path.name):
                continue
            with contextlib.suppress(OSError), _alone(room) as free:
                if removable((Entry(room.path.name, free=free),)):
                    _remove(room)
                    gone.append(room.path.name)
        return tuple(gone)

    def used(self) -> int:
        """Bytes of all files in it, whosever they are."""
        return sum(_sizes(self.root))

    def free(self) -> int:
        """Bytes that its filesystem has left for us."""
        found = os.statvfs(self.root)
        return found.f_bavail * found.f_frsize


@contextlib.contextmanager
def occupied(room: Room, *, make: bool = False) -> Iterator[None]:
    """Be in a room. A process that is handed a room by another enters it itself; `RoomGone` if it is too late."""
    flags = _FLAGS | os.O_EXCL if make else _FLAGS & ~os.O_CREAT
    try:
        handle = os.open(room.lock, flags, 0o600)
    except FileNotFoundError:
        raise RoomGone(room.path.name) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH)
        if not _same(handle, room.lock):  # swept between the two lines above
            raise RoomGone(room.path.name)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def _alone(room: Room) -> Iterator[bool | None]:
    """Whether nobody is in there; it stays so while the context lasts."""
    try:
        handle = os.open(room.lock, _FLAGS & ~os.O_CREAT)
    except OSError:
        yield None
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield _same(handle, room.lock)
    finally:
        os.close(handle)


def _same(handle: int, path: Path) -> bool:
    """Whether the file that is open is the one of that name."""
    try:
        there = os.lstat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(handle), there)


def _remove(room: Room) -> None:
    room.empty()
    room.lock.unlink(missing_ok=True)


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
            continue  # somebody tidied up meanwhile
