"""Decides which directories in the scratch directory may be deleted.

The directory of an attempt has a lock file with the same name beside it. Every process that works in the directory
holds that lock, and the kernel releases it when the process dies. So a free lock proves that the directory is unused.

    lock held                          → in use: kept
    lock free, name is ours            → left by a dead process: directory and lock are deleted
    a directory of ours with no lock   → kept: nothing proves that it is unused
    any other name                     → not ours: kept; its size is counted

The lock file is always created before its directory and deleted after it.
"""

import re

import msgspec

LOCK = ".lock"
_OURS = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-\d{1,9}-\d{1,9}-[0-9a-f]{8}")


class Entry(msgspec.Struct, frozen=True):
    """A name in the scratch directory, and whether its lock is free (None: there is no lock file)."""

    name: str
    free: bool | None = None


def name_of(*, run_id: str, shard: int, attempt: int, token: str) -> str:
    """The name of the directory of one attempt; `token` makes it unique."""
    return f"{run_id}-{shard}-{attempt}-{token}"


def ours(name: str) -> bool:
    """Whether `name_of` makes names of this form."""
    return _OURS.fullmatch(name) is not None


def removable(entries: tuple[Entry, ...]) -> tuple[str, ...]:
    """The names that may be deleted, in the given order."""
    return tuple(entry.name for entry in entries if entry.free is True and ours(entry.name))
