"""The named incidents, each played to its end. What happened once must not happen again."""

import pytest

from runyard.sim.run import Stage
from runyard.sim.scenarios.catalogue import ALL, BY_NAME, Scenario

QUICK = [scenario for scenario in ALL if len(scenario.shapes(1)) == 1]
LOOPS = [scenario for scenario in ALL if len(scenario.shapes(1)) > 1]
EVERY = 15  # of the many crash points, so many lie between two that the fast tests visit


@pytest.mark.parametrize("scenario", QUICK, ids=lambda scenario: scenario.name)
def test_incident(stage: Stage, scenario: Scenario) -> None:
    (shape,) = scenario.shapes(1)
    outcome = stage.play(shape, scenario.play)
    assert outcome.ok, outcome.failure


@pytest.mark.parametrize("scenario", LOOPS, ids=lambda scenario: scenario.name)
def test_crashes_at_some_effects(stage: Stage, scenario: Scenario) -> None:
    for shape in scenario.shapes(1)[::EVERY]:
        outcome = stage.play(shape, scenario.play)
        assert outcome.ok, f"seed {shape.seed}: {outcome.failure}"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("scenario", LOOPS, ids=lambda scenario: scenario.name)
def test_crashes_at_every_effect(stage: Stage, scenario: Scenario) -> None:
    for shape in scenario.shapes(1):
        outcome = stage.play(shape, scenario.play)
        assert outcome.ok, f"seed {shape.seed}: {outcome.failure}"


def test_every_incident_tells_what_it_is() -> None:
    assert len(BY_NAME) == len(ALL) == 8
    assert all(scenario.tells and scenario.name == scenario.name.lower() for scenario in ALL)
