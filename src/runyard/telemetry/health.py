"""What is wrong right now, in the operator's words.

A log says what happened; health says what is still so, and what to do about it. Parts report `ok` and
`fail` as they go; `report` returns what a person should see.

Invariants:
- Conditions are declared once, with instructions; reporting an undeclared one is a `ValueError`.
- A failure is shown only after it has lasted `visible_after` seconds: a blip is not an incident.
- A failure whose cause is also failing is hidden: with the database down, the list shows the database.
- Time for the debounce is monotonic; a step of the wall clock neither shows nor hides anything.
"""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from runyard.clock import Clock


class Severity(StrEnum):
    """How much attention it needs."""

    WARNING = "warning"  # works, but not as it should
    ERROR = "error"  # a promise is being broken: somebody should act


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that can be wrong."""

    code: str
    title: str
    text: str  # what the operator should do
    severity: Severity = Severity.ERROR
    depends_on: tuple[str, ...] = ()
    visible_after: float = 0.0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One condition that is failing and visible."""

    code: str
    title: str
    text: str
    severity: Severity
    message: str
    since: float  # seconds since the epoch


class _Failure(msgspec.Struct):
    message: str
    since: float
    began: float


class Health:
    """Keeps which of the declared conditions are failing."""

    def __init__(self, clock: Clock, conditions: Iterable[Condition] = ()) -> None:
        self._clock = clock
        self._conditions: dict[str, Condition] = {}
        self._causes: dict[str, tuple[str, ...]] = {}
        self._failing: dict[str, _Failure] = {}
        self.declare(*conditions)

    def declare(self, *conditions: Condition) -> None:
        """Make conditions known; twice the same, a missing cause or a circle is a `ValueError`."""
        for condition in conditions:
            if condition.code in self._conditions:
                raise ValueError(f"condition {condition.code} is declared twice")
            self._conditions[condition.code] = condition
        self._causes = {code: self._resolve(code) for code in self._conditions}

    def ok(self, code: str) -> None:
        """It works."""
        self._known(code)
        self._failing.pop(code, None)

    def fail(self, code: str, message: str) -> None:
        """It does not; the first moment of an unbroken failure is kept, the last message shown."""
        self._known(code)
        failure = self._failing.get(code)
        if failure is None:
            now = self._clock
            self._failing[code] = _Failure(message, since=now.now(), began=now.monotonic())
        else:
            failure.message = message

    def report(self) -> tuple[Report, ...]:
        """What a person should see, in the order of declaration."""
        now = self._clock.monotonic()
        return tuple(
            Report(
                code=code,
                title=condition.title,
                text=condition.text,
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
        """Every declared condition, and whether it is failing and visible."""
        seen = {report.code for report in self.report()}
        return {code: code in seen for code in self._conditions}

    def healthy(self) -> bool:
        """Whether no visible condition is an error."""
        return all(report.severity is not Severity.ERROR for report in self.report())

    def _known(self, code: str) -> None:
        if code not in self._conditions:
            raise ValueError(f"condition {code} is not declared")

    def _resolve(self, code: str) -> tuple[str, ...]:
        """Every condition that this one depends on, also indirectly."""
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
