"""The session in docs/one-machine.md is what a machine prints."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from tests.conftest import Absent
from tests.embedded.up.upsupport import (
    EVENTS,
    HAS_PROC,
    KUBECTL,
    PODS,
    Up,
    directory,
    environment,
    until,
)
from tests.transcripts import ROOT, check, transcripts

PAGE = "docs/one-machine.md"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.skipif(not HAS_PROC, reason="searches for processes in /proc"),
]


def settled(up: Up) -> bool:
    """Whether all runners wait for work and the pool's event counts them."""
    parts = [pod["status"].get("containerStatuses") or [{}] for pod in up.items(PODS)]
    running = [part for part in parts if all(each.get("ready") for each in part)]
    of_pool = [each for each in up.items(EVENTS) if each["involvedObject"]["kind"] == "RunnerPool"]
    return len(running) == 4 and [each["count"] for each in of_pool] == [4]


def printed(line: str, data: Path) -> str:
    """What a command prints in a shell, with the data directory as the page writes it."""
    argv = ["bash", "-c", line.replace("DIR", shlex.quote(str(data)))]
    done = subprocess.run(
        argv,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout.replace(str(data), "DIR")


def test_the_session_on_the_page_is_what_a_machine_prints(absent: Absent) -> None:
    if not KUBECTL.exists():
        absent("kubectl", "make .venv/ready installs it")
    # The service's are produced by tests/cli/test_cli_up_service.py.
    start, *others = [
        each for each in transcripts(PAGE) if "up --install" not in each.steps[0].command
    ]
    (step,) = start.steps
    words = shlex.split(step.command)
    assert words[:3] == ["runyard", "up", "--plain"] and words[-2:] == ["--data", "DIR"]
    with directory() as data, Up(data, *words[3:-2]) as up:
        up.prints("Ctrl-C stops it")
        check(start, ["".join(up.lines).replace(str(data), "DIR")])
        until(lambda: settled(up), what="four runners and their event")
        for other in others:
            check(other, [printed(step.command, data) for step in other.steps])
        assert json.loads((data / "urls.json").read_text())
        # restarts.json is written at the first restart.
        assert sorted({*kept(data), "restarts.json"}) == listed()


def kept(data: Path) -> set[str]:
    """The names in the data directory, without the files that SQLite keeps beside a database."""
    return {each.name for each in data.iterdir() if not re.search(r"\.db-\w+$", each.name)}


def listed() -> list[str]:
    """The names that the page lists for the data directory."""
    section = (ROOT / PAGE).read_text(encoding="utf-8").partition("## The data directory")[2]
    return sorted(re.findall(r"^([\w.-]+)(?:/\S*)?  +", section.split("```")[1], re.MULTILINE))
