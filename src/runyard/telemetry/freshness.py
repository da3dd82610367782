"""Which loops still do their work.

A process that answers is not a process that works: its loops may all be failing behind the port that says
"ok". So each loop tells when it succeeded, and a loop that has not for too long is *stale*. The readiness
probe tells this; so does the dashboard.

Invariants:
- A loop that was announced and has not succeeded yet is stale: a part is ready when each of its loops has
  done its work once, not when it has started to try.
- Time is monotonic; a step of the wall clock makes nothing stale.
- Nothing here is ever forgotten by itself: a loop that ended is stale until `forget` says that it may end.

Not all work is a loop that knows when it succeeded: a watch lives as long as it is heard of, a controller rests while
there is nothing to do. Such work is *followed*: it is asked for its last success when somebody wants to know, which
costs it nothing in between.
"""

from collections.abc import Callable

import msgspec

from runyard.clock import Clock

MISSED = 3  # a loop may miss this many of its turns
MARGIN = 5.0  # and be this much late, for a machine that is busy


class Stale(msgspec.Struct, frozen=True, kw_only=True):
    """One loop that has not succeeded in time."""

    loop: str
    within: float  # how often it has to succeed, in seconds
    silent: float  # how long it has not, in seconds; since it was announced if it never has
    ever: bool  # whether it has ever succeeded


LastSuccess = Callable[[], float | None]  # on the monotonic clock; None: not yet


class _Expected(msgspec.Struct):
    within: float
    last: float
    ever: bool = False
    ask: LastSuccess | None = None

    def look(self) -> None:
        """Take over what followed work says of itself."""
        if self.ask is not None and (last := self.ask()) is not None:
            self.last, self.ever = last, True


class Freshness:
    """Keeps when each loop of a part last succeeded."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loops: dict[str, _Expected] = {}

    def expect(self, loop: str, within: float) -> None:
        """Announce a loop that has to succeed every `within` seconds; a known one keeps its successes."""
        if within <= 0:
            raise ValueError(f"the loop {loop} cannot succeed every {within} s")
        known = self._loops.get(loop)
        if known is None:
            self._loops[loop] = _Expected(within, self._clock.monotonic())
        else:
            known.within = within

    def follow(self, loop: str, within: float, last: LastSuccess) -> None:
        """Announce work that says by itself when it last succeeded."""
        self.expect(loop, within)
        self._loops[loop].ask = last

    def succeeded(self, loop: str) -> None:
        """Note that the loop did its work; `ValueError` if nobody announced it."""
        known = self._loops.get(loop)
        if known is None:
            raise ValueError(f"the loop {loop} was not announced")
        known.last = self._clock.monotonic()
        known.ever = True

    def forget(self, loop: str) -> None:
        """The loop has ended and may."""
        self._loops.pop(loop, None)

    def stale(self) -> tuple[Stale, ...]:
        """The loops that have not succeeded in time, in the order of their announcement."""
        now = self._clock.monotonic()
        for known in self._loops.values():
            known.look()
        return tuple(
            Stale(loop=name, within=known.within, silent=now - known.last, ever=known.ever)
            for name, known in self._loops.items()
            if not known.ever or now - known.last > known.within
        )


def due_within(*, every: float, deadline: float) -> float:
    """How long a loop may go without success that runs `every` seconds with a `deadline` for each step."""
    return max(MISSED * every, deadline) + every + MARGIN
