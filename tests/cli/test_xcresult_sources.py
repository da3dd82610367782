"""`runyard xcresult show` in a checkout: paths of the machine that ran the tests become those of the repository."""

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
