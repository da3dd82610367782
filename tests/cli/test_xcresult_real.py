"""`runyard xcresult` on the real bundles: every command on every one, and the page shows what is printed."""

import json
import re
import shlex
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from tests.xcresult import fixtures

from runyard.cli.main import cli, run
from runyard.xcresult.bundle.reading import read_bundle

PAGE = fixtures.ROOT / "docs" / "xcresult.md"
_BLOCK = re.compile(r"^```\n\$ runyard (xcresult .*)\n((?:.*\n)*?)```$", re.MULTILINE)


def call(*words: object) -> int:
    return run(cli, name="runyard", argv=["xcresult", *map(str, words)])


@pytest.mark.slow
@pytest.mark.parametrize("name", fixtures.parameters())
def test_every_command_reads_every_bundle(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = fixtures.bundle(name)
    figures = fixtures.figures()[name]
    assert call("figures", path) == 0
    expected = fixtures.reader_figures(figures)
    assert json.loads(capfd.readouterr().out) == expected
    for form in ("tree", "json", "junit", "markdown", "github"):
        assert call("show", path, "--format", form) == 0
        assert capfd.readouterr().out
    failed = figures["report_status"] == "failure"
    broken = not figures["cases"] and any_build_error(path)
    assert call("show", path, "--details", "--fail-on-failures") == int(failed or broken)
    capfd.readouterr()
    assert call("show", path, "--format", "junit") == 0
    counts = ET.fromstring(capfd.readouterr().out).attrib
    assert (counts["failures"], counts["errors"]) != ("0", "0") or not (failed or broken)
    assert failed or broken or (counts["failures"], counts["errors"]) == ("0", "0")
    assert call("attachments", path, "--to", tmp_path / "out", "--json") == 0
    capfd.readouterr()
    assert call("coverage", path, "--format", "json") == 0
    json.loads(capfd.readouterr().out)
    intact = figures["objects_hash_ok"] == figures["objects"]
    assert call("verify", path, "--json") == int(not intact)
    assert json.loads(capfd.readouterr().out)["objects"] == figures["objects"]
    assert call("diff", path, path, "--json") == 0
    same = json.loads(capfd.readouterr().out)
    assert not any(
        same[kind]
        for kind in ("newly_failing", "fixed", "newly_flaky", "slower", "added", "removed")
    )


def any_build_error(path: Path) -> bool:
    return any(issue.kind == "error" for issue in read_bundle(path).build_issues)


def test_the_page_shows_what_is_printed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    shown = _BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert len(shown) == 3
    monkeypatch.setenv("GITHUB_WORKSPACE", "")
    for command, output in shown:
        fixtures.archive(shlex.split(command)[2].removesuffix(".xcresult.zip"))
        monkeypatch.chdir(fixtures.HOME)
        assert run(cli, name="runyard", argv=shlex.split(command)) == 0
        assert capfd.readouterr().out == output
