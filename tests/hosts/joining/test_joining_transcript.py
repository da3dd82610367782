"""The sessions in docs/second-mac.md are what both machines print."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.embedded.up.upsupport import HAS_PROC, PODS, environment, machine, until
from tests.transcripts import Transcript, check, transcripts

PAGE = "docs/second-mac.md"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.skipif(not HAS_PROC, reason="searches for processes in /proc"),
]
_COMMAND = re.compile(r"https://127\.0\.0\.1:\d+ [0-9a-f.]{116}")
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_PROGRAM = re.compile(r"/\S+/runyard agent")


class Session:
    """Runs the commands of the page, with the names that the page has for what differs."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names  # a word of the page, and what it stands for

    def played(self, transcript: Transcript) -> list[str]:
        return [self.played_line(step.command) for step in transcript.steps]

    def played_line(self, line: str) -> str:
        """What this line prints."""
        words = [self.names.get(word, word) for word in shlex.split(line)]
        assert words[0] == "runyard"
        done = subprocess.run(
            [sys.executable, "-m", "runyard.cli.main", *words[1:]],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        text = done.stdout
        if found := _COMMAND.search(text):
            self.names["URL"], self.names["TOKEN"] = found[0].split()
        for word, meant in self.names.items():
            text = text.replace(meant, word)
        text = _PROGRAM.sub("runyard agent", _TIME.sub("DATE TIME", text))
        return re.sub(r"\b\d+ s ago", "2 s ago", text)


def test_the_sessions_on_the_page_are_what_both_machines_print(tmp_path: Path) -> None:
    with machine("--listen", "127.0.0.1:0") as up:
        until(lambda: len(up.items(PODS)) == 2, what="two runners")
        host = tmp_path / "mini-2"
        session = Session({"DIR": str(up.data), "HOST": str(host)})
        # Sessions of the service on the second machine are made elsewhere, with a service manager that is none.
        make, _, listed, more, _, removed = transcripts(PAGE)
        check(make, session.played(make))
        session.played_line("runyard host join URL TOKEN --name mini-2 --data HOST --no-service")
        words = ("agent", "--joined", "--data", str(host), "--listen", "127.0.0.1:0")
        agent = subprocess.Popen(
            [sys.executable, "-m", "runyard.cli.main", *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment(),
        )
        try:
            nodes = "/api/v1/nodes"
            until(lambda: [ready(each) for each in up.items(nodes)] == [True, True], what="hosts")
            check(listed, session.played(listed))
            check(more, session.played(more))
            check(removed, session.played(removed))
        finally:
            agent.kill()
            agent.wait()


def ready(node: dict[str, dict[str, list[dict[str, str]]]]) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)
