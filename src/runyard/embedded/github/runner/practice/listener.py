"""Hears what GitHub has to say: the session, the job, its cancellation, the end.

Invariant: the start of this program has a name that is drawn once. By it GitHub knows who comes back after an
answer was lost, and who is another.
"""

from __future__ import annotations

import json
import os
import threading
import time
from typing import Any

from .link import FACE, Link, Pace, Refused
from .telling import Events, say

CONFLICT = 240.0  # how long another start of this runner may be connected before we give up


class Listener(threading.Thread):
    """Connects and waits: for the job, then for its cancellation."""

    def __init__(self, link: Link, jit: str, events: Events[Any]) -> None:
        super().__init__(daemon=True)
        self._link = link
        self._jit = jit
        self._events = events
        self._instance = os.urandom(16).hex()
        self._wait = 25

    def run(self) -> None:
        """Tell of the job, of its cancellation, or of why there is nothing more to hear."""
        try:
            self._connect()
            say("Listening for Jobs")
            job = self._poll("job")
            self._events.put(("job", job))
            self._poll("cancelled")
            self._events.put(("cancelled",))
        except Refused as refused:
            self._events.put(("gone", str(refused)))
        except EOFError:
            self._events.put(("over",))

    def _connect(self) -> None:
        self._link.bearer = self._jit
        body = json.dumps({"instance": self._instance}).encode()
        pace = Pace()
        since = time.monotonic()
        while True:
            status, value = self._link.tried("POST", FACE, body)
            if status == 201:
                self._link.bearer = str(value["session"])
                self._wait = max(1, int(value.get("poll_seconds", 25)))
                return
            conflict = status == 409 and time.monotonic() - since < CONFLICT
            if status != 0 and not conflict:
                raise Refused(f"{status} {value.get('error', '')}: {value.get('reason', '')}")
            time.sleep(pace.again())

    def _poll(self, what: str) -> dict[str, Any]:
        """Ask until there is an answer; EOFError when this session is over."""
        pace = Pace()
        path = f"{FACE}/{what}?wait={self._wait}"
        while True:
            status, value = self._link.tried("GET", path, timeout=self._wait + 15.0)
            if status == 200:
                return value
            if status == 410:
                raise EOFError
            if status not in {0, 204}:
                raise Refused(f"{status} {value.get('error', '')}")
            if status == 204:
                pace.calm()
            else:
                time.sleep(pace.again())
