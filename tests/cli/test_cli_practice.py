"""`runyard practice`: a job's output reaches the user, and does not command the user's terminal."""

import asyncio
import json
import os
import pty
import random
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.embedded.github.practicelive import Live, run_scenario

from runyard.cli.main import cli
from runyard.cli.main import run as run_cli
from runyard.cli.practice import NotUp
from runyard.cli.practicerun import watch
from runyard.embedded.github.identity import KeyPair, generate_key_pair
from runyard.embedded.github.views import JobView
from runyard.embedded.up import stores
from runyard.embedded.up.layout import Layout
from runyard.embedded.up.practice_client import PracticeClient
from runyard.embedded.up.secrets import Secrets, load_or_make
from runyard.http.errors import OutcomeUnknown
from runyard.sim.clock import VirtualClock
from runyard.sim.loop import run_virtual
from runyard.text import harmless

HOSTILE = r"printf 'red \033[31mtext\033]0;title\007 \302\2332J over\rwritten \342\200\256txt.exe\n\tdone\r\n'"
SHOWN = (
    r"red \u001b[31mtext\u001b]0;title\u0007 \u009b2J over\u000dwritten \u202etxt.exe"
    "\n\tdone\n"
)


@pytest.fixture(scope="module")
def keys() -> KeyPair:
    return generate_key_pair()


def run(*argv: str) -> int:
    """The command's exit code, however it is given."""
    try:
        return run_cli(cli, name="runyard", argv=["practice", *argv])
    except SystemExit as ended:
        return int(ended.code or 0)


def data_of(it: Live, folder: Path) -> str:
    """A data directory, as far as this command looks into it."""
    data = folder / "data"
    data.mkdir()
    port = int(it.core.settings.public_url.rpartition(":")[2])
    (data / "ports.json").write_text(json.dumps({"github": port}))
    fields = dict.fromkeys(Secrets.__struct_fields__, "x")
    fields |= {"people_token": "practice-secret", "seal_key": "A" * 43 + "="}
    (data / "secrets.json").write_bytes(msgspec.json.encode(fields))
    return str(data)


def with_a_runner(
    keys: KeyPair, folder: Path, scenario: Callable[[Live, str], Awaitable[None]]
) -> None:
    """Play with a machine as far as this command can tell: a practice GitHub and one runner."""

    async def with_runner(it: Live) -> None:
        it.core.install("practice")
        it.core.add_repo("practice/playground")
        runner = it.core._state.register(
            "orgs/practice", name="r", labels=("runyard",), group_id=1, work_folder="_work"
        )
        await it.start("--jitconfig", runner.jit)
        await scenario(it, data_of(it, folder))

    run_scenario(keys, folder, with_runner)


