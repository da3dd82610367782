"""A rate budget for all requests to GitHub.

GitHub limits points per minute (secondary; a read costs 1, a write 5) and requests per hour (primary; given in
`x-ratelimit-*`), both for each installation, and sometimes sends a `retry-after`. Mints,
fences, reads and audits share one budget, because a burst of fences that starves the mints, or an audit that
starves the fences, is an outage.

`Spending` is the interface that a call uses. `Budget` holds it in this process, for tools and tests; a fleet
of servers shares one in the database, with the same arithmetic.

Invariants:
- This module sends no requests; time comes from the clock.
- `spend` waits at most `patience`, else raises `BudgetExhausted` with the time at which it is worth
  trying again. It never takes points that it then does not use.
- Each key (an installation, or the App itself) has points and an hour of its own, and one that GitHub
  has rate limited does not delay the others.
- Background purposes leave a share of the points and of the hour untouched (`KEEP_FREE`).
"""

from collections.abc import Mapping
from typing import Final, Protocol

import msgspec

from runyard.clock import Clock
from runyard.github.answers import is_rate_limit
from runyard.github.errors import BudgetExhausted, Exclusion
from runyard.http.messages import Response

APP_KEY: Final = "app"
READ_POINTS = 1
WRITE_POINTS = 5
POINTS_PER_MINUTE = 900.0
# Share of a budget that a purpose may not touch, so that urgent work finds something left.
KEEP_FREE: Mapping[str, float] = {"audit": 0.3, "read": 0.1, "pull": 0.05, "user": 0.05}
ROUNDING_MARGIN = 0.001  # seconds added to a wait: rounding must not leave a bucket slightly short again and again
LONGEST_BLOCK = 3600.0
_PRIMARY = "core"  # as `x-ratelimit-resource` calls it; an older server sends no name
_LONGEST_HOUR = 2 * 3600.0  # clocks differ a little
# GitHub's documented pause for a limit without a Retry-After.
_DEFAULT_BLOCK = 60.0


class Spending(Protocol):
    """The budget interface of a call to GitHub."""

    async def spend(self, points: float, *, purpose: str, key: str, taken: bool = False) -> None:
        """Take points or raise a `Definite`: then nothing may be sent.

        `taken`: they were taken before for this one request. They are taken again only if GitHub has rate limited the
        key since.
        """
        ...

    async def record_response(self, response: Response, *, key: str) -> None:
        """Update the budget from a response; never raises."""
        ...


class Hour(msgspec.Struct, frozen=True, kw_only=True):
    """The primary limit from a response's headers. `ends` is in seconds since the epoch."""

    limit: int
    left: int
    ends: float


class RateBudget(msgspec.Struct, frozen=True, kw_only=True):
    """What one key has to spend. `closed`: seconds until GitHub's rate limit lets it send again."""

    key: str
    points: float
    capacity: float
    closed: float = 0.0
    hour_limit: int | None = None
    hour_left: int | None = None
    hour_ends_in: float = 0.0

    @property
    def share(self) -> float:
        """The scarcer of the two, points or hour, as a share of the whole."""
        parts = [self.points / self.capacity]
        if self.hour_limit and self.hour_left is not None and self.hour_ends_in > 0:
            parts.append(self.hour_left / self.hour_limit)
        return max(0.0, min(parts))


def retry_after(response: Response, *, now: float) -> float | None:
    """Return the Retry-After of a response; None if it has none."""
    wait = _number(response.header("retry-after"), limit=LONGEST_BLOCK)
    if wait is not None:
        return wait
    hour = hour_of(response, now=now)
    if hour is not None and hour.left == 0:
        return min(max(1.0, hour.ends - now), LONGEST_BLOCK)
    return _DEFAULT_BLOCK if is_rate_limit(response) else None


def hour_of(response: Response, *, now: float) -> Hour | None:
    """The primary limit in an answer's headers, if they are all there and make sense.

    GitHub has others beside it, such as one for registrations of runners; a response has the headers of one of them.
    """
    if response.header("x-ratelimit-resource") not in ("", _PRIMARY):
        return None
    limit = _number(response.header("x-ratelimit-limit"))
    left = _number(response.header("x-ratelimit-remaining"))
    ends = _number(response.header("x-ratelimit-reset"))
    if left is None or ends is None or ends > now + _LONGEST_HOUR:
        return None
    return Hour(limit=int(limit or left), left=int(left), ends=ends)


