"""`runyard up --github` with a GitHub that cannot be used: it says so, with the fix, before it says that it is up."""

import asyncio
import contextlib
import random
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

import msgspec
import pytest
from tests.cli.github_harness import APP_ID, play
from tests.embedded.up.upsupport import HAS_PROC, Up, directory

from runyard.cli.github_auth import GithubIdentity
from runyard.cli.githubcheck import (
    CLOCK,
    Facts,
    Line,
    Verdict,
    collected,
    run_checks,
    usable,
)
from runyard.cli.options import BadSetting
from runyard.cli.upgithub import CHECK_WITHIN, report_checks, up_checks
from runyard.clock import RealClock
from runyard.embedded.github.core import GithubCore, PracticeApp
from runyard.embedded.github.deliveries import Delivery
from runyard.embedded.github.identity import KeyPair, generate_key_pair
from runyard.embedded.up.machine import RealGitHub
from runyard.github.app import AppAuth, TokenAuth
from runyard.http.loopback import Loopback
from runyard.http.messages import Request, Response
from runyard.sim.clock import VirtualClock
from runyard.sim.loop import run_virtual

Argv = tuple[str, ...]


async def never_delivered(_: Delivery) -> int:
    return 502


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


@pytest.mark.parametrize(
    ("silent", "accounts", "last"),
    [
        ("/app", 1, "fail GitHub"),
        ("/installation/repositories", 3, "warn GitHub"),
        ("/app/hook/deliveries", 3, "warn GitHub"),
        ("", 20, "ok clock"),
    ],
)
def test_what_was_found_of_a_slow_github_is_kept_and_it_counts_as_reached(
    silent: str, accounts: int, last: str, app_keys: KeyPair
) -> None:
    """Twenty accounts at 0.3 s a request take half a minute one after the other; they are checked side by side."""

    async def main() -> tuple[Line, ...]:
        clock = VirtualClock()
        core = GithubCore(
            clock=clock,
            rng=random.Random(1),
            app=PracticeApp(app_id=APP_ID, public_key=app_keys.public_pem, webhook_secret="hush"),
            deliver=never_delivered,
        )
        for number in range(accounts):
            core.install(f"acme{number}")
            core.add_repo(f"acme{number}/app")

        async def slow(request: Request) -> Response:
            await clock.sleep(1e6 if request.path == silent else 0.3)
            answer = await core.handle(request)
            date = format_datetime(datetime.fromtimestamp(clock.now(), UTC), usegmt=True)
            return msgspec.structs.replace(answer, headers=(*answer.headers, ("date", date)))

        auth = AppAuth(app_id=APP_ID, private_key=app_keys.private_pem, clock=clock)
        facts = Facts(intake="pull", runner_group=1, runner_version=None, url="u")
        checks = run_checks(Loopback(slow), auth=auth, facts=facts, clock=clock)
        return await collected(checks, "u", clock, within=5.0 if silent else CHECK_WITHIN)

    lines = run_virtual(main())
    assert f"{lines[-1].verdict} {lines[-1].what}" == last
    assert usable(lines) == (last != "fail GitHub")
    if silent != "/app":
        assert any(line.what == "App" and line.verdict == "ok" for line in lines)


def failed(*accounts: str) -> tuple[Line, ...]:
    return tuple(
        Line(verdict="fail", what="x", found="x", fix="x", account=each) for each in accounts
    )


ACCOUNTS = tuple(Line(verdict="ok", what="x", found="x", account=each) for each in ("a", "b"))
USABLE = {
    "nothing found": ((), True),
    "one of two accounts": ((*ACCOUNTS, *failed("a")), True),
    "every account": ((*ACCOUNTS, *failed("a", "b")), False),
    "the App itself": ((*ACCOUNTS, *failed("")), False),
    "the only account": (failed("a"), False),
}


@pytest.mark.parametrize(("lines", "expected"), USABLE.values(), ids=USABLE)
def test_one_bad_account_does_not_make_github_unusable(
    lines: tuple[Line, ...], expected: bool
) -> None:
    assert usable(lines) == expected


@pytest.mark.slow
@pytest.mark.skipif(not HAS_PROC, reason="searches for processes in /proc")
def test_a_github_that_cannot_be_reached_is_not_passed_over(argv: Argv, silent_url: str) -> None:
    with directory() as data, Up(data, *argv, silent_url) as up:
        assert silent_url in up.prints("fail: GitHub: ")
        up.prints("up, but GitHub cannot be used yet")
        assert "practice GitHub" not in "".join(up.lines)
        assert up.interrupt() == 0
