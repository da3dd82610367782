"""The locks of tart: fcntl locks on `config.json`, flocks on directories.

A VM runs while another process holds an fcntl write lock on its `config.json`; who asks learns the pid. Such a lock
belongs to the process, not to the descriptor: closing any descriptor of the file drops it. `run` therefore opens the
file once; `push` reopens it, as tart does, and loses its lock.
"""

import fcntl
import os
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# struct flock: the order of its members differs.
_DARWIN = sys.platform == "darwin"
_FORMAT = "@qqihh" if _DARWIN else "@hhqqi4x"


def _flock(kind: int) -> bytes:
    if _DARWIN:
        return struct.pack(_FORMAT, 0, 0, 0, kind, os.SEEK_SET)
    return struct.pack(_FORMAT, kind, os.SEEK_SET, 0, 0, 0)


def _parsed(answer: bytes) -> tuple[int, int]:
    """The kind of lock and the pid."""
    members = struct.unpack(_FORMAT, answer)
    return (members[3], members[2]) if _DARWIN else (members[0], members[4])


def holder(path: str) -> int:
    """The pid of another process with a lock on this file; 0: none, or the file cannot be opened."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        kind, pid = _parsed(fcntl.fcntl(descriptor, fcntl.F_GETLK, _flock(fcntl.F_WRLCK)))
    finally:
        os.close(descriptor)
    return 0 if kind == fcntl.F_UNLCK else pid


def try_lock(path: str) -> int | None:
    """Take the write lock; returns the descriptor to keep open, or None if another process has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def try_flock(path: str) -> int | None:
    """Take a flock; returns the descriptor that holds it, or None."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


@contextmanager
def flocked(path: str, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold a flock, waiting for it; `waiting` is called first when it is taken."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if waiting is not None:
                waiting()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
