"""Measures how far the clock of a server is from ours, by the `Date` of its answers."""

from email.utils import parsedate_to_datetime

from runyard.clock import Clock
from runyard.http.messages import Request, Response, Stream, Transport


class SkewTransport:
    """A transport that measures the difference between the server's clock and ours."""

    def __init__(self, inner: Transport, *, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock
        self.skew: float | None = None  # positive: ours is ahead

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        """Send the request, and compare the clocks."""
        began = self._clock.now()
        answer = await self._inner.send(request, timeout=timeout)
        ended = self._clock.now()
        for name, value in answer.headers:
            if name.lower() == "date":
                try:
                    server_time = parsedate_to_datetime(value).timestamp()
                except ValueError:
                    continue
                # A Date has whole seconds, some time between request and response: tolerate that much.
                early, late = began - (server_time + 1.0), ended - server_time
                self.skew = early if early > 0 else min(0.0, late)
        return answer
