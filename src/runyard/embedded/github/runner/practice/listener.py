"""Receives from GitHub: the session, the job, its cancellation, the end.

Invariant: each start of this program has a random name. By it GitHub recognises a program that returns after an
answer was lost, and distinguishes it from another start.
"""

from __future__ import annotations

import json
import os
import threading
import time
from typing import Any

from .client import BASE_PATH, Backoff, Client, Refused
from .events import Events, print_line

CONFLICT = (
    240.0  # seconds for which another start of this runner may be connected before we give up
)


class Listener(threading.Thread):
    """Connects and waits: for the job, then for its cancellation."""

    def __init__(self, client: Client, jit: str, events: Events[Any]) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._jit = jit
        self._events = events
        self._instance = os.urandom(16).hex()
        self._wait = 25

    def run(self) -> None:
        """Emits the job, its cancellation, or the reason why the session ended."""
        try:
            self._connect()
            print_line("Listening for Jobs")
            job = self._poll("job")
            self._events.put(("job", job))
            self._poll("cancelled")
            self._events.put(("cancelled",))
        except Refused as refused:
            self._events.put(("gone", str(refused)))
        except EOFError:
            self._events.put(("over",))

    def _connect(self) -> None:
        self._client.bearer = self._jit
        body = json.dumps({"instance": self._instance}).encode()
        pace = Backoff()
        since = time.monotonic()
        while True:
            status, value = self._client.request("POST", BASE_PATH, body)
            if status == 201:
                self._client.bearer = str(value["session"])
                self._wait = max(1, int(value.get("poll_seconds", 25)))
                return
            conflict = status == 409 and time.monotonic() - since < CONFLICT
            if status != 0 and not conflict:
                raise Refused(f"{status} {value.get('error', '')}: {value.get('reason', '')}")
            time.sleep(pace.failed())

    def _poll(self, what: str) -> dict[str, Any]:
        """Polls until there is an answer; EOFError when this session is over."""
        pace = Backoff()
        path = f"{BASE_PATH}/{what}?wait={self._wait}"
        while True:
            status, value = self._client.request("GET", path, timeout=self._wait + 15.0)
            if status == 200:
                return value
            if status == 410:
                raise EOFError
            if status not in {0, 204}:
                raise Refused(f"{status} {value.get('error', '')}")
            if status == 204:
                pace.succeeded()
            else:
                time.sleep(pace.failed())
