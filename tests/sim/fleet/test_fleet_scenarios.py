"""The named incidents, each played to its end; and once more without each of its guards, where it must go wrong.

Those that hold somebody up are played in `test_fleet_explained.py`, where somebody also asks why.
"""

import pytest
from tests.sim.fleet.causes import CAUSES
from tests.tiers import sample

from runyard.sim.guard_switches import NAMES
from runyard.sim.run import Stage
from runyard.sim.scenarios.catalogue import ALL, BY_NAME
from runyard.sim.scenarios.scenario import Scenario, Without, lacking

QUICK = [s for s in ALL if isinstance(CAUSES[s.name], str) and not s.long]
LONG = [scenario for scenario in ALL if scenario.long]
LOOPS = [scenario for scenario in ALL if len(scenario.shapes(1)) > 1]
GUARDED = [
    pytest.param(
        scenario,
        each,
        id=f"{scenario.name} without {each.guard}",
        marks=[pytest.mark.slow] if each.long else [],
    )
    for scenario in ALL
    for each in scenario.without
]


@pytest.mark.parametrize(
    "scenario", sample(QUICK, of=1, fast=8), ids=lambda scenario: scenario.name
)
def test_incident(stage: Stage, scenario: Scenario) -> None:
    (shape,) = scenario.shapes(1)
    outcome = stage.play(shape, scenario.play)
    assert outcome.ok, outcome.failure


@pytest.mark.slow
@pytest.mark.parametrize(("scenario", "off"), sample(GUARDED, of=3, fast=16))
def test_incident_without_its_guard_goes_wrong(
    stage: Stage, scenario: Scenario, off: Without
) -> None:
    (shape,) = scenario.shapes(1)
    outcome = stage.play(lacking(shape, off.guard), scenario.play)
    assert outcome.code == off.fails, outcome.failure or "it went well"
    assert dict(off.detail).items() <= outcome.detail.items(), outcome.failure


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("scenario", LONG, ids=lambda scenario: scenario.name)
def test_long_incident(stage: Stage, scenario: Scenario) -> None:
    (shape,) = scenario.shapes(1)
    outcome = stage.play(shape, scenario.play)
    assert outcome.ok, outcome.failure


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("scenario", LOOPS, ids=lambda scenario: scenario.name)
def test_crashes_at_every_effect(stage: Stage, scenario: Scenario) -> None:
    for shape in sample(scenario.shapes(1), of=10):
        outcome = stage.play(shape, scenario.play)
        assert outcome.ok, f"seed {shape.seed}: {outcome.failure}"


def test_every_incident_tells_what_it_is_and_has_a_name_of_its_own() -> None:
    assert len(BY_NAME) == len(ALL)
    assert all(scenario.summary and scenario.name == scenario.name.lower() for scenario in ALL)


def test_every_incident_is_also_played_without_a_guard_or_says_why_not() -> None:
    assert [s.name for s in ALL if bool(s.without) == bool(s.unguarded)] == []


def test_a_guard_that_is_taken_away_is_one_that_exists() -> None:
    assert {each.guard for scenario in ALL for each in scenario.without} <= {*NAMES}
