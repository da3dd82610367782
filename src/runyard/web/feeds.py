"""Reading for everybody: one loop per source, however many people look, and none when nobody does.

A `Feed` reads one source again and again while there is interest, keeps the last good answer, and says since when
the source has been down. Whoever wants to show something takes what the feeds hold; it may wait a moment for a
fresh attempt, but never for a source that hangs. The two feeds do not wait for each other either.

Invariants:
- At most one read of a source is under way, and a source that answers slowly is asked less often: its pause is at
  least ten times as long as its answer took, up to a bound.
- No fault of a source, and no defect of the code that reads it, ends the loop: the dashboard must not take the
  server down with it. Both are counted, and both are shown as the source being down.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, NoReturn, TypeVar

from runyard.clock import Clock
from runyard.telemetry.catalogue import RUNYARD_LOOP_FAILURES_TOTAL
from runyard.telemetry.log import Logger, redact
from runyard.telemetry.loops import Expected
from runyard.telemetry.meter import Meter
from runyard.web.values import Source

T = TypeVar("T")
_LONG_PAUSE = 30.0
_MESSAGE = 300


class Interest:
    """Whether anybody looks: those who watch, and those who asked a moment ago."""

    def __init__(self, clock: Clock, *, lasts: float) -> None:
        self._clock = clock
        self._lasts = lasts
        self._until = float("-inf")
        self._watching: Callable[[], int] = lambda: 0
        self._came = asyncio.Event()

    def watched_by(self, count: Callable[[], int]) -> None:
        """How to learn how many watch right now."""
        self._watching = count

    def show(self) -> None:
        """Somebody asked, or began to watch."""
        self._until = self._clock.monotonic() + self._lasts
        self._came.set()

    @property
    def there(self) -> bool:
        """Does anybody look?"""
        return self._watching() > 0 or self._clock.monotonic() < self._until

    async def wait(self) -> None:
        """Return at once if somebody looks, else when somebody comes."""
        while not self.there:
            self._came.clear()
            await self._came.wait()


class Feed(Generic[T]):
    """One source: its last good answer, and how it is."""

    def __init__(
        self,
        name: str,
        read: Callable[[], Awaitable[T]],
        *,
        clock: Clock,
        meter: Meter,
        log: Logger,
        every: float,
        within: float,
        expected: Expected,
    ) -> None:
        self._name = name
        self._read = read
        self._clock = clock
        self._meter = meter
        self._log = log
        self._every = every
        self._within = within
        self._expected = expected
        self._tried_at = float("-inf")
        self._tried = asyncio.Event()
        self._down_since: float | None = None
        self._message = ""
        self._as_of: float | None = None
        self.value: T | None = None
        self._pause = every  # how long it rests now between two readings

    @property
    def source(self) -> Source:
        """How the source is, for people."""
        if self._down_since is not None:
            return Source(
                name=self._name,
                state="down",
                since=self._down_since,
                message=self._message,
                as_of=self._as_of,
            )
        return Source(name=self._name, state="ok", as_of=self._as_of)

    async def run(self, interest: Interest, changed: Callable[[], None]) -> NoReturn:
        """Read while somebody looks, for ever; `changed` is called after each attempt."""
        while True:
            await interest.wait()
            started = self._clock.monotonic()
            await self._attempt()
            self._finish(changed)
            took = self._clock.monotonic() - started
            slow = 0.0 if self._down_since is not None else 10.0 * took
            self._pause = max(self._every, min(slow, _LONG_PAUSE))
            await self._clock.sleep(self._pause)

    async def fresh(self, *, patience: float) -> None:
        """Wait until the last attempt is no older than one turn, but no longer than `patience`."""
        since = self._clock.monotonic() - self._pause
        try:
            async with self._clock.timeout(patience):
                while self._tried_at < since:
                    await self._tried.wait()
        except TimeoutError:
            self._waited_in_vain()

    async def _attempt(self) -> None:
        limit = self._clock.timeout(self._within)
        try:
            async with limit:
                value = await self._read()
        except Exception as error:  # noqa: BLE001 the loop's boundary: see the invariants
            late = isinstance(error, TimeoutError) and limit.expired()
            told = f"no answer within {self._within:g} s" if late else str(error) or repr(error)
            self._fail(told)
            kind = "deadline" if late else type(error).__name__
            self._meter.inc(RUNYARD_LOOP_FAILURES_TOTAL, loop=f"dashboard {self._name}", kind=kind)
            if not late and not isinstance(error, self._expected):
                self._log.error("dashboard defect", source=self._name, exc_info=error)
        else:
            self.value = value
            self._as_of, self._down_since, self._message = self._clock.now(), None, ""

    def _finish(self, changed: Callable[[], None]) -> None:
        """Tell those who wait; a defect in showing must not end the reading either."""
        self._tried_at = self._clock.monotonic()
        self._tried.set()
        self._tried = asyncio.Event()
        try:
            changed()
        except Exception as defect:  # noqa: BLE001 the loop's boundary: see the invariants
            self._meter.inc(
                RUNYARD_LOOP_FAILURES_TOTAL, loop="dashboard", kind=type(defect).__name__
            )
            self._log.error("dashboard defect", source=self._name, exc_info=defect)

    def _fail(self, message: str) -> None:
        if self._down_since is None:
            self._down_since = self._clock.now()
        self._message = str(redact(message))[:_MESSAGE]

    def _waited_in_vain(self) -> None:
        """The first attempt still hangs: say so rather than claim that all is well."""
        if self._as_of is None and self._down_since is None:
            self._fail("has not answered yet")
