"""`runyard github connect` and `check` against a GitHub over HTTP: the App works, and what is wrong is told."""

import asyncio
import contextlib
import html
import json
import queue
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from tests.cli.serverworld import LABELS, ask, run_here

from runyard.cli.githubcheck import (
    deliveries_line,
    permissions_line,
    rate_line,
    runner_line,
    server_line,
)
from runyard.cli.main import cli
from runyard.cli.main import run as run_cli
from runyard.clock import RealClock
from runyard.embedded.github.core import GithubCore
from runyard.embedded.github.deliveries import Delivery
from runyard.embedded.github.identity import KeyPair
from runyard.github.manifest import lacking, registration, wanted, web_of
from runyard.github.views import DeliveryView, RateView
from runyard.http.client import HttpTransport
from runyard.http.messages import Request, Response
from runyard.http.server import listen

APP_ID = 7
SOON = 100.0


@contextlib.asynccontextmanager
async def practice(keys: KeyPair) -> AsyncIterator[tuple[GithubCore, str]]:
    async def deliver(_: Delivery) -> int:
        return 502

    core = GithubCore(
        clock=RealClock(),
        rng=random.Random(1),
        app_id=APP_ID,
        public_key=keys.public_pem,
        webhook_secret="hush",
        deliver=deliver,
    )

    async def handle(request: Request) -> Response:
        return await core.handle(request)

    listening = await listen(handle)
    try:
        yield core, listening.url
    finally:
        await listening.close()


def play(scenario: Callable[[GithubCore, str], Awaitable[None]], keys: KeyPair) -> None:
    async def main() -> None:
        async with asyncio.timeout(SOON), practice(keys) as (core, url):
            await scenario(core, url)

    asyncio.run(main())


