"""A small disk: a file system in memory, mounted by root or in a user namespace."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.conftest import Absent
from tests.embedded.up.upsupport import directory


class SmallDisk(NamedTuple):
    """`prefix` runs a program that sees the disk at `path`."""

    path: Path
    prefix: tuple[str, ...]

    def seen_by(self, pid: int) -> Path:
        """The disk, from outside: through a process that sees it."""
        return Path(f"/proc/{pid}/root{self.path}") if self.prefix else self.path


@contextlib.contextmanager
def small_disk(size: int, absent: Absent) -> Iterator[SmallDisk]:
    """Of so many bytes."""
    with directory() as place:
        place.mkdir()
        options = ["-o", f"size={size},mode=0755", "tmpfs", str(place)]
        if os.geteuid() == 0 and _works(["mount", "-t", "tmpfs", *options]):
            try:
                yield SmallDisk(place, ())
            finally:
                subprocess.run(["umount", "-l", str(place)], check=True)
            return
        bwrap = ("bwrap", "--dev-bind", "/", "/", "--size", str(size), "--tmpfs", str(place), "--")
        if not shutil.which("bwrap") or not _works([*bwrap, "true"]):
            absent("a small disk", "run the tests as root, or where bubblewrap may be used")
        yield SmallDisk(place, bwrap)


def _works(argv: list[str]) -> bool:
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0
