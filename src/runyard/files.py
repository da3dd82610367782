"""One way to write a small file: whole, private, and still there after a power cut.

Invariants:
- A reader sees the old content or the new one, never a part; so does the next start after a crash.
- Nobody else can read it, not even for a moment and not through what a crash left behind: it is made anew,
  with its mode, under a name of this process's own, and then moved into place. No link is followed.
"""

import os
from pathlib import Path

PRIVATE = 0o600


def write_whole(path: Path, content: str | bytes, *, mode: int = PRIVATE) -> None:
    """Put `content` in place of the file; its directory must exist."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(draft, flags, mode), "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:  # a full disk: the draft must not take what little room there is
        draft.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def _sync(folder: Path) -> None:
    """The new name itself must reach the disk too."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