class _Bucket:
    def __init__(self, *, level: float, filled_at: float) -> None:
        self.level = level
        self.filled_at = filled_at
        self.open_at = 0.0
        self.hour: Hour | None = None


class Budget:
    """The budget of one process."""

    def __init__(
        self,
        clock: Clock,
        *,
        points_per_minute: float = POINTS_PER_MINUTE,
        patience: float = 2.0,
        keep_free: Mapping[str, float] = KEEP_FREE,
    ) -> None:
        self._clock = clock
        self._capacity = checked_capacity(points_per_minute)
        self._rate = points_per_minute / 60.0
        self._patience = patience
        self._keep_free = keep_free
        self._buckets: dict[str, _Bucket] = {}

    def available(self, key: str = "") -> float:
        """Points of a key now."""
        return self._filled(key).level

    def wait_for(self, points: float, *, purpose: str, key: str = "") -> float:
        """Seconds until `points` could be taken for that purpose; 0 when now."""
        bucket, keep = self._filled(key), self._keep_free.get(purpose, 0.0)
        # A floor above what the bucket can ever hold beside the points would never open.
        floor = min(self._capacity * keep, self._capacity - points)
        refill = (points + floor - bucket.level) / self._rate
        hour = 0.0
        if bucket.hour is not None and bucket.hour.left - 1 < bucket.hour.limit * keep:
            hour = bucket.hour.ends - self._clock.now()
        return max(0.0, bucket.open_at - self._clock.monotonic(), refill, hour)

    async def spend(
        self, points: float, *, purpose: str, key: str = "", taken: bool = False
    ) -> None:
        """Take points, waiting at most `patience`; raises `BudgetExhausted` and takes nothing otherwise."""
        if taken and self._filled(key).open_at <= self._clock.monotonic():
            return
        deadline = self._clock.monotonic() + self._patience
        while wait := self.wait_for(points, purpose=purpose, key=key):
            if self._clock.monotonic() + wait > deadline:
                raise BudgetExhausted(purpose, retry_after=wait, scope=reach_of(key))
            await self._clock.sleep(wait + ROUNDING_MARGIN)
        bucket = self._buckets[key]
        bucket.level -= points
        if bucket.hour is not None:
            left = max(0, bucket.hour.left - 1)
            bucket.hour = msgspec.structs.replace(bucket.hour, left=left)

    async def record_response(self, response: Response, *, key: str = "") -> None:
        """Update the budget from a response."""
        now = self._clock.now()
        bucket, hour = self._filled(key), hour_of(response, now=now)
        if hour is not None:
            bucket.hour = later_of(bucket.hour, hour)
        wait = retry_after(response, now=now)
        if wait is not None:
            self.block(key, wait)

    def block(self, key: str, seconds: float) -> None:
        """Nothing for `key` before that many seconds; a shorter block never shortens a longer one."""
        bucket = self._filled(key)
        until = self._clock.monotonic() + min(max(0.0, seconds), LONGEST_BLOCK)
        bucket.open_at = max(until, bucket.open_at)

    def _filled(self, key: str) -> _Bucket:
        now = self._clock.monotonic()
        bucket = self._buckets.setdefault(key, _Bucket(level=self._capacity, filled_at=now))
        grown = bucket.level + (now - bucket.filled_at) * self._rate
        bucket.level, bucket.filled_at = min(self._capacity, grown), now
        if bucket.hour is not None and bucket.hour.ends <= self._clock.now():
            bucket.hour = None
        return bucket


def reach_of(key: str) -> Exclusion:
    """Return what waits for that budget: one account, or everything if it is the App's own."""
    return "none" if key == APP_KEY else "account"


def checked_capacity(points_per_minute: float) -> float:
    """Return the size of a budget; raises `ValueError` if it does not allow one write."""
    if points_per_minute < WRITE_POINTS:
        raise ValueError("the budget must allow at least one write a minute")
    return points_per_minute


def later_of(known: Hour | None, reported: Hour) -> Hour:
    """Return the current hour: responses can arrive out of order, so of the same hour the lower figure counts."""
    if known is None or reported.ends > known.ends:
        return reported
    if reported.ends == known.ends and reported.left < known.left:
        return reported
    return known


def _number(text: str, *, limit: float = float(1 << 40)) -> float | None:
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        return None
    return min(float(text), limit)
