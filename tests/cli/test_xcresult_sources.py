"""`runyard xcresult show` in a checkout: paths of the machine that ran the tests become those of the repository."""

import re
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from tests.xcresult.writer.plan import Plan
from tests.xcresult.writer.writing import write_bundle

from runyard.cli.main import cli, run
from runyard.cli.xcresultsources import files_of
from runyard.xcresult.bundle.reading import read_bundle


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sources") / "App.xcresult"
    write_bundle(path, Plan(cases=3, failures=1, suites=1, attachments=2, attachment_bytes=50))
    return path


def place_of(bundle: Path) -> tuple[str, int]:
    """Return path and line of the only failure."""
    found = [
        failure.place
        for case in read_bundle(bundle).cases
        for one in case.runs
        for failure in one.failures
        if failure.place is not None
    ]
    return found[0].path, found[0].line


@pytest.fixture
def checkout(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the failing file two levels deep, not a checkout of git."""
    for name in ("GITHUB_WORKSPACE", "GITHUB_SHA", "GITHUB_REPOSITORY", "GITHUB_SERVER_URL"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "checkout" / relative(bundle)
    file.parent.mkdir(parents=True)
    file.write_text("")
    (tmp_path / "checkout" / ".build").mkdir()
    (tmp_path / "checkout" / ".build" / "Made.swift").write_text("")
    return tmp_path / "checkout"


def relative(bundle: Path) -> str:
    return "/".join(place_of(bundle)[0].split("/")[-2:])


def call(*words: object) -> int:
    return run(cli, name="runyard", argv=["xcresult", "show", *map(str, words)])


def test_annotations_do_not_need_to_know_where_the_checkout_was(
    bundle: Path, checkout: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = f"::error file={relative(bundle)},line={place_of(bundle)[1]},"
    assert call(bundle, "--format", "github", "--checkout", checkout) == 0
    assert capfd.readouterr().out.startswith(expected)
    assert call(bundle, "--format", "junit", "--checkout", checkout) == 0
    document = ET.fromstring(capfd.readouterr().out)
    assert [each.attrib["file"] for each in document.iter("testcase") if "file" in each.attrib] == [
        relative(bundle)
    ]
    monkeypatch.setenv("GITHUB_WORKSPACE", str(checkout))
    assert call(bundle, "--format", "github") == 0
    assert capfd.readouterr().out.startswith(expected)
    monkeypatch.setenv("GITHUB_WORKSPACE", str(checkout / "gone"))
    assert call(bundle, "--format", "github") == 0
    assert "::warning title=runyard::" in capfd.readouterr().out


def test_a_checkout_that_is_not_there_is_one_line(
    bundle: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert call(bundle, "--format", "github", "--checkout", tmp_path / "gone") == 2
    out, err = capfd.readouterr()
    assert out == "" and err.count("\n") == 1 and "--checkout" in err
    assert call(bundle, "--checkout", tmp_path) == 2, "a tree has no use for it"


def test_only_files_that_git_knows_are_files_of_the_repository(
    checkout: Path, bundle: Path
) -> None:
    assert files_of(checkout) == {relative(bundle)}
    git = ("git", "-C", str(checkout), "-c", "user.name=a", "-c", "user.email=a@example.invalid")
    subprocess.run([*git, "init", "-q"], check=True)
    (checkout / "Untracked.swift").write_text("")
    subprocess.run([*git, "add", relative(bundle)], check=True)
    assert (
        files_of(checkout)
        == files_of(checkout / relative(bundle).split("/")[0])
        == {relative(bundle)}
    )


def test_a_machine_without_git_has_files_nevertheless(
    checkout: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert files_of(checkout) == {relative(bundle)}


def test_markdown_does_not_need_options_in_a_job_of_github_actions(
    bundle: Path, checkout: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, line = relative(bundle), place_of(bundle)[1]
    assert call(bundle, "--format", "markdown", "--checkout", checkout) == 0
    assert "](" not in capfd.readouterr().out
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://github.example")
    monkeypatch.setenv("GITHUB_REPOSITORY", "o/r")
    monkeypatch.setenv("GITHUB_SHA", "abc")
    assert call(bundle, "--format", "markdown", "--checkout", checkout) == 0
    assert f"](https://github.example/o/r/blob/abc/{path}#L{line})" in capfd.readouterr().out
    words = (bundle, "--format", "markdown", "--checkout", checkout, "--source-url")
    assert call(*words, "https://git.example/-/blob/main/") == 0
    assert f"](https://git.example/-/blob/main/{path}#L{line})" in capfd.readouterr().out
    assert call(*words, "") == 0
    assert "](" not in capfd.readouterr().out


def test_a_picture_does_not_have_another_name_than_its_exported_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    bundle = tmp_path / "App.xcresult"
    write_bundle(bundle, Plan(cases=1, failures=1, attachments=2, attachment_bytes=50))
    assert call(bundle, "--format", "markdown", "--pictures-url", "https://shots.example") == 0
    shown = re.findall(r'"https://shots.example/([^"]+)"', capfd.readouterr().out)
    words = ["xcresult", "attachments", str(bundle), "--to", str(tmp_path / "out")]
    assert run(cli, name="runyard", argv=words) == 0
    assert shown and all((tmp_path / "out" / name).is_file() for name in shown)


@pytest.mark.parametrize(
    "words",
    [
        ("--format", "junit", "--source-url", "https://x.example"),
        ("--pictures-url", "https://x.example"),
        ("--format", "github", "--max-bytes", "65000"),
        ("{bundle}", "--format", "markdown", "--pictures-url", "https://x.example"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(
    words: tuple[str, ...], bundle: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert call(bundle, *(word.format(bundle=bundle) for word in words)) == 2
    out, err = capfd.readouterr()
    assert out == "" and "--pictures-url" in err


def test_markdown_for_a_comment_is_not_too_long(
    bundle: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    many = tmp_path / "Many.xcresult"
    write_bundle(many, Plan(cases=80, failures=80, frames=0, logs=False))
    assert call(many, "--format", "markdown") == 0
    assert len(capfd.readouterr().out.encode()) > 10_000
    assert call(many, bundle, "--format", "markdown", "--max-bytes", "10000") == 0
    assert 0 < len(capfd.readouterr().out.encode()) <= 10_000


@pytest.mark.parametrize(("form", "mark"), [("lcov", "SF:"), ("cobertura", 'filename="')])
def test_coverage_is_found_in_a_checkout_wherever_the_tests_ran(
    form: str, mark: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    measured = tmp_path / "Measured.xcresult"
    write_bundle(measured, Plan(cases=2, suites=1, coverage=2))
    argv = ["xcresult", "coverage", str(measured), "--format", form]
    assert run(cli, name="runyard", argv=argv) == 0
    paths = re.findall(rf'{mark}([^"\n]+)', capfd.readouterr().out)
    assert len(paths) == 2 and all(each.startswith("/") for each in paths)
    there, lost = ("/".join(each.split("/")[-2:]) for each in paths)
    file = tmp_path / "repository" / there
    file.parent.mkdir(parents=True)
    file.write_text("")
    checkout = str(tmp_path / "repository")
    assert run(cli, name="runyard", argv=[*argv, "--checkout", checkout]) == 0
    shown = capfd.readouterr()
    assert f"{mark}{there}" in shown.out and f"{mark}{paths[1]}" in shown.out
    assert paths[1] in shown.err and "--checkout" in shown.err and lost != there
    assert run(cli, name="runyard", argv=[*argv[:-1], "json", "--checkout", checkout]) == 2
