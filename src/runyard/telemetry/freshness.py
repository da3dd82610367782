"""Tracks when each loop last succeeded, and which loops are stale.

A process that answers requests may still do no work, because all of its loops fail. So each loop reports its
successes, and a loop without one for too long is *stale*. The readiness probe and the dashboard show it.

Invariants:
- A loop that was announced and has not succeeded yet is stale: a component is ready when each of its loops has
  succeeded once, not when it has started.
- Time is monotonic; a step of the wall clock makes nothing stale.
- Entries never expire: a loop that ended is stale until `forget` is called.

A watch or a controller does not report successes one by one: it is *followed*. Its last success is read through a
callback when `stale` is called, which costs nothing in between.
"""

from collections.abc import Callable

import msgspec

from runyard.clock import Clock

MISSED = 3  # steps that a loop may miss
MARGIN = 5.0  # seconds that it may be late on a busy machine


class Stale(msgspec.Struct, frozen=True, kw_only=True):
    """One loop that has not succeeded in time."""

    loop: str
    within: float  # seconds within which it has to succeed
    silent: float  # seconds since its last success, or since it was announced
    ever: bool  # whether it has ever succeeded


LastSuccess = Callable[[], float | None]  # on the monotonic clock; None: not yet


class _Expected(msgspec.Struct):
    within: float
    last: float
    ever: bool = False
    read_last: LastSuccess | None = None

    def refresh(self) -> None:
        """Read the last success of followed work."""
        if self.read_last is not None and (last := self.read_last()) is not None:
            self.last, self.ever = last, True


class Freshness:
    """Tracks when each loop of a component last succeeded."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loops: dict[str, _Expected] = {}

    def expect(self, loop: str, within: float) -> None:
        """Announce a loop that has to succeed every `within` seconds; a known one keeps its last success."""
        if within <= 0:
            raise ValueError(f"loop {loop}: within must be positive, not {within}")
        known = self._loops.get(loop)
        if known is None:
            self._loops[loop] = _Expected(within, self._clock.monotonic())
        else:
            known.within = within

    def follow(self, loop: str, within: float, last: LastSuccess) -> None:
        """Announce work whose last success is read through `last`."""
        self.expect(loop, within)
        self._loops[loop].read_last = last

    def succeeded(self, loop: str) -> None:
        """Record a success; `ValueError` if the loop was not announced."""
        known = self._loops.get(loop)
        if known is None:
            raise ValueError(f"loop {loop} was not announced")
        known.last = self._clock.monotonic()
        known.ever = True

    def forget(self, loop: str) -> None:
        """Drop a loop that ended as intended."""
        self._loops.pop(loop, None)

    def stale(self) -> tuple[Stale, ...]:
        """Return the loops that have not succeeded in time, in the order of their announcement."""
        now = self._clock.monotonic()
        for known in self._loops.values():
            known.refresh()
        return tuple(
            Stale(loop=name, within=known.within, silent=now - known.last, ever=known.ever)
            for name, known in self._loops.items()
            if not known.ever or now - known.last > known.within
        )


def due_within(*, every: float, deadline: float) -> float:
    """Return how long a loop may go without success if it runs every `every` seconds with this `deadline`."""
    return max(MISSED * every, deadline) + every + MARGIN