def test_a_log_commands_no_terminal(
    keys: KeyPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario(_: Live, data: str) -> None:
        assert await asyncio.to_thread(run, "--data", data, HOSTILE) == 0

    with_a_runner(keys, tmp_path, scenario)
    said = capsys.readouterr()
    assert said.out == SHOWN
    assert said.err == "job 40000000001: success on r\n"


def test_a_job_that_is_refused_names_what_to_change_in_it(
    keys: KeyPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario(_: Live, data: str) -> None:
        assert await asyncio.to_thread(run, "--data", data, "--name", "n" * 200, "true") == 2

    with_a_runner(keys, tmp_path, scenario)
    said = capsys.readouterr().err
    assert "Give another script, name or label" in said and "runyard up" not in said


@pytest.mark.slow
def test_a_log_commands_no_real_terminal(keys: KeyPair, tmp_path: Path) -> None:
    async def scenario(_: Live, data: str) -> None:
        ours, theirs = pty.openpty()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", "from runyard.cli.main import main; main()"),
            *("practice", "--data", data, "--name", "\x1b[2Jname", HOSTILE),
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        os.close(theirs)
        assert await process.wait() == 0
        seen = b""
        try:
            while part := os.read(ours, 65536):
                seen += part
        except OSError:  # how a terminal says that nobody is left at the other end
            pass
        finally:
            os.close(ours)
        assert SHOWN.splitlines()[0] in seen.decode()
        assert [byte for byte in seen if byte < 32 and byte not in b"\r\n\t"] == []

    with_a_runner(keys, tmp_path, scenario)


def test_a_raw_log_is_for_a_file_and_is_asked_for(
    keys: KeyPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario(_: Live, data: str) -> None:
        assert await asyncio.to_thread(run, "--raw", "--data", data, HOSTILE) == 0

    with_a_runner(keys, tmp_path, scenario)
    assert "\x1b[31mtext" in capsys.readouterr().out


def test_a_raw_log_is_refused_to_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert run("--raw", "true") == 2
    assert "not allowed on a terminal" in capsys.readouterr().err


def test_json_stays_json_and_stays_harmless(
    keys: KeyPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario(_: Live, data: str) -> None:
        argv = ("--json", "--data", data, "--name", "a\x1b\u009b\u202e\U000e0041b", "exit 3")
        assert await asyncio.to_thread(run, *argv) == 1

    with_a_runner(keys, tmp_path, scenario)
    out = capsys.readouterr().out
    job = json.loads(out)
    assert (job["name"], job["conclusion"]) == ("a\x1b\u009b\u202e\U000e0041b", "failure")
    assert out.rstrip("\n").isprintable()


def test_what_github_answers_is_shown_harmlessly(
    keys: KeyPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario(it: Live) -> None:
        data = data_of(it, tmp_path)
        argv = ("--data", data, "--label", "\x1b" + "x" * 300, "true")
        assert await asyncio.to_thread(run, *argv) == 2

    run_scenario(keys, tmp_path, scenario)
    said = capsys.readouterr().err
    assert "422" in said and "\x1b" not in said and "practice-secret" not in said


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "never up": ({}, "never ran in"),
    "ports that are none": ({"ports.json": {"github": "x"}}, "never ran in"),
    "secrets that are gone": ({"ports.json": {"github": 1}}, "is damaged"),
}


@pytest.mark.parametrize(("files", "words"), BAD.values(), ids=BAD)
def test_a_directory_without_a_machine_is_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], files: dict[str, Any], words: str
) -> None:
    for name, value in files.items():
        (tmp_path / name).write_text(json.dumps(value))
    assert run("--data", str(tmp_path), "true") == 2
    said = capsys.readouterr().err
    assert words in said and "Traceback" not in said


def test_push_may_be_written_as_the_usage_line_shows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = []
    for words in ((), ("push",)):
        assert run(*words, "--data", str(tmp_path), "true") == 2
        answers.append(capsys.readouterr().err)
    assert answers[0] == answers[1]
    assert "unexpected extra argument" not in answers[1]


def test_a_script_that_is_no_text_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("echo \udcff") == 2
    assert "not UTF-8 text" in capsys.readouterr().err


@given(st.text(alphabet=st.characters(), max_size=60))
def test_whatever_is_shown_is_writing_and_lines_stay_lines(text: str) -> None:
    shown = harmless(text)
    lines = shown.split("\n")
    assert len(lines) == text.count("\n") + 1
    for char in shown:
        assert char in "\n\t" or (ord(char) >= 32 and not 127 <= ord(char) < 160)
    assert harmless(shown) == shown
    assert "\u202e" not in shown and "\u2028" not in shown
    shown.encode()


@given(st.text(max_size=40))
def test_json_means_the_same_afterwards(text: str) -> None:
    assert json.loads(harmless(msgspec.json.encode({"a": text}).decode())) == {"a": text}


class Away(PracticeClient):
    """A practice GitHub that is away for a while, in the middle of a job."""

    def __init__(self, *, looks: int) -> None:
        self.looks = looks

    async def job(self, job_id: int) -> JobView:
        self.looks -= 1
        if self.looks > 0:
            raise OutcomeUnknown("nobody is there")
        ended = dict.fromkeys(JobView.__struct_fields__) | {"status": "completed"}
        return JobView(**{**ended, "id": job_id, "conclusion": "success"})  # type: ignore[arg-type]  # only these are read


async def watched(looks: int) -> JobView:
    return await watch(Away(looks=looks), 7, clock=VirtualClock())


def test_a_machine_that_is_started_anew_does_not_lose_the_job_that_is_watched() -> None:
    job = run_virtual(watched(150))
    assert (job.id, job.conclusion) == (7, "success")


def test_a_machine_that_stays_away_is_told_and_the_job_is_not_called_refused() -> None:
    with pytest.raises(NotUp, match="job 7 was queued, but"):
        run_virtual(watched(10_000))


def test_serve_does_not_replace_jobs_that_were_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = Layout(tmp_path / "data")
    layout.prepare()
    load_or_make(layout, random.Random(1))
    stores.record(layout, (stores.GITHUB,))
    argv = ["practice", "serve", "--data", str(layout.root)]
    assert run_cli(cli, name="runyard", argv=argv) == 2
    assert str(layout.github) in capsys.readouterr().err
    assert not layout.github.exists()
