"""`runyard github connect` against a GitHub over HTTP: the App that it makes works, and what goes wrong is told."""

import asyncio
from pathlib import Path

import pytest
from tests.cli.githubworld import Lines, agree, connecting, play
from tests.cli.serverworld import ask, run_here

from runyard.embedded.github.core import GithubCore
from runyard.embedded.github.identity import KeyPair
from runyard.github.manifest import registration, web_of


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
