"""Records what code creates or changes on disk, by the audit events of the interpreter.

Files that are opened for writing, directories, links and renames are recorded by absolute path.
The hook stays in the process and does nothing outside a trace.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {
    "os.mkdir",
    "os.symlink",
    "os.link",
    "os.rename",
    "os.truncate",
    "os.chmod",
    "os.mkfifo",
}
_trace: list[str] | None = None
_reads = False
_installed: list[bool] = []


def _note(path: object) -> None:
    if _trace is not None and isinstance(path, str | bytes):
        _trace.append(os.path.abspath(os.fsdecode(path)))  # noqa: PTH100  (links stay links)


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if _trace is None:
        return
    if event == "open":
        path, mode, flags = arguments
        writes = isinstance(mode, str) and any(letter in mode for letter in "wax+")
        if _reads or writes or (isinstance(flags, int) and flags & _WRITES):
            _note(path)
    elif event in _CHANGES:
        _note(arguments[0])
        if event in {"os.symlink", "os.link", "os.rename"}:
            _note(arguments[1])


@contextmanager
def written(*, reads: bool = False) -> Iterator[list[str]]:
    """Record the absolute paths that are created or changed, in order; with `reads` also those opened for reading."""
    global _trace, _reads  # noqa: PLW0603  (a hook cannot be taken off again)
    if not _installed:
        sys.addaudithook(_hook)
        _installed.append(True)
    found: list[str] = []
    _trace, _reads = found, reads
    try:
        yield found
    finally:
        _trace = None


def tree(root: Path) -> list[str]:
    """List everything below a directory with sizes, sorted."""
    return sorted(
        f"{path.relative_to(root)} {path.lstat().st_size if path.is_file() else '/'}"
        for path in root.rglob("*")
    )
