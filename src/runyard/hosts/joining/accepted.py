"""Notices that the main machine does not accept the credential of this host any more, and says what to do.

Every request of the agent is refused then, each with a line of its own that names no cause: the host was removed, it
has joined again under its name, or it was away for longer than its credential is valid. The agent goes on: jobs that
run may end, and a main machine that was restored from a backup may know the host again.
"""

import shlex
from pathlib import Path

from runyard.http.messages import Request, Response, Stream, Transport
from runyard.telemetry.conditions import HOST_CREDENTIAL_ENDED
from runyard.telemetry.health import Health
from runyard.telemetry.log import Logger

_REFUSED = 401
_UNCHECKED = 500  # and above: whether the credential is valid was not found out


class AcceptedTransport:
    """Reports once when requests with the credential begin to be refused, and when they are accepted again."""

    def __init__(
        self, inner: Transport, *, url: str, host: str, data: Path, health: Health, log: Logger
    ) -> None:
        self._inner = inner
        self._what = f"{url} no longer accepts the credential of {host}"
        self._fix = (
            f"runyard host leave --data {shlex.quote(str(data))}; to join again, on the main machine:"
            " runyard host token"
        )
        self._health = health
        self._log = log
        self._refused = False

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        """Send, and report."""
        answer = await self._inner.send(request, timeout=timeout)
        if answer.status == _REFUSED:
            self._health.fail(HOST_CREDENTIAL_ENDED.code, self._what)
            if not self._refused:
                why = "the host was removed or has joined again, or its credential expired"
                self._log.error(f"{self._what}: {why}", fix=self._fix)
            self._refused = True
        elif answer.status < _UNCHECKED:
            self._health.ok(HOST_CREDENTIAL_ENDED.code)
            if self._refused:
                self._log.info("the credential of this host is accepted again")
            self._refused = False
        return answer
