"""Which directories of the scratch may go.

A directory of a run stands beside a lock file of the same name. Whoever works in it holds that lock, and the kernel
lets go of it when the last of them is dead, however it died. So a lock that can be had proves that nobody is in there.

    lock held                          → in use: stays
    lock free, of ours                 → left behind: both go
    a directory of ours with no lock   → stays: what nobody can prove, nobody removes
    anything else                      → a stranger's: stays; its bytes are counted

A lock is always made before its directory and removed after it.
"""

import re

import msgspec

LOCK = ".lock"
_OURS = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-\d{1,9}-\d{1,9}-[0-9a-f]{8}")


class Entry(msgspec.Struct, frozen=True):
    """A name in the scratch, and whether its lock could be had (None: it has none)."""

    name: str
    free: bool | None = None


def name_of(*, run_id: str, shard: int, attempt: int, token: str) -> str:
    """The directory of one attempt; `token` makes it unlike any other's."""
    return f"{run_id}-{shard}-{attempt}-{token}"


def ours(name: str) -> bool:
    """Whether `name_of` could have made it."""
    return _OURS.fullmatch(name) is not None


def removable(entries: tuple[Entry, ...]) -> tuple[str, ...]:
    """The names that may go, in their order."""
    return tuple(entry.name for entry in entries if entry.free is True and ours(entry.name))
