"""Writes responses to clients that must read them at the least rate.

Only the time in which a write waits for the client is counted (`pace`), not the time in which a response is produced.
"""

from collections.abc import Coroutine

from aiohttp import web

from runyard.clock import Clock
from runyard.http.pace import LeastRate, Pace, TooSlow

PIECE = 64 << 10  # bytes of one write, so that a large chunk allows no long pause


class ResponseWriter:
    """Writes to clients at the least rate or faster."""

    def __init__(self, least: LeastRate, clock: Clock) -> None:
        self._least = least
        self._clock = clock

    def pace(self) -> Pace:
        """The pace of one response."""
        return Pace(self._least)

    async def write(self, response: web.StreamResponse, chunk: bytes, pace: Pace | None) -> None:
        """Write a chunk; with a pace, a reader that takes it too slowly is a `TooSlow`."""
        if pace is None:
            await response.write(chunk)
            return
        view = memoryview(chunk)
        for start in range(0, len(view), PIECE):
            piece = view[start : start + PIECE]
            await self._timely(response.write(piece), pace, len(piece))

    async def finish(self, response: web.StreamResponse, pace: Pace) -> None:
        """Write the end of a response and what it has buffered."""
        await self._timely(response.write_eof(), pace, 0)

    async def _timely(
        self, writing: Coroutine[object, object, None], pace: Pace, size: int
    ) -> None:
        began = self._clock.monotonic()
        limit = self._clock.timeout(pace.allowed(size))
        try:
            async with limit:
                await writing
        except TimeoutError:
            if limit.expired():
                raise TooSlow("the response is read below the least rate") from None
            raise
        pace.passed(size, self._clock.monotonic() - began)
