"""Buffers the job's output and sends it to GitHub.

Invariants:
- The job's output never blocks it, and is bytes: no line is too long and none is malformed.
- The log is bounded. What does not fit is read and dropped, and the last line of the log says so.
- GitHub answers how much has arrived; what it lost is sent again.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from .client import BASE_PATH, Backoff, Client
from .events import Events

SPACING = 0.2  # seconds between two parts of the log
DROPPED = b"\n[log truncated: it is full, and the rest was dropped]\n"


class Log:
    """The job's output, up to a limit, and how much of it GitHub has."""

    def __init__(self, *, limit: int, sent: int) -> None:
        self._limit = max(0, limit - len(DROPPED) - sent)
        self._base = sent  # what GitHub had before this program started
        self._held = bytearray()
        self._full = False
        self._closed = False
        self._changed = threading.Condition()

    def write(self, data: bytes) -> None:
        """Appends what fits."""
        with self._changed:
            if self._full or self._closed:
                return
            free = self._limit - len(self._held)
            self._held += data[:free]
            if len(data) > free:
                self._full = True
                self._held += DROPPED
            self._changed.notify_all()

    def close(self) -> None:
        """Marks the end of the log."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def next(self, offset: int, size: int) -> bytes | None:
        """The next part after an offset, as soon as there is one; None at the end."""
        with self._changed:
            start = offset - self._base
            while len(self._held) <= start:
                if self._closed:
                    return None
                self._changed.wait()
            return bytes(self._held[start : start + size])


class Sender(threading.Thread):
    """Sends the log to GitHub; its event says that all has arrived or that GitHub refuses it."""

    def __init__(
        self, client: Client, log: Log, events: Events[Any], *, offset: int, chunk: int
    ) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._log = log
        self._events = events
        self._offset = offset
        self._chunk = chunk

    def run(self) -> None:
        """Sends part by part; GitHub answers how much has arrived."""
        pace = Backoff()
        while True:
            part = self._log.next(self._offset, self._chunk)
            if part is None:
                break
            path = f"{BASE_PATH}/log?offset={self._offset}"
            status, value = self._client.request("POST", path, part)
            if status == 200 or (status == 409 and "size" in value):
                self._offset = int(value["size"])
                pace.succeeded()
                time.sleep(SPACING if len(part) < self._chunk else 0)
            elif status == 0:
                time.sleep(pace.failed())
            else:
                break
        self._events.put(("sent",))
