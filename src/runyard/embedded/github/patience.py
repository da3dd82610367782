"""How long GitHub waits for a registration whose runner is offline, and whose time is over.

Invariant: a time that was noted is never taken back; it is checked against the present when it comes.
"""

import heapq
import math
from collections.abc import Iterator, Mapping

from runyard.clock import Clock
from runyard.embedded.github.model import Runner
from runyard.embedded.github.settings import PracticeSettings


class Patience:
    """Times at which somebody who is offline may have to be given up."""

    def __init__(self, *, clock: Clock, settings: PracticeSettings) -> None:
        self._clock = clock
        self._settings = settings
        self._timers: list[tuple[float, int]] = []  # (due, runner id)

    def begins(self, runner: Runner) -> None:
        """A registration went offline, at the time that it says."""
        heapq.heappush(self._timers, (self._end(runner), runner.id))

    def over(self, runners: Mapping[int, Runner]) -> Iterator[Runner]:
        """Whose time is over, one after the other; each is given up before the next is asked for."""
        now = self._clock.monotonic()
        while self._timers and self._timers[0][0] <= now:
            _, runner_id = heapq.heappop(self._timers)
            runner = runners.get(runner_id)
            if runner is not None and self._end(runner) <= now:
                yield runner

    def next_due(self) -> float:
        """When somebody's time may be over, on the monotonic clock."""
        return self._timers[0][0] if self._timers else math.inf

    def _end(self, runner: Runner) -> float:
        if runner.offline_since is None:
            return math.inf
        settings = self._settings
        return runner.offline_since + (
            settings.lost_after if runner.busy else settings.unused_after
        )
