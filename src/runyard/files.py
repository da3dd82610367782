"""Writes small files whole, private and synced.

Invariants:
- A reader sees the old content or the new one, never a part; so does the next start after a crash.
- No other user can read it at any moment, nor a draft that a crash left behind: it is created with its mode under a
  name of this process's own, and then moved into place. No link is followed.
"""

import os
from pathlib import Path

PRIVATE = 0o600


def write_whole(
    path: Path, content: str | bytes, *, mode: int = PRIVATE, sync: bool = True
) -> None:
    """Replace the file's content; its directory must exist. Without `sync` a power cut may lose the write."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(draft, flags, mode), "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(path)
    except OSError:  # a full disk: the draft must not use the remaining space
        draft.unlink(missing_ok=True)
        raise
    if sync:
        sync_directory(path.parent)


def sync_directory(folder: Path) -> None:
    """Make names that were added to or removed from a directory survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_drafts(folder: Path) -> None:
    """Remove what killed processes have left of their writes; drafts of live processes stay."""
    for path in sorted(folder.glob(".*.*")):
        pid = path.name.rpartition(".")[2]
        if pid.isdigit() and not _lives(int(pid)):
            path.unlink(missing_ok=True)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # another user's, or no number of a process
        return True
    return True
