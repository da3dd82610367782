"""The disk that everything of one machine lies on: whoever runs it hears that it is full before the parts suffer.

Nothing is given up because of it. The API refuses writes, Postgres waits or is started again, and all of
them go on by themselves once there is room.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from runyard.clock import Clock
from runyard.embedded.up.layout import BadDirectory

LOW = 64 << 20  # bytes: what an empty database takes
ENOUGH = 2 * LOW  # more than `LOW`: what comes and goes is told once
FULL = 1 << 20
LOOK_EVERY = 2.0


def free(root: Path) -> int | None:
    """How many bytes we may still write; None if that cannot be told."""
    try:
        room = os.statvfs(root)
    except OSError:
        return None
    return room.f_bavail * room.f_frsize


def suspicion(root: Path) -> str:
    """For somebody who died there: that the disk is full, if it is."""
    left = free(root)
    return (
        f"the disk of {root} is full: free some space" if left is not None and left < FULL else ""
    )


def require_room(root: Path) -> None:
    """Refuse to begin where nothing can be kept: what is half made is harder to understand."""
    left = free(root)
    if left is not None and left < LOW:
        raise BadDirectory(
            f"no space left on the disk of {root}: {left >> 20} MiB, at least {LOW >> 20} are needed."
            " Free some, or choose another directory with --data DIR"
        )


async def watch(root: Path, *, clock: Clock, tell: Callable[[str], None]) -> NoReturn:
    """Tell when little is left, and when there is enough again."""
    low = False
    while True:
        left = free(root)
        if left is not None and not low and left < LOW:
            low = True
            tell(
                f"the disk of {root} is nearly full, {left >> 20} MiB are left: free some space."
                " The machine goes on by itself when there is some"
            )
        elif left is not None and low and left >= ENOUGH:
            low = False
            tell(f"the disk of {root} has room again")
        await clock.sleep(LOOK_EVERY)
