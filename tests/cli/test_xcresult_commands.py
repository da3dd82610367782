"""`runyard xcresult` on bundles that are made here: every command, every format, every way to end."""

import io
import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
import zipfile
from pathlib import Path

import pytest
from tests.xcresult.writer.plan import Plan, Written
from tests.xcresult.writer.writing import write_bundle

from runyard.cli.main import cli, run

PLAN = Plan(
    cases=24, failures=3, skips=2, expected_failures=1, retries=2, arguments=2, attachments=6, attachment_bytes=5000,
    payloads=4, activities=3, build_issues=3, tags=2, bugs=1, metrics=1, coverage=2, targets=2,
)  # fmt: skip
CALM = Plan(seed=2, cases=5)
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
PROGRAM = (sys.executable, "-c", "from runyard.cli.main import main; main()", "xcresult")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Written]:
    path = tmp_path_factory.mktemp("made") / "App.xcresult"
    return path, write_bundle(path, PLAN)


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("calm") / "Calm.xcresult"
    write_bundle(path, CALM)
    return path


def call(*words: object) -> int:
    return run(cli, name="runyard", argv=["xcresult", *map(str, words)])


def test_show_tells_the_summary_and_the_tree(
    made: tuple[Path, Written], capfd: pytest.CaptureFixture[str]
) -> None:
    path, _ = made
    assert call("show", path) == 0
    out, err = capfd.readouterr()
    assert err == ""
    assert out.startswith("✗ App.xcresult  failed  24 tests: 3 failed")
    assert "\x1b" not in out, "colours are for terminals"
    assert call("show", path, "--details", "--only-failures") == 0
    assert "· " in capfd.readouterr().out, "activities are details"


def test_figures_are_those_that_were_written(
    made: tuple[Path, Written], capfd: pytest.CaptureFixture[str]
) -> None:
    path, written = made
    assert call("figures", path) == 0
    assert json.loads(capfd.readouterr().out) == written.figures


