"""What this process says of itself: conditions that are failing, and loops that have stopped to succeed."""

from runyard.clock import Clock
from runyard.telemetry.conditions import LOOP_STALLED
from runyard.telemetry.freshness import Freshness, Stale
from runyard.telemetry.health import Health
from runyard.telemetry.log import redact
from runyard.web.values import Alarm
from runyard.web.words import lasted

_LONGEST = 400


class Alarms:
    """Keeps since when each loop is stale, so that the same fact stays the same value."""

    def __init__(self, health: Health, freshness: Freshness, *, clock: Clock) -> None:
        self._health = health
        self._freshness = freshness
        self._clock = clock
        self._since: dict[str, float] = {}

    def now(self) -> tuple[Alarm, ...]:
        """What is wrong at this moment."""
        conditions = tuple(
            Alarm(
                code=report.code,
                severity=report.severity.value,
                title=report.title,
                text=report.text,
                message=str(redact(report.message))[:_LONGEST],
                since=report.since,
            )
            for report in self._health.report()
        )
        # A loop that has just been announced has had no time to succeed: that is a start and no failure.
        stale = [loop for loop in self._freshness.stale() if loop.silent > loop.within]
        known = self._since
        self._since = {
            loop.loop: known.get(loop.loop, round(self._clock.now() - loop.silent, 3))
            for loop in stale
        }
        return (*conditions, *(self._loop(loop) for loop in stale))

    def _loop(self, stale: Stale) -> Alarm:
        promise = f"{stale.loop}: should succeed every {lasted(stale.within)}"
        return Alarm(
            code=f"{LOOP_STALLED.code} {stale.loop}",
            severity="warning",
            title=LOOP_STALLED.title,
            text=LOOP_STALLED.text,
            message=promise if stale.ever else f"{promise}, and never has",
            since=self._since[stale.loop],
        )
