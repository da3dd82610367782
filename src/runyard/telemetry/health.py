"""Tracks which health conditions of a component fail.

A log says what happened; health says what is still wrong, and how to fix it. Components call `ok` and
`fail` as they work; `report` returns the conditions that are visible.

Invariants:
- Conditions are declared once, with a fix; reporting an undeclared one is a `ValueError`.
- A failure is shown only after it has lasted `visible_after` seconds: a short failure is not an incident.
- A failure whose cause is also failing is hidden: with the database down, the list shows the database.
- Time for the debounce is monotonic; a step of the wall clock neither shows nor hides anything.
"""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from runyard.clock import Clock


class Severity(StrEnum):
    """How urgent a condition is."""

    WARNING = "warning"  # degraded
    ERROR = "error"  # the component does not do its work


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """A health condition: its code, and title and fix for people."""

    code: str  # a slug
    title: str
    fix: str
    severity: Severity = Severity.ERROR
    depends_on: tuple[str, ...] = ()
    visible_after: float = 0.0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One condition that fails and is visible."""

    code: str
    title: str
    fix: str
    severity: Severity
    message: str
    since: float  # seconds since the epoch


class _Failure(msgspec.Struct):
    message: str
    since: float
    began: float


class Health:
    """Tracks which of the declared conditions fail."""

    def __init__(self, clock: Clock, conditions: Iterable[Condition] = ()) -> None:
        self._clock = clock
        self._conditions: dict[str, Condition] = {}
        self._causes: dict[str, tuple[str, ...]] = {}
        self._failing: dict[str, _Failure] = {}
        self.declare(*conditions)

    def declare(self, *conditions: Condition) -> None:
        """Declare conditions; a duplicate, an unknown dependency or a cycle is a `ValueError`."""
        for condition in conditions:
            if condition.code in self._conditions:
                raise ValueError(f"condition {condition.code} is declared twice")
            self._conditions[condition.code] = condition
        self._causes = {code: self._resolve(code) for code in self._conditions}

    def ok(self, code: str) -> None:
        """Mark a condition as not failing."""
        self._known(code)
        self._failing.pop(code, None)

    def fail(self, code: str, message: str) -> None:
        """Mark a condition as failing; keeps when the failure began and shows the latest message."""
        self._known(code)
        failure = self._failing.get(code)
        if failure is None:
            now = self._clock
            self._failing[code] = _Failure(message, since=now.now(), began=now.monotonic())
        else:
            failure.message = message

    def report(self) -> tuple[Report, ...]:
        """Return the visible failures, in the order of declaration."""
        now = self._clock.monotonic()
        return tuple(
            Report(
                code=code,
                title=condition.title,
                fix=condition.fix,
                severity=condition.severity,
                message=failure.message,
                since=failure.since,
            )
            for code, condition in self._conditions.items()
            if (failure := self._failing.get(code)) is not None
            and now - failure.began >= condition.visible_after
            and not any(cause in self._failing for cause in self._causes[code])
        )

    def conditions(self) -> dict[str, bool]:
        """Return every declared code, and whether its condition fails and is visible."""
        visible = {report.code for report in self.report()}
        return {code: code in visible for code in self._conditions}

    def healthy(self) -> bool:
        """Return whether no visible condition is an error."""
        return all(report.severity is not Severity.ERROR for report in self.report())

    def _known(self, code: str) -> None:
        if code not in self._conditions:
            raise ValueError(f"condition {code} is not declared")

    def _resolve(self, code: str) -> tuple[str, ...]:
        """Return every condition that this one depends on, also indirectly."""
        found: dict[str, None] = {}
        waiting = list(self._conditions[code].depends_on)
        while waiting:
            cause = waiting.pop(0)
            if cause == code:
                raise ValueError(f"condition {code} depends on itself")
            if cause not in self._conditions:
                raise ValueError(f"condition {code} depends on {cause}, which is not declared")
            if cause not in found:
                found[cause] = None
                waiting.extend(self._conditions[cause].depends_on)
        return tuple(found)
