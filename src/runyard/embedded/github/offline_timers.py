"""Tracks how long a registration's runner has been offline, and when it is given up.

Invariant: a timer is never cancelled; when it fires, it is checked against the registration's present state.
"""

import heapq
import math
from collections.abc import Iterator, Mapping

from runyard.clock import Clock
from runyard.embedded.github.model import Runner
from runyard.embedded.github.settings import PracticeSettings


class OfflineTimers:
    """Times at which registrations that are offline may have to be given up."""

    def __init__(self, *, clock: Clock, settings: PracticeSettings) -> None:
        self._clock = clock
        self._settings = settings
        self._timers: list[tuple[float, int]] = []  # (due, runner id)

    def start(self, runner: Runner) -> None:
        """Starts a timer for a registration that went offline."""
        heapq.heappush(self._timers, (self._end(runner), runner.id))

    def expired(self, runners: Mapping[int, Runner]) -> Iterator[Runner]:
        """Yields the expired registrations; each is given up before the next is computed."""
        now = self._clock.monotonic()
        while self._timers and self._timers[0][0] <= now:
            _, runner_id = heapq.heappop(self._timers)
            runner = runners.get(runner_id)
            if runner is not None and self._end(runner) <= now:
                yield runner

    def next_due(self) -> float:
        """When the next timer may expire, on the monotonic clock."""
        return self._timers[0][0] if self._timers else math.inf

    def _end(self, runner: Runner) -> float:
        if runner.offline_since is None:
            return math.inf
        settings = self._settings
        return runner.offline_since + (
            settings.lost_after if runner.busy else settings.unused_after
        )
