"""`runyard sim`: an incident is named before a guard is taken away from it, and the help tells which guards it has."""

import pytest
from click.testing import CliRunner

from runyard.cli import simindex
from runyard.cli.sim import sim
from runyard.sim.faults import KINDS
from runyard.sim.scenarios.catalogue import ALL
from runyard.sim.scenarios.expectations import Expectation
from runyard.sim.shape import Shape


def test_a_guard_without_an_incident_is_refused_before_anything_runs() -> None:
    told = CliRunner().invoke(sim, ["--without", "drain_first"])
    assert told.exit_code == 2
    assert "--scenario" in told.output


def test_a_guard_that_does_not_exist_is_refused() -> None:
    told = CliRunner().invoke(sim, ["--scenario", "poll-loop-dies", "--without", "luck"])
    assert told.exit_code == 2
    assert "luck" in told.output


def test_the_help_tells_every_incident_with_its_guards() -> None:
    told = CliRunner().invoke(sim, ["--help"]).output
    assert told.count("--without ") > sum(len(each.without) for each in ALL) - 1
    assert all(each.name in told and each.summary in told for each in ALL)


@pytest.mark.slow
def test_without_its_guard_the_incident_fails_and_says_how_to_see_it_again() -> None:
    words = "--scenario runner-dies-before-it-registers --without deadline_closed"
    told = CliRunner().invoke(sim, words.split())
    assert told.exit_code == 1
    assert f"FAILED: Expected: {Expectation.IT_RUNS_ELSEWHERE.template}: not within " in told.output
    assert f"runyard sim {words.replace(' --without', ' --seed 1 --without')}" in told.output


def test_the_list_in_the_help_is_the_catalogue() -> None:
    listed = [(each.name, each.summary, each.guards, each.long) for each in simindex.SCENARIOS]
    assert listed == [
        (each.name, each.summary, tuple(guard.guard for guard in each.without), each.long)
        for each in ALL
    ]
    assert tuple(KINDS) == simindex.FAULTS
    assert Shape(hosts=simindex.HOSTS, jobs_per_day=simindex.JOBS_PER_DAY) == Shape()


def test_an_unknown_fault_is_refused() -> None:
    told = CliRunner().invoke(sim, ["--faults", "luck"])
    assert told.exit_code == 2
    assert "Invalid value for --faults" in told.output and "luck" in told.output
