"""The verdict's own tools: budgets that can be exceeded, lanes that report a failure, long runs that go on."""

import subprocess
import sys
import tomllib
from pathlib import Path

import budget
import lanes
import long_tests
import pytest
import typecheck

JUNIT = """<testsuites><testsuite>
<testcase classname="tests.sim.fleet.test_fleet_short" name="a" time="40.0"/>
<testcase classname="tests.sim.test_sim_loop.TestLoop" name="b" time="2.0"/>
<testcase classname="tests.new.test_it" name="c" time="30.5"/>
</testsuite></testsuites>"""


def rows(budgets: dict[str, float], factor: float = 1.0) -> dict[str, budget.Line]:
    found = budget.took(JUNIT, tuple(budgets))
    return {row.directory: row for row in budget.lines(found, budgets, factor)}


def test_a_test_is_charged_to_the_nearest_directory_that_has_a_budget() -> None:
    found = rows({"tests/sim": 10.0, "tests/sim/fleet": 30.0, "tests/new": 30.0})
    assert {name: row.seconds for name, row in found.items()} == {
        "tests/sim/fleet": 40.0,
        "tests/sim": 2.0,
        "tests/new": 30.5,
    }
    assert not any(row.over for row in found.values())


def test_a_directory_over_its_budget_is_over_unless_the_machine_is_slower() -> None:
    assert rows({"tests/sim/fleet": 10.0})["tests/sim/fleet"].over
    assert not rows({"tests/sim/fleet": 10.0}, factor=2.0)["tests/sim/fleet"].over


def test_a_directory_without_a_budget_is_over_it() -> None:
    found = rows({"tests/sim": 40.0})
    assert found["tests/new"].over
    assert "OVER" in budget.table(list(found.values()), 1.0)


def test_budgets_are_written_as_seconds_of_the_reference_machine() -> None:
    text = budget.written({"tests/sim": (3, 30.0)}, 2.0, 0.2)
    assert '"tests/sim" = 15' in text and "reference = 0.2" in text


def test_every_directory_with_tests_has_a_budget() -> None:
    budgets = tuple(tomllib.loads(budget.BUDGET.read_text("utf-8"))["seconds"])
    files = [path for path in Path("tests").rglob("test_*.py") if "laws" not in path.parts]
    assert files
    named = [path.with_suffix("").as_posix() for path in files]
    assert [
        name for name in named if not any(f"{name}/".startswith(f"{b}/") for b in budgets)
    ] == []
    assert [b for b in budgets if not any(f"{name}/".startswith(f"{b}/") for name in named)] == []


MAKEFILE = """\
good:
	@echo good ran
bad:
	@echo bad ran; exit 3
last:
	@echo last ran
"""


def test_lanes_run_everything_and_fail_if_one_target_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "Makefile").write_text(MAKEFILE)
    monkeypatch.chdir(tmp_path)
    assert lanes.main(["good", "good last"]) == 0
    assert lanes.main(["good", "bad last"]) != 0
    assert capfd.readouterr().out.count("last ran") == 2


def test_a_long_run_goes_on_after_an_interruption_and_begins_anew_with_other_sources(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "state.json"
    works = long_tests.Stage("works", (sys.executable, "-c", "print('ran')"))
    fails = long_tests.Stage("fails", (sys.executable, "-c", "raise SystemExit(4)"))
    for sources, ran in (("a", True), ("a", False), ("b", True)):
        found = long_tests.run([works, fails], long_tests.State(path, sources, fresh=False))
        assert [row[1] for row in found] == ["passed" if ran else "passed before", "FAILED (4)"]
        assert ("ran" in capfd.readouterr().out) == ran
    assert not long_tests.State(path, "b", fresh=True).passed


def test_the_long_run_has_a_stage_for_every_test_and_every_seed() -> None:
    directories = long_tests.directories(Path("tests"))
    files = [path.as_posix() for path in Path("tests").rglob("test_*.py")]
    assert [f for f in files if not any(f == d or f.startswith(f"{d}/") for d in directories)] == []
    names = [stage.name for stage in long_tests.stages(250)]
    assert [name for name in names if name.startswith("seeds")] == [
        "seeds 1 to 100",
        "seeds 101 to 200",
        "seeds 201 to 250",
    ]


def test_a_shared_cache_of_the_type_checker_does_not_hide_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("MYPYPATH", "")
    monkeypatch.setitem(typecheck.FILES, "linux", ("module.py",))
    statuses = []
    for name, text in (
        ("one", "x: int = 1\n"),
        ("two", "x: int = 'a'\n"),
        ("three", "x: int = 1\n"),
    ):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "mypy.ini").write_text("[mypy]\n")
        (folder / "module.py").write_text(text)
        monkeypatch.chdir(folder)
        statuses.append(typecheck.main("linux"))
        assert typecheck.shared("linux").is_dir()
    assert statuses == [0, 1, 0]


def test_the_makefile_knows_the_stages_that_the_lanes_name() -> None:
    done = subprocess.run(
        ["make", "-n", "stage-tests", "stage-proof", "stage-seeds", "stage-laws"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "tools/budget.py" in done.stdout and "--workers 1" in done.stdout
