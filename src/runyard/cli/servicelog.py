"""Keeps the log of a service small: launchd and systemd append to it for ever.

The service manager has opened the file and passed it as standard output, so it cannot be replaced; the program that
writes to it copies it to `service.log.1` and empties it. It does so before it prints, and once at its start, so that a
program which ends again and again keeps it small, too.

Invariant: no other file is ever emptied; standard output, or standard error, must be exactly this one.
"""

import fcntl
import os
import shutil
import stat
import sys
from pathlib import Path

LIMIT = 1024 * 1024
_STDERR = 2


def service_log(root: Path) -> Path:
    """The file for the standard output and errors of `runyard up`, or of an agent, as a service."""
    return root / "logs" / "service.log"


class ShortLog:
    """Standard error, for the log of a program that a service manager runs: its file stays small."""

    def __init__(self, log: Path, *, limit: int = LIMIT) -> None:
        self._log = log
        self._limit = limit

    def write(self, text: str) -> None:
        """Write a line."""
        keep_short(self._log, output=_STDERR, limit=self._limit)
        sys.stderr.write(text)

    def flush(self) -> None:
        """Write what is buffered."""
        sys.stderr.flush()


def keep_short(log: Path, *, output: int | None = None, limit: int = LIMIT) -> None:
    """Empty the log if it is large and our output goes there; its content stays as `.1`."""
    descriptor = sys.stdout.fileno() if output is None else output
    try:
        ours, named = os.fstat(descriptor), log.lstat()
        if not stat.S_ISREG(named.st_mode) or not os.path.samestat(ours, named):
            return
        if ours.st_size <= limit:
            return
        shutil.copyfile(log, log.with_suffix(".log.1"))
        # Without it the next write would leave a hole as large as what was there.
        fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_APPEND)
        os.ftruncate(descriptor, 0)
    except OSError:
        return  # a full disk: the next line tries it again
