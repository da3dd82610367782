"""Reports stopped runners to the server.

The report is a hint that makes the server check earlier. Nothing depends on it, so it is best effort: one
attempt, a short deadline, and False instead of an exception.
"""

from collections.abc import Callable

import msgspec

from runyard.clock import Clock
from runyard.http.errors import TransportError
from runyard.http.messages import Pairs, Request, Stream, Transport
from runyard.wire.bodies import PodStopped
from runyard.wire.instants import to_rfc3339
from runyard.wire.paths import POD_STOPPED


class StopReports:
    """Reports stopped runners to the server. Without a server every report succeeds."""

    def __init__(
        self,
        transport: Transport | None,
        *,
        clock: Clock,
        token: Callable[[], str] = lambda: "",
        timeout: float = 5.0,
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._token = token
        self._timeout = timeout

    async def stopped(self, pod_name: str, *, ended_at: float) -> bool:
        """Report one stopped Pod; True if the server accepted the report."""
        if self._transport is None:
            return True
        headers: Pairs = (("content-type", "application/json"),)
        if token := self._token():
            headers = (*headers, ("authorization", f"Bearer {token}"))
        body = msgspec.json.encode(PodStopped(pod_name=pod_name, ended_at=to_rfc3339(ended_at)))
        request = Request(method="POST", path=POD_STOPPED, headers=headers, body=body)
        try:
            async with self._clock.timeout(self._timeout):
                answer = await self._transport.send(request, timeout=self._timeout)
        except (TransportError, TimeoutError):
            return False
        if isinstance(answer, Stream):
            await answer.aclose()
        return 200 <= answer.status < 300
