"""Writes down which files this process makes or opens for writing: the proof that none lies outside of its room."""

import os
import sys
from pathlib import Path

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_MAKING = ("os.mkdir", "os.link", "os.symlink", "os.rename", "os.truncate", "tempfile.mkstemp")


def trace(path: Path) -> None:
    """From now on, and for as long as the process lives: a hook cannot be taken off."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def hear(event: str, args: tuple[object, ...]) -> None:
        if event == "open" and isinstance(args[2], int) and args[2] & _WRITING:
            _tell(handle, args[0])
        elif event in _MAKING:
            for each in args[: 1 if event == "os.mkdir" else 2]:
                _tell(handle, each)

    sys.addaudithook(hear)


def _tell(handle: int, what: object) -> None:
    if isinstance(what, bytes | str | os.PathLike):
        name = os.path.abspath(os.fsdecode(what))  # noqa: PTH100  (no link is followed: what was asked counts)
        os.write(handle, name.encode("utf-8", "surrogateescape") + b"\n")
