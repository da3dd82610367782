"""Records which files this process creates or opens for writing, so that a test can check where they are."""

import os
import sys
from pathlib import Path

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_MAKING = ("os.mkdir", "os.link", "os.symlink", "os.rename", "os.truncate", "tempfile.mkstemp")


def trace(path: Path) -> None:
    """Record from now on until the process ends: an audit hook cannot be removed."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def on_event(event: str, args: tuple[object, ...]) -> None:
        if event == "open" and isinstance(args[2], int) and args[2] & _WRITING:
            _record(handle, args[0])
        elif event in _MAKING:
            for each in args[: 1 if event == "os.mkdir" else 2]:
                _record(handle, each)

    sys.addaudithook(on_event)


def _record(handle: int, what: object) -> None:
    if isinstance(what, bytes | str | os.PathLike):
        name = os.path.abspath(os.fsdecode(what))  # noqa: PTH100  (records the requested path, without following links)
        os.write(handle, name.encode("utf-8", "surrogateescape") + b"\n")
