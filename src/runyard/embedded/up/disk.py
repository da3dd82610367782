"""Watches the free space of the disk that holds the data directory, and warns before it is full.

Nothing is stopped because of it. The API refuses writes, Postgres waits or is restarted, and all of them recover
automatically once there is free space.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from runyard.clock import Clock
from runyard.embedded.up.layout import BadDirectory

LOW = 64 << 20  # bytes: what an empty database takes
ENOUGH = 2 * LOW  # more than `LOW`: so that small changes are reported once
FULL = 1 << 20
CHECK_EVERY = 2.0


def free(root: Path) -> int | None:
    """How many bytes can be written; None if that is unknown."""
    try:
        space = os.statvfs(root)
    except OSError:
        return None
    return space.f_bavail * space.f_frsize


def full_disk_note(root: Path) -> str:
    """A note that the disk is full, for a process that died there; empty if it is not."""
    left = free(root)
    return (
        f"the disk of {root} is full: free some space" if left is not None and left < FULL else ""
    )


def require_space(root: Path) -> None:
    """Refuses to start without free space: a half-written directory is harder to understand."""
    left = free(root)
    if left is not None and left < LOW:
        raise BadDirectory(
            f"no space left on the disk of {root}: {left >> 20} MiB, at least {LOW >> 20} are needed."
            " Free some, or choose another directory with --data DIR"
        )


async def watch(root: Path, *, clock: Clock, report: Callable[[str], None]) -> NoReturn:
    """Reports when little space is left, and when there is enough again."""
    low = False
    while True:
        left = free(root)
        if left is not None and not low and left < LOW:
            low = True
            report(
                f"the disk of {root} is nearly full, {left >> 20} MiB are left: free some space."
                " The machine continues automatically when there is some"
            )
        elif left is not None and low and left >= ENOUGH:
            low = False
            report(f"the disk of {root} has free space again")
        await clock.sleep(CHECK_EVERY)
