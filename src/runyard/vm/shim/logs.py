"""Reads a console log while it is written, rotated and moved away.

The shim writes `console.log`, and renames it to `console.log.1` when it is full. A reader holds the file that it is
reading open: what was rotated is read to its end, and then the next file follows, so that nothing is lost or repeated
as long as the reader keeps up with two files. A deleted VM's log is kept in another folder under the same names.
"""

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from runyard.clock import Clock

CURRENT, OLDER = "console.log", "console.log.1"
_PIECE = 65536
_EVERY = 0.1  # seconds between two looks at a log that is followed


def keep(state: Path, kept: Path) -> None:
    """Moves the log of a VM that is deleted; raises OSError."""
    for name in (OLDER, CURRENT):
        if (state / name).exists():
            kept.mkdir(mode=0o700, parents=True, exist_ok=True)
            (state / name).replace(kept / name)


async def read(
    folders: tuple[Path, ...], *, clock: Clock, follow: bool, ended: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """The log from its oldest byte, in the first of the folders that has it; `follow`: until it has `ended`."""
    held = -1
    try:
        held = _oldest(folders)
        while True:
            last = ended()  # asked before reading: what is read after that is complete
            while held >= 0 and (data := os.read(held, _PIECE)):
                yield data
                await clock.sleep(0)  # a long log must not hold up the others of this loop
            following = _next(folders, held)
            if following >= 0:
                # Between our last read and the rotation something may have been written.
                while held >= 0 and (data := os.read(held, _PIECE)):
                    yield data
                if held >= 0:
                    os.close(held)
                held = following
            elif not follow or last:
                return
            else:
                await clock.sleep(_EVERY)
    finally:
        if held >= 0:
            os.close(held)


def _oldest(folders: tuple[Path, ...]) -> int:
    older = _open(folders, OLDER)
    return older if older >= 0 else _open(folders, CURRENT)


def _next(folders: tuple[Path, ...], held: int) -> int:
    """The file after the one that is held, or -1 if that is the newest."""
    while True:
        current = _open(folders, CURRENT)
        if current < 0 or held < 0:
            return current
        if _same(current, held):
            os.close(current)
            return -1
        older = _open(folders, OLDER)
        if older < 0:
            return current
        if not _same(older, held):  # rotated more than once: this one comes first
            os.close(current)
            return older
        os.close(older)
        if not _rotated(folders, held):
            return current
        os.close(current)  # it is not the one after ours


def _rotated(folders: tuple[Path, ...], held: int) -> bool:
    """Whether the older file is another one than ours by now."""
    older = _open(folders, OLDER)
    if older < 0:
        return False
    try:
        return not _same(older, held)
    finally:
        os.close(older)


def _same(one: int, other: int) -> bool:
    return os.path.sameopenfile(one, other)


def _open(folders: tuple[Path, ...], name: str) -> int:
    for folder in folders:
        try:
            return os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
    return -1