class Lines:
    """Standard output that is read while it is written."""

    def __init__(self) -> None:
        self.seen: queue.Queue[str] = queue.Queue()
        self._rest = ""

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self.seen.put(line)
        return len(text)

    def flush(self) -> None:
        pass

    async def next(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(await asyncio.to_thread(self.seen.get, timeout=SOON))
        return found


def connecting(lines: Lines, *argv: str) -> int:
    with contextlib.redirect_stdout(lines):
        return run_cli(
            cli, name="runyard", argv=["github", "connect", "--no-browser", "--json", *argv]
        )


async def agree(url: str, *, state: str = "") -> Response:
    """What a person and their browser do: open the page, press the button, come back."""
    page = (await ask(url, "GET", "/")).body.decode()
    action = html.unescape(re.findall(r'action="([^"]+)"', page)[0])
    manifest = html.unescape(re.findall(r'name="manifest" value="([^"]+)"', page)[0])
    target = urlsplit(action)
    way = HttpTransport(f"{target.scheme}://{target.netloc}")
    try:
        answer = await way.send(
            Request(
                method="POST",
                path=target.path,
                query=tuple(parse_qsl(target.query)),
                headers=(("content-type", "application/x-www-form-urlencoded"),),
                body=urlencode({"manifest": manifest}).encode(),
            ),
            timeout=SOON,
        )
    finally:
        await way.close()
    assert isinstance(answer, Response) and answer.status == 302, answer
    back = urlsplit(answer.header("location"))
    query = dict(parse_qsl(back.query))
    if state:
        query["state"] = state
    way = HttpTransport(f"{back.scheme}://{back.netloc}")
    try:
        got = await way.send(
            Request(method="GET", path=back.path, query=tuple(query.items())), timeout=SOON
        )
    finally:
        await way.close()
    assert isinstance(got, Response)
    return got


def test_connect_makes_an_app_that_the_server_can_be_and_asks_again_for_nothing(
    tmp_path: Path, app_keys: KeyPair
) -> None:
    async def scenario(core: GithubCore, url: str) -> None:
        core.install("acme")
        core.add_repo("acme/app")
        place, lines = tmp_path / "github", Lines()
        argv = ("--org", "acme", "--github-url", url, "--github-dir", str(place))
        running = asyncio.create_task(asyncio.to_thread(connecting, lines, *argv))
        opened = await lines.next()
        page = str(opened["url"])
        assert (await agree(page, state="somebody-else")).status == 403
        assert not (place / "app.json").exists()
        done = await agree(page)
        assert done.status == 200 and b"installations/new" in done.body
        assert (await lines.next())["event"] == "made"
        assert (await lines.next())["event"] == "installed"
        assert await running == 0
        assert place.stat().st_mode & 0o777 == 0o700
        kept = {each.name: each for each in place.iterdir()}
        assert set(kept) == {"app.json", "app.pem", "webhook.secret"}
        assert all(each.stat().st_mode & 0o777 == 0o600 for each in kept.values())
        secret = kept["webhook.secret"].read_text().strip()
        assert secret and secret.encode() not in done.body
        code, out, err = await asyncio.to_thread(
            run_here, "github", "check", "--github-dir", str(place), "--json",
            "--github-intake", "pull", "--runner-version", "2.330.0",
        )  # fmt: skip
        assert code == 0, (out, err)
        assert secret not in out and "PRIVATE" not in out
        again = Lines()
        assert await asyncio.to_thread(connecting, again, *argv) == 0
        assert (await again.next())["event"] == "known"

    play(scenario, app_keys)


def test_check_says_what_is_wrong_and_what_to_do(tmp_path: Path, app_keys: KeyPair) -> None:
    async def scenario(core: GithubCore, url: str) -> None:
        key = tmp_path / "app.pem"
        key.write_text(app_keys.private_pem)
        argv = ("github", "check", "--json", "--github-url", url,
                "--github-app-id", str(APP_ID), "--github-key-file", str(key))  # fmt: skip

        async def check(*more: str) -> tuple[int, dict[str, dict[str, str]]]:
            code, out, err = await asyncio.to_thread(run_here, *argv, *more)
            assert not err, err
            lines = {line["what"]: line for line in json.loads(out)["lines"]}
            assert all(line["fix"] for line in lines.values() if line["verdict"] != "ok")
            return code, lines

        code, lines = await check()
        assert code == 1 and lines["installations"]["verdict"] == "fail"
        acme = core.install("acme")
        core.add_repo("acme/app")
        code, lines = await check()
        assert code == 0, lines
        assert lines["acme: permissions"]["verdict"] == "ok"
        assert lines["acme: runner group"]["found"].startswith("Default")
        assert lines["clock"]["verdict"] == "ok"
        assert lines["deliveries"]["verdict"] == "warn"
        core.queue_job("acme/app", LABELS)
        await core.settle()
        code, lines = await check("--runner-group", "9", "--runner-version", "2.100.0")
        assert code == 1
        assert lines["deliveries"]["verdict"] == "fail" and "pull" in lines["deliveries"]["fix"]
        assert lines["acme: runner group"]["verdict"] == "fail"
        assert lines["runner"]["verdict"] == "fail"
        core.suspend(acme)
        code, lines = await check()
        assert code == 1 and lines["acme"]["found"] == "suspended"

    play(scenario, app_keys)


def test_a_key_that_github_does_not_know_and_a_github_that_is_away_are_told_apart(
    tmp_path: Path, app_keys: KeyPair
) -> None:
    async def scenario(core: GithubCore, url: str) -> None:
        key = tmp_path / "app.pem"
        key.write_text(app_keys.private_pem)
        argv = ("github", "check", "--json", "--github-key-file", str(key))
        code, out, _ = await asyncio.to_thread(
            run_here, *argv, "--github-app-id", "8", "--github-url", url
        )
        assert code == 1 and "--github-app-id" in out
        code, out, _ = await asyncio.to_thread(
            run_here, *argv, "--github-app-id", "7", "--github-url", "http://127.0.0.1:1"
        )
        assert code == 1 and "--github-url" in out

    play(scenario, app_keys)


def test_a_token_for_one_repository_is_checked_there(tmp_path: Path, app_keys: KeyPair) -> None:
    async def scenario(core: GithubCore, url: str) -> None:
        core.install("mona", kind="User")
        core.add_repo("mona/dots")
        core.allow_token("github_pat_of_the_test", repo="mona/dots")
        token = tmp_path / "token"
        token.write_text("github_pat_of_the_test\n")
        argv = ("github", "check", "--json", "--github-url", url, "--github-token-file", str(token))
        code, out, err = await asyncio.to_thread(
            run_here, *argv, "--github-repository", "mona/dots"
        )
        assert code == 0, (out, err)
        assert "pat_of_the_test" not in out
        code, out, _ = await asyncio.to_thread(run_here, *argv, "--github-repository", "mona/else")
        assert code == 1

    play(scenario, app_keys)


def test_the_page_answers_under_names_of_this_machine_alone(
    tmp_path: Path, app_keys: KeyPair
) -> None:
    async def scenario(core: GithubCore, url: str) -> None:
        lines = Lines()
        argv = ("--github-url", url, "--github-dir", str(tmp_path / "g"), "--wait", "2")
        running = asyncio.create_task(asyncio.to_thread(connecting, lines, *argv))
        page = str((await lines.next())["url"])
        assert (await ask(page, "GET", "/", host="evil.example")).status == 421
        shown = await ask(page, "GET", "/")
        assert "script" not in shown.header("content-security-policy")
        assert await running == 1  # nobody came back

    play(scenario, app_keys)


# ── verdicts ────────────────────────────────────────────────────────────────────────────────────────


def test_a_higher_permission_contains_the_lower_and_a_missing_one_is_named() -> None:
    assert lacking({**wanted(organisation=True), "actions": "admin"}, organisation=True) == ()
    assert [each.name for each in lacking({"actions": "read"}, organisation=True)] == [
        "actions",
        "metadata",
        "organization_self_hosted_runners",
    ]
    line = permissions_line(
        "acme", {**wanted(organisation=True), "actions": "read"}, is_organisation=True
    )
    assert line.verdict == "warn"  # jobs run all the same
    assert permissions_line("acme", {}, is_organisation=True).verdict == "fail"


WEBS = {
    "https://api.github.com": "https://github.com",
    "https://ghe.example/api/v3": "https://ghe.example",
    "https://ghe.example/git/api/v3/": "https://ghe.example/git",
    "https://api.acme.ghe.com": "https://acme.ghe.com",
    "http://127.0.0.1:99": "http://127.0.0.1:99",
}


@pytest.mark.parametrize(("api", "web"), WEBS.items())
def test_people_are_sent_to_the_github_whose_api_it_is(api: str, web: str) -> None:
    assert web_of(api) == web
    assert registration(api, organisation="acme", state="s") == (
        f"{web}/organizations/acme/settings/apps/new?state=s"
    )


def test_the_rest_of_the_hour_and_the_versions_are_judged() -> None:
    for left, verdict in ((5000, "ok"), (400, "warn"), (0, "fail")):
        rate = RateView(limit=5000, remaining=left, reset=600)
        assert rate_line("acme", rate, now=0.0).verdict == verdict
    for version, verdict in (("3.9.2", "fail"), ("3.10.0", "ok"), ("3.20.1", "ok")):
        assert server_line(version).verdict == verdict
    for version, verdict in (
        ("2.330.0", "ok"), ("v2.331.0", "ok"), ("2.329.0", "warn"), ("2.300.0", "fail"),
        ("1.9.9", "fail"), ("new", "fail"), ("", "warn"),
    ):  # fmt: skip
        assert runner_line(version, newest="2.330.0").verdict == verdict


def test_deliveries_that_fail_matter_only_to_who_relies_on_them() -> None:
    def delivery(status: int) -> DeliveryView:
        return DeliveryView(
            id=1, guid="g", event="workflow_job", delivered_at="1970-01-01T00:00:10Z",
            status_code=status,
        )  # fmt: skip

    good, bad = delivery(200), delivery(502)
    for items, verdict in (((good,), "ok"), ((good, bad), "warn"), ((bad,), "fail"), ((), "warn")):
        assert deliveries_line(items, intake="webhook", now=20.0).verdict == verdict
        assert deliveries_line(items, intake="pull", now=20.0).verdict == "ok"
