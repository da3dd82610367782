"""Tests health: only lasting failures are shown, and only those without a failing cause."""

import asyncio

import pytest

from runyard.telemetry import conditions
from runyard.telemetry.health import Condition, Health, Severity


class HandClock:
    """A clock that a test moves by hand; wall and monotonic time apart."""

    def __init__(self) -> None:
        self.wall = 1000.0
        self.mono = 0.0

    def now(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.mono

    async def sleep(self, seconds: float) -> None:
        self.mono += seconds

    def timeout(self, seconds: float) -> asyncio.Timeout:
        return asyncio.timeout(seconds)


DISK = Condition(code="disk", title="Disk", fix="Clean it.", visible_after=10)
DATABASE = Condition(code="db", title="Database", fix="Start it.", depends_on=("disk",))
QUEUE = Condition(
    code="queue", title="Queue", fix="Wait.", depends_on=("db",), severity=Severity.WARNING
)


def codes(health: Health) -> list[str]:
    return [report.code for report in health.report()]


def test_a_failure_is_shown_only_after_it_has_lasted() -> None:
    clock = HandClock()
    health = Health(clock, (DISK,))
    health.fail("disk", "93 %")
    clock.mono = 9.9
    assert codes(health) == []
    clock.mono = 10.0
    health.fail("disk", "94 %")
    (report,) = health.report()
    assert (report.message, report.since, report.fix) == ("94 %", 1000.0, DISK.fix)
    health.ok("disk")
    assert codes(health) == []
    health.fail("disk", "again")
    assert codes(health) == []


def test_a_wall_clock_step_shows_nothing() -> None:
    clock = HandClock()
    health = Health(clock, (DISK,))
    health.fail("disk", "full")
    clock.wall += 86400
    assert codes(health) == []


def test_a_condition_is_hidden_while_its_cause_fails() -> None:
    health = Health(HandClock(), (DISK, DATABASE, QUEUE))
    health.fail("queue", "long")
    health.fail("db", "down")
    assert codes(health) == ["db"]
    health.fail("disk", "full")
    assert codes(health) == []
    health.ok("db")
    assert codes(health) == []  # the queue depends on the disk too, through the database
    health.ok("disk")
    assert codes(health) == ["queue"]


def test_only_an_error_makes_a_component_unready() -> None:
    health = Health(HandClock(), (DISK, DATABASE, QUEUE))
    health.fail("queue", "long")
    assert health.healthy()
    health.fail("db", "down")
    assert not health.healthy()


@pytest.mark.parametrize(
    "declared",
    [(DISK, DISK), (DATABASE,), (Condition(code="a", title="", fix="", depends_on=("a",)),)],
    ids=["twice", "missing-cause", "circle"],
)
def test_a_wrong_declaration_is_refused(declared: tuple[Condition, ...]) -> None:
    with pytest.raises(ValueError, match="condition"):
        Health(HandClock(), declared)


def test_an_undeclared_condition_cannot_be_reported() -> None:
    health = Health(HandClock())
    with pytest.raises(ValueError, match="typo"):
        health.ok("typo")
    with pytest.raises(ValueError, match="typo"):
        health.fail("typo", "x")


def test_the_shipped_conditions_are_consistent() -> None:
    Health(HandClock(), conditions.ALL)
    constants = [v for v in vars(conditions).values() if isinstance(v, Condition)]
    assert tuple(constants) == conditions.ALL
