"""Measures whether a client sends or reads at the least rate.

A client has `grace` seconds. Time in which the server waits for the client uses them up; each byte that passes gives
back the time that it takes at the least rate, up to `grace` again. When none are left, the client is too slow. So an
average over a window of about `grace` seconds is enforced: a fast beginning does not pay for a trickle later, and a
pause of `grace` seconds is allowed at any time.

Invariant: only time in which the server waited for the client is counted. While the handler, object storage or a queue
holds the server back, no time is used up.
"""

import msgspec


class LeastRate(msgspec.Struct, frozen=True, kw_only=True):
    """The least rate of a client."""

    rate: float = 10_000.0  # bytes per second; a slow line has 50,000
    grace: float = 30.0  # seconds


class TooSlow(TimeoutError):
    """The client sends or reads below the least rate."""


class Pace:
    """The time that is left to one client, for one body."""

    __slots__ = ("_least", "_left")

    def __init__(self, least: LeastRate) -> None:
        self._least = least
        self._left = least.grace

    def allowed(self, size: int = 0) -> float:
        """Seconds that the server may wait for the client now; `size` bytes pass in that time."""
        return max(0.0, self._left + size / self._least.rate)

    def passed(self, size: int, waited: float) -> None:
        """Count bytes that passed, and the seconds that the server waited for them."""
        self._left = min(self._least.grace, self._left - waited + size / self._least.rate)
