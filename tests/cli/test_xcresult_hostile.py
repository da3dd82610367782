"""A bundle whose words are commands for terminals and for CI logs: none of them is obeyed."""

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from tests.xcresult.writer.plan import Plan
from tests.xcresult.writer.storing import Store
from tests.xcresult.writer.writing import write_bundle

from runyard.cli.main import cli, run

# As long as what they stand for, so that the objects stay well-formed.
WORDS = {
    b"Tests": b"\x1b[2J\n",
    b"iPhone": "\x9b2J\r\n".encode(),
    b"XCTAssert": b"\n::error:",
    b"Continue": b"\x1b]0;xy\x07\x08",
}
PLAN = Plan(
    cases=12,
    failures=3,
    retries=2,
    skips=1,
    arguments=2,
    attachments=2,
    activities=2,
    tags=3,
    bugs=1,
    metrics=1,
    build_issues=2,
    coverage=1,
    runner_errors=1,
)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    honest = Store.put

    def put(self: Store, payload: bytes, refs: tuple[str, ...] = ()) -> str:
        for word, evil in WORDS.items():
            assert len(word) == len(evil)
            payload = payload.replace(word, evil) if payload.startswith(b"[T[") else payload
        return honest(self, payload, refs)

    path = tmp_path_factory.mktemp("hostile") / "Evil\x1b[2J\n::warning::.xcresult"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "put", put)
        write_bundle(path, PLAN)
    return path


COMMANDS = (
    ("show",),
    ("show", "--details"),
    ("show", "--format", "json"),
    ("show", "--format", "junit"),
    ("show", "--format", "markdown"),
    ("show", "--format", "github"),
    ("show", "--format", "apple"),
    ("figures",),
    ("attachments", "--to", "{tmp}/out"),
    ("attachments", "--json", "--to", "{tmp}/out"),
    ("coverage", "--format", "text"),
    ("coverage", "--format", "json"),
    ("coverage", "--format", "lcov"),
    ("coverage", "--format", "cobertura"),
    ("verify",),
    ("verify", "--json"),
    ("diff", "{path}"),
    ("diff", "{path}", "--json"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_nothing_but_writing_is_printed(
    command: tuple[str, ...], hostile: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = [word.format(tmp=tmp_path, path=hostile) for word in command]
    assert run(cli, name="runyard", argv=["xcresult", words[0], str(hostile), *words[1:]]) == 0
    out, err = capfd.readouterr()
    assert out
    for line in (*out.split("\n"), *err.split("\n")):
        assert line.replace("\t", "").isprintable(), repr(line)
    if "json" in command or "apple" in command or "--json" in command:
        json.loads(out)
    if "junit" in command or "cobertura" in command:
        ET.fromstring(out)
    if "markdown" not in command and "junit" not in command:
        ours = (
            "::error file=",
            "::error title=",
            "::warning file=",
            "::warning title=",
            "::notice file=",
            "::notice title=",
        )
        started = [line for line in out.split("\n") if re.match(r"\s*::", line)]
        assert all(line.startswith(ours) for line in started)


def test_an_error_about_it_is_harmless_too(
    hostile: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(cli, name="runyard", argv=["xcresult", "show", str(hostile) + "-gone"]) == 2
    _, err = capfd.readouterr()
    assert err.startswith("runyard: ") and err.count("\n") == 1 and err.rstrip("\n").isprintable()
