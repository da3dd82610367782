"""Reads each source in one loop for all viewers, and not at all while there are none.

A `Feed` reads one source periodically while there are viewers, keeps the last result, and records since when the source
has been down. A request renders the results that the feeds hold; it waits briefly for a fresh attempt, and never for a
source that hangs. The feeds do not wait for each other.

Invariants:
- At most one read of a source is running. A slow source is read less often: the pause is at least ten times the
  duration of the last read, up to a bound.
- Neither a failing source nor a defect in the code that reads it ends the loop, because the dashboard must not take the
  server down. Both are counted, and the source is shown as down.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, NoReturn, TypeVar

import msgspec

from runyard.clock import Clock
from runyard.telemetry.catalogue import RUNYARD_LOOP_FAILURES_TOTAL
from runyard.telemetry.log import Logger, redact
from runyard.telemetry.loops import Expected
from runyard.telemetry.meter import Meter
from runyard.telemetry.names import Loop, error_slug, slug_of
from runyard.web.values import Source

T = TypeVar("T")
_LONG_PAUSE = 30.0
_MESSAGE = 300


class Viewers:
    """Tracks whether there are viewers: open streams, and requests of the last seconds."""

    def __init__(self, clock: Clock, *, linger: float) -> None:
        self._clock = clock
        self._linger = linger
        self._until = float("-inf")
        self._open_streams: Callable[[], int] = lambda: 0
        self._arrived = asyncio.Event()

    def set_counter(self, count: Callable[[], int]) -> None:
        """Set the function that counts the open streams."""
        self._open_streams = count

    def touch(self) -> None:
        """Record a request or a new stream."""
        self._until = self._clock.monotonic() + self._linger
        self._arrived.set()

    @property
    def present(self) -> bool:
        """Whether there are viewers."""
        return self._open_streams() > 0 or self._clock.monotonic() < self._until

    async def wait(self) -> None:
        """Wait until there are viewers."""
        while not self.present:
            self._arrived.clear()
            await self._arrived.wait()


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """Interval between two reads of a source, and the deadline of one read, in seconds."""

    every: float
    within: float


class Feed(Generic[T]):
    """One source: its last result and its state."""

    def __init__(
        self,
        name: str,
        read: Callable[[], Awaitable[T]],
        *,
        clock: Clock,
        meter: Meter,
        log: Logger,
        pace: Pace,
        expected: Expected,
    ) -> None:
        self._name = name
        self._read = read
        self._clock = clock
        self._meter = meter
        self._log = log
        self._every = pace.every
        self._within = pace.within
        self._expected = expected
        self._tried_at = float("-inf")
        self._tried = asyncio.Event()
        self._down_since: float | None = None
        self._message = ""
        self._as_of: float | None = None
        self.value: T | None = None
        self._pause = pace.every  # current pause between two reads

    @property
    def source(self) -> Source:
        """The state of the source, for the dashboard."""
        if self._down_since is not None:
            return Source(
                name=self._name,
                state="down",
                since=self._down_since,
                message=self._message,
                as_of=self._as_of,
            )
        return Source(name=self._name, state="ok", as_of=self._as_of)

    async def run(self, viewers: Viewers, changed: Callable[[], None]) -> NoReturn:
        """Read periodically while there are viewers; call `changed` after each attempt."""
        while True:
            await viewers.wait()
            started = self._clock.monotonic()
            await self._attempt()
            self._finish(changed)
            took = self._clock.monotonic() - started
            slow = 0.0 if self._down_since is not None else 10.0 * took
            self._pause = max(self._every, min(slow, _LONG_PAUSE))
            await self._clock.sleep(self._pause)

    async def fresh(self, *, patience: float) -> None:
        """Wait until the last attempt is no older than one interval, but no longer than `patience`."""
        since = self._clock.monotonic() - self._pause
        try:
            async with self._clock.timeout(patience):
                while self._tried_at < since:
                    await self._tried.wait()
        except TimeoutError:
            self._mark_unanswered()

    async def _attempt(self) -> None:
        limit = self._clock.timeout(self._within)
        try:
            async with limit:
                value = await self._read()
        except Exception as error:  # noqa: BLE001 the loop's boundary: see the invariants
            late = isinstance(error, TimeoutError) and limit.expired()
            message = f"no answer within {self._within:g} s" if late else str(error) or repr(error)
            self._fail(message)
            kind = "deadline" if late else error_slug(error)
            loop = f"{Loop.DASHBOARD}-{slug_of(self._name)}"
            self._meter.inc(RUNYARD_LOOP_FAILURES_TOTAL, loop=loop, error=kind)
            if not late and not isinstance(error, self._expected):
                self._log.error(
                    "dashboard failed because of a defect", source=self._name, exc_info=error
                )
        else:
            self.value = value
            self._as_of, self._down_since, self._message = self._clock.now(), None, ""

    def _finish(self, changed: Callable[[], None]) -> None:
        """Wake waiting requests and call `changed`; a defect there must not end the loop either."""
        self._tried_at = self._clock.monotonic()
        self._tried.set()
        self._tried = asyncio.Event()
        try:
            changed()
        except Exception as defect:  # noqa: BLE001 the loop's boundary: see the invariants
            self._meter.inc(
                RUNYARD_LOOP_FAILURES_TOTAL, loop=Loop.DASHBOARD, error=error_slug(defect)
            )
            self._log.error(
                "dashboard failed because of a defect", source=self._name, exc_info=defect
            )

    def _fail(self, message: str) -> None:
        if self._down_since is None:
            self._down_since = self._clock.now()
        self._message = str(redact(message))[:_MESSAGE]

    def _mark_unanswered(self) -> None:
        """Show the source as down if its first attempt has not ended yet."""
        if self._as_of is None and self._down_since is None:
            self._fail("has not answered yet")
