"""Measures how much disk space a guest has used, periodically, with `du` in a process of its own.

Imported by the shim, so it imports nothing but the standard library. The caller passes the time: this module has no
clock.
"""

import contextlib
import os
import subprocess
from collections.abc import Callable

_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
_TOLERANCE = 1.25  # the limit per file comes first; this one is for many files together


class DiskWatch:
    """Measures some folders, records their size, and reports when it is too large."""

    def __init__(self, state: str, folders: list[str], *, allowed: int, every: float) -> None:
        self._path = f"{state}/disk"
        self._folders = folders
        self._allowed = allowed
        self._every = every
        self._next = 0.0
        self._running = False
        self._answer = b""

    def seconds_until_due(self, now: float) -> float | None:
        """Seconds until the next measurement is due; None if there is no limit to check."""
        return max(0.0, self._next - now) if self._allowed else None

    def start(self, now: float, listen: Callable[[int], None]) -> None:
        """Starts a measurement if one is due; `listen` gets the answer's pipe. The caller reaps the program."""
        if not self._allowed or self._running or now < self._next:
            return
        self._next = now + self._every
        with contextlib.suppress(OSError):
            child = subprocess.Popen(
                ["du", "-sk", *self._folders],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={"PATH": _PATH, "LC_ALL": "C"},
            )
            assert child.stdout is not None
            handle = os.dup(child.stdout.fileno())
            child.stdout.close()
            child.returncode = 0  # or Popen warns about a process that was not waited for
            self._running, self._answer = True, b""
            listen(handle)

    def feed(self, data: bytes) -> str:
        """Takes a piece of the answer, empty at its end; returns why the guest must end, or an empty string."""
        self._answer += data[:4096]
        if data:
            return ""
        self._running = False
        words = [line.split(b"\t")[0].strip() for line in self._answer.splitlines()]
        used = sum(int(word) for word in words if word.isdigit()) * 1024
        self._record(used)
        if used <= _TOLERANCE * self._allowed:
            return ""
        return f"used {used >> 20} MiB of disk, {self._allowed >> 20} MiB are allowed"

    def _record(self, used: int) -> None:
        with contextlib.suppress(OSError):
            with open(f"{self._path}.new", "w", encoding="ascii") as file:  # noqa: PTH123 pathlib is slow to import
                file.write(f"{used}\n")
            os.replace(f"{self._path}.new", self._path)  # noqa: PTH105 as above
