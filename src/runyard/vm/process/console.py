"""What a guest says on its terminal, kept in two files of bounded size: the newest is kept.

Imported by the keeper, so it imports nothing but the standard library.
"""

import contextlib
import os

ROOM = 1 << 20  # bytes of a guest's output that are kept, twice


class Console:
    """state/console.log and, before it, state/console.log.1."""

    def __init__(self, state: str) -> None:
        self._path = f"{state}/console.log"
        self._room = 0
        self._file = -1

    def write(self, data: bytes) -> None:
        """Keep it if the disk lets us; a guest's talk is not worth a failure."""
        with contextlib.suppress(OSError):
            if self._room < len(data):
                self._turn()
            self._room -= os.write(self._file, data)

    def _turn(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            os.replace(self._path, f"{self._path}.1")  # noqa: PTH105 pathlib is slow to import
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._file = os.open(self._path, flags, 0o600)
        self._room = ROOM
