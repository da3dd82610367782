"""`runyard prove` says what it found, and fails if that is not what was expected."""

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from tests.transcripts import check, transcripts

from runyard.cli import proverun as command
from runyard.cli.main import cli, run
from runyard.sim.proof.cases import CASES


def prove(*argv: str) -> int:
    return run(cli, name="runyard", argv=["prove", "--processes", "1", *argv])


def test_a_guard_that_is_caught_is_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert prove("--variant", "no-fence", "--verbose") == 0
    shown = capsys.readouterr()
    assert "every case as expected" in shown.out
    assert "→ a runner that can execute counts as fenced" in shown.out
    assert "1/1 no-fence: is caught" in shown.err


def test_the_page_shows_the_counterexample_that_is_printed() -> None:
    (shown,) = transcripts("docs/proof.md")
    env = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    outputs = [
        subprocess.run(
            ["bash", "-c", step.command], env=env, capture_output=True, text=True, check=True
        ).stdout
        for step in shown.steps
    ]
    check(shown, outputs)


def test_a_size_explores_the_shipped_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert prove("--jobs", "1", "--pods", "1", "--disturbances", "1", "--json") == 0
    (report,) = json.loads(capsys.readouterr().out)
    assert report["case"] == "shipped-1x1-budget-2-disturbances-1"
    assert (report["expected"], report["found"], report["verdict"]) == ("holds", "holds", "ok")
    assert report["states"] > 1000
    assert report["path"] == []


def test_a_guard_that_nobody_misses_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert prove("--variant", "no-deadline-draining", "--disturbances", "0") == 1
    assert "1 of 1 cases have a WRONG verdict" in capsys.readouterr().out


def test_a_broken_promise_is_a_failure_and_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = next(case for case in CASES if case.name == "no-fence")
    monkeypatch.setattr(command, "CASES", (msgspec.structs.replace(broken, holds=True),))
    assert prove("--variant", "no-fence") == 1
    assert "→ a runner that can execute counts as fenced" in capsys.readouterr().out


def test_cases_share_the_processors(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["no-fence", "no-outage-grace"]
    argv = [word for name in names for word in ("--variant", name)]
    assert run(cli, name="runyard", argv=["prove", "--processes", "2", "--json", *argv]) == 0
    reports = json.loads(capsys.readouterr().out)
    assert [report["case"] for report in reports] == names


def test_an_unknown_case_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert prove("--variant", "nope") == 2
    assert capsys.readouterr().err.startswith("runyard: Invalid value for '--variant'")
