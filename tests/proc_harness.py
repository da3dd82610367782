"""Helps tests of running programs: proves that processes are gone without waiting a guessed time.

Each process holds the writing end of a FIFO, and reading that FIFO to its end proves that no holder is alive.
"""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

SLEEP = "sleep 1000"


class Witness:
    """A FIFO that programs hold open for as long as they live."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self._reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self._poller = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        os.set_blocking(self._reader, True)

    async def line(self) -> str:
        """Wait until some program has written a line."""
        return await asyncio.to_thread(self._line)

    def _line(self) -> str:
        # A reader without a writer gets the end at once: open again, which waits for a writer.
        with self.path.open("rb", buffering=0) as reader:
            return reader.readline().decode().strip()

    def all_gone(self) -> bytes:
        """Everything written; returns only when no process holds the FIFO any more."""
        found = b""
        while chunk := os.read(self._reader, 4096):
            found += chunk
        return found

    def environment(self) -> dict[str, str]:
        """The environment of a program that finds the FIFO as $WITNESS."""
        return {"PATH": os.environ["PATH"], "WITNESS": str(self.path)}

    def close(self) -> None:
        os.close(self._reader)
        os.close(self._poller)


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[Witness]:
    found = Witness(tmp_path / "witness")
    yield found
    found.close()
