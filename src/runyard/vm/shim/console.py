"""Keeps the newest output of a guest's terminal in two files of bounded size.

Imported by the shim, so it imports nothing but the standard library.
"""

import contextlib
import os

CAPACITY = 1 << 20  # bytes per file


class Console:
    """Writes state/console.log and rotates it to state/console.log.1."""

    def __init__(self, state: str) -> None:
        self._path = f"{state}/console.log"
        self._remaining = 0
        self._file = -1

    def clear(self) -> None:
        """Removes the output of an earlier run, which tart has refused: only this run's output is judged."""
        for path in (self._path, f"{self._path}.1"):
            with contextlib.suppress(OSError):
                os.unlink(path)  # noqa: PTH108 pathlib is slow to import

    def read(self, limit: int) -> bytes | None:
        """Everything that was printed, or None if that is more than `limit` bytes."""
        try:
            with open(self._path, "rb") as file:  # noqa: PTH123 as above
                found = file.read(limit + 1)
        except OSError:
            return b""
        return None if len(found) > limit or os.path.exists(f"{self._path}.1") else found  # noqa: PTH110 as above

    def write(self, data: bytes) -> None:
        """Appends the output; errors are ignored, because losing output must not fail the guest."""
        with contextlib.suppress(OSError):
            if self._remaining < len(data):
                self._rotate()
            self._remaining -= os.write(self._file, data)

    def _rotate(self) -> None:
        if self._file >= 0:
            # Forgotten first: if what follows fails, its number soon belongs to another file.
            handle, self._file, self._remaining = self._file, -1, 0
            os.close(handle)
            os.replace(self._path, f"{self._path}.1")  # noqa: PTH105 pathlib is slow to import
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._file = os.open(self._path, flags, 0o600)
        self._remaining = CAPACITY
