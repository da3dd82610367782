"""How much of the disk a guest has used: looked at again and again by a program, beside everything else.

Imported by the keeper, so it imports nothing but the standard library. The moment is always the caller's: this module
has no clock.
"""

import contextlib
import os
import subprocess
from collections.abc import Callable

_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
_TOLERANCE = (
    1.25  # a guest learns of its limit by its files' own first; this is for many files together
)


class DiskWatch:
    """Measures some folders, writes down what they hold, and tells when it is too much."""

    def __init__(self, state: str, folders: list[str], *, allowed: int, every: float) -> None:
        self._path = f"{state}/disk"
        self._folders = folders
        self._allowed = allowed
        self._every = every
        self._next = 0.0
        self._running = False
        self._said = b""

    def wait(self, now: float) -> float | None:
        """How long until the next look is due; None: there is nothing to look at."""
        return max(0.0, self._next - now) if self._allowed else None

    def begin(self, now: float, listen: Callable[[int], None]) -> None:
        """Start a look, if one is due: `listen` is given where the answer will arrive. The caller reaps the program."""
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
            child.returncode = 0  # or it would complain about a process that nobody waited for
            self._running, self._said = True, b""
            listen(handle)

    def heard(self, data: bytes) -> str:
        """A piece of the answer, or its end; returns why the guest must end, if it must."""
        self._said += data[:4096]
        if data:
            return ""
        self._running = False
        words = [line.split(b"\t")[0].strip() for line in self._said.splitlines()]
        used = sum(int(word) for word in words if word.isdigit()) * 1024
        self._write_down(used)
        if used <= _TOLERANCE * self._allowed:
            return ""
        return f"used {used >> 20} MiB of disk, {self._allowed >> 20} are allowed"

    def _write_down(self, used: int) -> None:
        with contextlib.suppress(OSError):
            with open(f"{self._path}.new", "w", encoding="ascii") as file:  # noqa: PTH123 pathlib is slow to import
                file.write(f"{used}\n")
            os.replace(f"{self._path}.new", self._path)  # noqa: PTH105 as above
