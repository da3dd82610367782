"""Sends requests to GitHub, which may be unreachable at any time for long.

Client    one request; status 0 means that it should be retried. Where GitHub cannot be reached directly,
          RUNYARD_PRACTICE_SOCKET names a Unix socket that leads there
Backoff   how long to wait before that
"""

from __future__ import annotations

import http.client
import json
import os
import random
import socket
import urllib.parse
from typing import Any

BASE_PATH = "/practice/runner/session"


class Refused(Exception):
    """GitHub refuses this runner, or has given it up."""


class Client:
    """Sends requests to GitHub. Each has a connection of its own, so that none can go stale."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise Refused(f"the JIT configuration has no usable URL: {url!r}")
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname, parts.port
        self._base = parts.path.rstrip("/")
        self._socket = os.environ.get("RUNYARD_PRACTICE_SOCKET", "")
        self.bearer = ""

    def request_once(
        self, method: str, path: str, body: bytes = b"", *, timeout: float = 15.0
    ) -> tuple[int, dict[str, Any]]:
        """Sends one request; raises OSError or HTTPException when there was no complete answer."""
        secure = self._secure and not self._socket
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=timeout)
        headers = {
            "authorization": f"Bearer {self.bearer}",
            "content-type": "application/json",
            "user-agent": "practice-runner",
            "connection": "close",
        }
        try:
            if self._socket:
                connection.sock = socket.socket(socket.AF_UNIX)
                connection.sock.settimeout(timeout)
                connection.sock.connect(self._socket)
            connection.request(method, self._base + path, body=body, headers=headers)
            answer = connection.getresponse()
            content = answer.read(1 << 20)
        finally:
            connection.close()
        try:
            value = json.loads(content or b"{}")
        except ValueError:
            value = {}
        return answer.status, value if isinstance(value, dict) else {}

    def request(
        self, method: str, path: str, body: bytes = b"", *, timeout: float = 15.0
    ) -> tuple[int, dict[str, Any]]:
        """As `request_once`; status 0 means that it should be retried."""
        try:
            status, value = self.request_once(method, path, body, timeout=timeout)
        except (OSError, http.client.HTTPException):
            return 0, {}
        return (0, {}) if status >= 500 or status in {408, 429} else (status, value)


class Backoff:
    """How long to wait before the next try: longer each time, with jitter."""

    def __init__(self, *, first: float = 0.1, last: float = 10.0) -> None:
        self._first, self._last = first, last
        self._next = first

    def failed(self) -> float:
        """A try failed; returns the seconds to wait."""
        delay = self._next * (0.5 + random.random())
        self._next = min(self._next * 2, self._last)
        return delay

    def succeeded(self) -> None:
        """A try succeeded."""
        self._next = self._first
