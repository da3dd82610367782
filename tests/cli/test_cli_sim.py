"""`runyard sim`: an incident is named before a guard is taken away from it, and the help tells which guards it has."""

from click.testing import CliRunner

from runyard.cli.sim import sim
from runyard.sim.scenarios.catalogue import ALL


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
    assert all(each.name in told and each.tells in told for each in ALL)


def test_without_its_guard_the_incident_fails_and_says_how_to_see_it_again() -> None:
    words = "--scenario runner-dies-before-it-registers --without deadline_closed"
    told = CliRunner().invoke(sim, words.split())
    assert told.exit_code == 1
    assert "FAILED: Expected: it runs elsewhere: not within 15 s" in told.output
    assert f"runyard sim {words.replace(' --without', ' --seed 1 --without')}" in told.output
