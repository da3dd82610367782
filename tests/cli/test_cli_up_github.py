"""`runyard up --github` with a GitHub that cannot be used: it says so, with the fix, before it says that it is up."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.github_harness import APP_ID, play
from tests.embedded.up.upsupport import HAS_PROC, Up, directory

from runyard.cli.github_auth import GithubIdentity
from runyard.cli.githubcheck import CLOCK, Line, Verdict
from runyard.cli.options import BadSetting
from runyard.cli.upgithub import report_checks, up_checks
from runyard.clock import RealClock
from runyard.embedded.github.core import GithubCore
from runyard.embedded.github.identity import KeyPair, generate_key_pair
from runyard.embedded.up.machine import RealGitHub
from runyard.github.app import TokenAuth

Argv = tuple[str, ...]


@pytest.fixture
def argv(tmp_path: Path, app_keys: KeyPair) -> Argv:
    """The options of `up` for a GitHub whose URL follows."""
    (tmp_path / "runner").mkdir()
    (tmp_path / "runner" / "run.sh").write_text("#!/bin/sh\n")
    key = tmp_path / "app.pem"
    key.write_text(app_keys.private_pem)
    return (
        *("--github", "--runner", str(tmp_path / "runner"), "--github-app-id", str(APP_ID)),
        *("--github-key-file", str(key), "--github-url"),
    )


@pytest.fixture
def silent_url() -> Iterator[str]:
    """The address of a GitHub that takes no connection: the port is bound, and nobody listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"


@pytest.mark.slow
@pytest.mark.skipif(not HAS_PROC, reason="searches for processes in /proc")
def test_rejected_credentials_are_found_out_before_anything_starts(
    tmp_path: Path, argv: Argv
) -> None:
    async def scenario(core: GithubCore, url: str) -> None:
        data = tmp_path / "data"
        with Up(data, *argv, url) as up:
            assert await asyncio.to_thread(up.finish) == 2, (up.lines, up.errors)
            assert up.errors.count("\n") == 1 and "--github-key-file" in up.errors
        assert not data.exists()

    play(scenario, generate_key_pair())  # that GitHub knows another key


FOUND = {
    "what passes": (Line(verdict="ok", what="App", found="x"), False),
    "what GitHub's owner corrects": (
        Line(verdict="fail", what="installations", found="none", fix="install it"),
        False,
    ),
    "what only another start corrects": (
        Line(verdict="fail", what="App", found="401", fix="check it", needs_restart=True),
        True,
    ),
}


@pytest.mark.parametrize(("line", "ends"), FOUND.values(), ids=FOUND)
def test_only_what_needs_another_start_prevents_one(line: Line, ends: bool) -> None:
    seen: list[Line] = []
    with pytest.raises(BadSetting) if ends else contextlib.nullcontext():
        report_checks((line,), seen.append)
    assert seen == ([] if line.verdict == "ok" else [line])


@pytest.mark.parametrize(("clock", "ends"), [("fail", False), ("warn", True), ("ok", True)])
def test_a_clock_that_is_not_set_yet_is_not_taken_for_a_wrong_key(
    clock: Verdict, ends: bool
) -> None:
    seen: list[Line] = []
    refused = Line(verdict="fail", what="App", found="401", fix="check it", needs_restart=True)
    time = Line(verdict=clock, what=CLOCK, found="300 s ahead", fix="set it")
    with pytest.raises(BadSetting) if ends else contextlib.nullcontext():
        report_checks((refused, time), seen.append)
    assert seen == [line for line in (refused, time) if line.verdict != "ok"]


def test_a_github_that_is_silent_is_not_waited_for() -> None:
    async def main() -> tuple[Line, ...]:
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen(8)  # connections are taken, and no request is answered
            url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            auth = TokenAuth("token-of-the-test", repository_name="acme/app")
            who = GithubIdentity(url=url, ca=None, auth=auth)
            return await up_checks(who, RealGitHub(url=url), clock=RealClock(), within=0.2)

    (line,) = asyncio.run(main())
    assert (line.verdict, line.needs_restart) == ("fail", False)
    assert line.fix


@pytest.mark.slow
@pytest.mark.skipif(not HAS_PROC, reason="searches for processes in /proc")
def test_a_github_that_cannot_be_reached_is_not_passed_over(argv: Argv, silent_url: str) -> None:
    with directory() as data, Up(data, *argv, silent_url) as up:
        assert silent_url in up.prints("fail: GitHub: ")
        up.prints("up, but GitHub cannot be used yet")
        assert "practice GitHub" not in "".join(up.lines)
        assert up.interrupt() == 0
