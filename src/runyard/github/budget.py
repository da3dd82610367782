"""One budget for everything that this process asks of GitHub.

GitHub limits requests per hour and installation (primary; told in `x-ratelimit-*`), points per minute
(secondary; a read costs 1, a write 5), and sometimes simply says "not before" (`retry-after`). Mints,
fences, reads and audits share one budget, because a burst of fences that starves the mints, or an
audit that starves the fences, is an outage of our own making.

Invariants:
- Pure bookkeeping: no requests, no tasks; time only through the clock.
- `spend` waits at most `patience`, else raises `BudgetExhausted` with the time at which it is worth
  trying again. It never takes points that it then does not use.
- A `key` (an installation, or the App itself) that GitHub told to wait does not hold up the others.
- Background purposes leave a share of the minute's points untouched (`KEEP_FREE`).
"""

from collections.abc import Mapping

from runyard.clock import Clock
from runyard.github.errors import BudgetExhausted
from runyard.http.messages import Response

READ_POINTS = 1
WRITE_POINTS = 5
# Share of the bucket that a purpose may not touch, so that urgent work finds something left.
KEEP_FREE: Mapping[str, float] = {"audit": 0.3, "read": 0.1}
_LONGEST_BLOCK = 3600.0


class Budget:
    """A bucket of points that refills over a minute, and a gate per installation."""

    def __init__(
        self,
        clock: Clock,
        *,
        points_per_minute: float = 900.0,
        patience: float = 2.0,
        keep_free: Mapping[str, float] = KEEP_FREE,
    ) -> None:
        if points_per_minute < WRITE_POINTS:
            raise ValueError("the budget must allow at least one write a minute")
        self._clock = clock
        self._capacity = points_per_minute
        self._rate = points_per_minute / 60.0
        self._patience = patience
        self._keep_free = keep_free
        self._level = points_per_minute
        self._filled_at: float | None = None
        self._blocked_until: dict[str, float] = {}

    def available(self) -> float:
        """Points in the bucket now."""
        now = self._clock.monotonic()
        if self._filled_at is not None:
            self._level = min(self._capacity, self._level + (now - self._filled_at) * self._rate)
        self._filled_at = now
        return self._level

    def wait_for(self, points: float, *, purpose: str, key: str = "") -> float:
        """Seconds until `points` could be taken for that purpose; 0 when now."""
        level = self.available()
        now = self._clock.monotonic()
        gate = self._blocked_until.get(key, now) - now
        # A floor above what the bucket can ever hold beside the points would never open.
        floor = min(self._capacity * self._keep_free.get(purpose, 0.0), self._capacity - points)
        refill = (points + floor - level) / self._rate
        return max(0.0, gate, refill)

    async def spend(self, points: float, *, purpose: str, key: str = "") -> None:
        """Take points, waiting at most `patience`; raises `BudgetExhausted` and takes nothing otherwise."""
        deadline = self._clock.monotonic() + self._patience
        while wait := self.wait_for(points, purpose=purpose, key=key):
            if self._clock.monotonic() + wait > deadline:
                raise BudgetExhausted(purpose, retry_after=wait)
            # A hair more than computed: rounding must not leave the bucket a trace short, again and again.
            await self._clock.sleep(wait + 0.001)
        self._level -= points

    def told(self, response: Response) -> float | None:
        """How long an answer's headers say to wait; `None` when they do not."""
        wait = _seconds(response.header("retry-after"))
        if wait is None and response.header("x-ratelimit-remaining") == "0":
            wait = _until_reset(response, now=self._clock.now())
        return wait

    def observe(self, response: Response, *, key: str = "") -> float | None:
        """Learn from an answer's headers; returns how long `key` must now wait, if it must."""
        wait = self.told(response)
        if wait is not None:
            self.block(key, wait)
        return wait

    def block(self, key: str, seconds: float) -> None:
        """Nothing for `key` before that many seconds; a shorter block never shortens a longer one."""
        until = self._clock.monotonic() + min(max(0.0, seconds), _LONGEST_BLOCK)
        self._blocked_until[key] = max(until, self._blocked_until.get(key, until))


def _until_reset(response: Response, *, now: float) -> float | None:
    reset = _seconds(response.header("x-ratelimit-reset"), limit=float(1 << 40))
    if reset is None:
        return None
    return min(max(1.0, reset - now), _LONGEST_BLOCK)


def _seconds(text: str, *, limit: float = _LONGEST_BLOCK) -> float | None:
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        return None
    return min(float(text), limit)