@pytest.mark.parametrize("form", ["tree", "json", "junit", "markdown", "github"])
def test_every_format_goes_to_a_file_or_to_standard_output(
    form: str, made: tuple[Path, Written], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path, _ = made
    assert call("show", path, "--format", form) == 0
    out = capfd.readouterr().out
    target = tmp_path / "report"
    assert call("show", path, "--format", form, "-o", target) == 0
    assert capfd.readouterr().out == ""
    assert target.read_text(encoding="utf-8") == out
    assert [each.name for each in tmp_path.iterdir()] == ["report"]


def test_several_bundles_are_one_answer(
    made: tuple[Path, Written], calm: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path, _ = made
    assert call("show", path, calm, "--format", "json") == 0
    assert [each["status"] for each in json.loads(capfd.readouterr().out)] == ["failure", "success"]
    assert call("show", path, calm, "--format", "junit") == 0
    assert (
        len(
            {
                each.attrib["name"]
                for each in ET.fromstring(capfd.readouterr().out).iter("testsuite")
            }
        )
        > 1
    )
    assert call("show", path, calm) == 0
    assert "✓ Calm.xcresult  passed  5 tests: 5 passed" in capfd.readouterr().out


def test_failures_are_an_exit_code_only_when_asked_for(
    made: tuple[Path, Written], calm: Path
) -> None:
    assert call("show", made[0], "--fail-on-failures") == 1
    assert call("show", calm, made[0], "--fail-on-failures") == 1
    assert call("show", calm, "--fail-on-failures") == 0
    assert call("show", made[0]) == 0


def test_an_issue_outside_of_tests_has_one_verdict(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "Outside.xcresult"
    write_bundle(path, Plan(cases=3, sessionless=1))
    assert call("show", path, "--fail-on-failures") == 0
    assert capfd.readouterr().out.startswith("✓ Outside.xcresult  passed")
    assert call("show", path, "--fail-on-failures", "--format", "junit") == 0
    counts = ET.fromstring(capfd.readouterr().out).attrib
    assert (counts["failures"], counts["errors"]) == ("0", "0")


def test_attachments_are_exported_with_a_manifest(
    made: tuple[Path, Written], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert call("attachments", made[0], "--to", tmp_path / "out") == 0
    assert "6 attachments" in capfd.readouterr().out
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_bytes())
    names = {each["exportedFileName"] for test in manifest for each in test["attachments"]}
    assert names | {"manifest.json"} == {each.name for each in (tmp_path / "out").iterdir()}
    inodes = {(tmp_path / "out" / name).stat().st_ino for name in names}
    assert (len(names), len(inodes)) == (6, 4), "payloads that are shared are one file"


def test_a_test_that_does_not_exist_is_not_an_empty_export(
    made: tuple[Path, Written], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert call("show", made[0], "--format", "json") == 0
    known = json.loads(capfd.readouterr().out)["test_modules"][0]["test_cases"][0]["identifier"]
    words = ["attachments", made[0], "--to", tmp_path / "none", "--test", known]
    assert call(*words, "--test", "Nope") == 2
    out, err = capfd.readouterr()
    assert out == "" and err.count("\n") == 1
    assert err.startswith("runyard: App.xcresult: --test Nope matches no test. ")
    assert not (tmp_path / "none").exists()
    assert call(*words, "--test", known.replace("(", "-(")) == 2
    assert "Did you mean " in capfd.readouterr().err
    assert call(*words) == 0


@pytest.mark.parametrize("form", ["json", "cobertura", "lcov", "text"])
def test_coverage_in_every_format(
    form: str, made: tuple[Path, Written], calm: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert call("coverage", made[0], "--format", form) == 0
    out, err = capfd.readouterr()
    assert len(out.splitlines()) >= 1 and err == ""
    assert call("coverage", calm, "--format", form) == 0
    assert capfd.readouterr().err == "runyard: Calm.xcresult contains no code coverage\n"


def test_verify_names_what_is_damaged(
    calm: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert call("verify", calm) == 0
    assert "all intact" in capfd.readouterr().out
    copy = tmp_path / "Hurt.xcresult"
    shutil.copytree(calm, copy)
    victim = max((copy / "Data").glob("data.*"), key=lambda path: path.stat().st_size)
    victim.write_bytes(victim.read_bytes()[:-1] + b"\0")
    assert call("verify", copy) == 1
    assert victim.name.removeprefix("data.") in capfd.readouterr().out
    assert call("verify", copy, "--json") == 1
    told = json.loads(capfd.readouterr().out)
    assert (told["good"], [each["object_id"] for each in told["damaged"]]) == (
        False,
        [victim.name.removeprefix("data.")],
    )


def test_diff_tells_what_changed(
    made: tuple[Path, Written], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    better = tmp_path / "Better.xcresult"
    write_bundle(better, Plan(cases=24, targets=2))
    assert call("diff", better, made[0], "--json") == 0
    worse = json.loads(capfd.readouterr().out)
    assert len(worse["newly_failing"]) == 3 and worse["fixed"] == []
    assert call("diff", made[0], better) == 0
    assert "fixed: 3" in capfd.readouterr().out
    assert call("diff", better, made[0], "--fail-on-failures") == 1
    assert call("diff", made[0], made[0], "--fail-on-failures") == 0
    assert f"{24} tests unchanged" in capfd.readouterr().out.splitlines()[-1]


def zipped(path: Path, target: Path) -> Path:
    with zipfile.ZipFile(target, "w") as archive:
        for file in sorted(path.rglob("*")):
            archive.write(file, file.relative_to(path.parent))
    return target


def test_an_archive_on_standard_input(
    calm: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = zipped(calm, tmp_path / "calm.zip")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(archive.read_bytes())))
    assert call("show", "-") == 0
    assert capfd.readouterr().out.startswith("✓ standard input  passed")
    assert list(scratch.iterdir()) == [], "nothing is left behind"


def bad(tmp_path: Path, kind: str, calm: Path) -> Path:
    path = tmp_path / "Bad.xcresult"
    if kind == "nothing":
        return path
    if kind == "no bundle":
        path = tmp_path / "folder"
        path.mkdir()
        return path
    if kind == "text":
        path.write_text("hello\x1b[2J")
        return path
    shutil.copytree(calm, path)
    if kind == "no info":
        (path / "Info.plist").unlink()
    elif kind == "garbage info":
        (path / "Info.plist").write_bytes(b"\0\x1b[2Jgarbage")
    elif kind == "future":
        info = (path / "Info.plist").read_text()
        (path / "Info.plist").write_text(
            info.replace("<integer>3</integer>", "<integer>4</integer>")
        )
    elif kind == "no store":
        shutil.rmtree(path / "Data")
    elif kind == "broken zip":
        archive = zipped(calm, tmp_path / "broken.zip")
        archive.write_bytes(archive.read_bytes()[:-200])
        return archive
    return path


KINDS = (
    "nothing",
    "no bundle",
    "text",
    "no info",
    "garbage info",
    "future",
    "no store",
    "broken zip",
)
COMMANDS = ("show", "figures", "attachments", "coverage", "verify", "diff")
BAD = [(kind, command) for kind in KINDS for command in COMMANDS]
BAD.remove(("no store", "verify"))  # where nothing is to be verified, nothing is damaged


@pytest.mark.parametrize(("kind", "command"), BAD)
def test_bad_input_is_one_line(
    kind: str, command: str, calm: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = bad(tmp_path, kind, calm)
    words: list[object] = [command, path]
    words += ["--to", tmp_path / "out"] if command == "attachments" else []
    words += [calm] if command == "diff" else []
    assert call(*words) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("runyard: ") and err.count("\n") == 1 and err.rstrip("\n").isprintable()
    assert path.name in err
    assert not (tmp_path / "out").exists()


def test_a_file_that_cannot_be_written_is_one_line(
    calm: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert call("show", calm, "-o", tmp_path / "no" / "such" / "place") == 2
    out, err = capfd.readouterr()
    assert out == "" and err.count("\n") == 1 and "cannot be written" in err


def test_a_reader_that_leaves_early_is_no_error(made: tuple[Path, Written]) -> None:
    program = [*PROGRAM, "show", str(made[0]), "--format", "json"]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        program, stdout=writing, stderr=subprocess.PIPE, env=ENVIRONMENT, check=False
    )
    os.close(writing)
    assert b"Traceback" not in done.stderr


def test_colours_are_for_terminals(made: tuple[Path, Written]) -> None:
    pty = pytest.importorskip("pty")
    primary, secondary = pty.openpty()
    program = [*PROGRAM, "show", str(made[0])]
    environment = {**ENVIRONMENT, "TERM": "xterm", "NO_COLOR": ""}
    with subprocess.Popen(
        program, stdout=secondary, stderr=subprocess.DEVNULL, env=environment
    ) as child:
        os.close(secondary)
        seen = b""
        while piece := _piece(primary):
            seen += piece
    os.close(primary)
    assert child.returncode == 0
    assert b"\x1b[31m" in seen or b"\x1b[1m" in seen or b"\x1b[31;1m" in seen
    assert b"App.xcresult" in seen


def _piece(primary: int) -> bytes:
    try:
        return os.read(primary, 65536)
    except OSError:  # Linux says so when the other end is closed
        return b""
