"""Lists the alarms of this process: failing health conditions and loops that are overdue."""

from runyard.clock import Clock
from runyard.telemetry.conditions import LOOP_STALLED
from runyard.telemetry.freshness import Freshness, Stale
from runyard.telemetry.health import Health
from runyard.telemetry.log import redact
from runyard.web.durations import format_duration
from runyard.web.values import Alarm

_LONGEST = 400


class Alarms:
    """Computes the alarms. Remembers since when each loop is overdue, so that an unchanged alarm compares equal."""

    def __init__(self, health: Health, freshness: Freshness, *, clock: Clock) -> None:
        self._health = health
        self._freshness = freshness
        self._clock = clock
        self._since: dict[str, float] = {}

    def now(self) -> tuple[Alarm, ...]:
        """Return the current alarms."""
        conditions = tuple(
            Alarm(
                code=report.code,
                severity=report.severity.value,
                title=report.title,
                text=report.fix,
                message=str(redact(report.message))[:_LONGEST],
                since=report.since,
            )
            for report in self._health.report()
        )
        # A loop that has just been registered has had no time to succeed yet.
        stale = [loop for loop in self._freshness.stale() if loop.silent > loop.within]
        known = self._since
        self._since = {
            loop.loop: known.get(loop.loop, round(self._clock.now() - loop.silent, 3))
            for loop in stale
        }
        return (*conditions, *(self._loop(loop) for loop in stale))

    def _loop(self, stale: Stale) -> Alarm:
        expected = f"{stale.loop}: should succeed every {format_duration(stale.within)}"
        return Alarm(
            code=f"{LOOP_STALLED.code}/{stale.loop}",
            severity="warning",
            title=LOOP_STALLED.title,
            text=LOOP_STALLED.fix,
            message=expected if stale.ever else f"{expected}, and never has",
            since=self._since[stale.loop],
        )
