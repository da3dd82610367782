"""Runs a process group, from its start to the end of all its processes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import threading
from typing import Any

from .events import Events
from .log import Log

NO_NEW_PRIVS = 38  # prctl: what this thread starts cannot gain rights, not even by a setuid file
DUMPABLE = 4  # prctl: whether other processes of our user may read our memory


class Program:
    """A process group: starts it, reads its output, ends it."""

    def __init__(self, argv: list[str], events: Events[Any], log: Log, **options: Any) -> None:
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            umask=0o022,
            **options,
        )
        self._events = events
        self._log = log
        self.silent = False
        threading.Thread(target=self._read, daemon=True).start()
        threading.Thread(target=self._reap, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(OSError, ValueError):
            while data := os.read(self._process.stdout.fileno(), 65536):
                self._log.write(data)
        self._events.put(("silent", self))

    def _reap(self) -> None:
        self._events.put(("exit", self, self._process.wait()))

    def signal(self, number: int) -> None:
        """Signals the whole group, which may outlive its leader.

        A process with the leader's number that exists after the leader was reaped is not ours.
        """
        pid = self._process.pid
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._process.returncode is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 0)
                    return
            os.killpg(pid, number)


def restrict(option: int, value: int) -> None:
    """Drops a privilege of this process; only on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
