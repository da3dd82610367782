"""`runyard github connect` against a GitHub over HTTP: the App that it makes works, and what goes wrong is told."""

import asyncio
import random
from pathlib import Path

import pytest
from tests.cli.github_harness import Lines, agree, connecting, play, shown
from tests.cli.server_harness import run_here

from runyard.cli.githubconnect import app_name
from runyard.cli.githubfiles import AppDirectory, Connected
from runyard.cli.options import BadSetting
from runyard.embedded.github.core import GithubCore
from runyard.embedded.github.identity import KeyPair
from runyard.github.manifest import registration, web_of


@pytest.mark.slow
def test_connect_makes_an_app_that_the_server_can_be_and_asks_again_for_nothing(
    tmp_path: Path, app_keys: KeyPair
) -> None:
    async def scenario(core: GithubCore, url: str) -> None:
        core.install("acme")
        core.add_repo("acme/app")
        directory, lines = tmp_path / "github", Lines()
        argv = ("--org", "acme", "--github-url", url, "--github-dir", str(directory))
        running = asyncio.create_task(asyncio.to_thread(connecting, lines, *argv))
        opened = await lines.next()
        page = str(opened["url"])
        assert (await agree(page, state="somebody-else")).status == 403
        assert not (directory / "app.json").exists()
        done = await agree(page)
        assert done.status == 200 and b"installations/new" in done.body
        assert (await lines.next())["event"] == "made"
        assert (await lines.next())["event"] == "installed"
        assert await running == 0
        assert directory.stat().st_mode & 0o777 == 0o700
        kept = {each.name: each for each in directory.iterdir()}
        assert set(kept) == {"app.json", "app.pem", "webhook.secret"}
        assert all(each.stat().st_mode & 0o777 == 0o600 for each in kept.values())
        secret = kept["webhook.secret"].read_text().strip()
        assert secret and secret.encode() not in done.body
        code, out, err = await asyncio.to_thread(
            run_here, "github", "check", "--github-dir", str(directory), "--json",
            "--github-intake", "pull", "--runner-version", "2.330.0",
        )  # fmt: skip
        assert code == 0, (out, err)
        assert secret not in out and "PRIVATE" not in out
        again = Lines()
        # What was made is known: neither whose it is nor where its GitHub is need be said again.
        core.faults.fail_next("/app/installations", 502)
        assert await asyncio.to_thread(connecting, again, "--github-dir", str(directory)) == 0
        for event in ("known", "no-answer", "installed"):
            assert (await again.next())["event"] == event

    play(scenario, app_keys)


@pytest.mark.slow
def test_the_page_answers_under_names_of_this_machine_alone(
    tmp_path: Path, app_keys: KeyPair
) -> None:
    async def scenario(core: GithubCore, url: str) -> None:
        lines = Lines()
        argv = ("--github-url", url, "--github-dir", str(tmp_path / "g"), "--wait", "2")
        running = asyncio.create_task(asyncio.to_thread(connecting, lines, *argv))
        page = str((await lines.next())["url"])
        assert (await shown(page, host="evil.example")).status == 421
        assert (await shown(page, "/")).status == 404  # whoever else is on this machine
        right = await shown(page)
        assert right.status == 200
        assert "script" not in right.header("content-security-policy")
        assert await running == 1  # nobody came back

    play(scenario, app_keys)


def test_the_environment_says_which_github_as_it_does_for_the_server(
    tmp_path: Path, app_keys: KeyPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(core: GithubCore, url: str) -> None:
        core.install("mona", kind="User")
        monkeypatch.setenv("RUNYARD_GITHUB_URL", url)
        monkeypatch.setenv("RUNYARD_GITHUB_DIR", str(tmp_path / "g"))
        lines = Lines()
        running = asyncio.create_task(asyncio.to_thread(connecting, lines))
        assert (await agree(str((await lines.next())["url"]))).status == 200
        assert await running == 0
        assert (tmp_path / "g" / "app.json").exists()

    play(scenario, app_keys)


def test_an_app_whose_key_cannot_be_kept_is_told_at_once(
    tmp_path: Path, app_keys: KeyPair, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario(core: GithubCore, url: str) -> None:
        directory, lines = tmp_path / "g", Lines()
        argv = ("--github-url", url, "--github-dir", str(directory))
        running = asyncio.create_task(asyncio.to_thread(connecting, lines, *argv))
        page = str((await lines.next())["url"])
        directory.rmdir()  # whatever keeps a file from being written, for root too
        answer = await agree(page)
        assert answer.status == 500 and b"delete the App at GitHub" in answer.body
        assert await running == 1

    play(scenario, app_keys)
    assert "delete the App at GitHub" in capsys.readouterr().err


def test_a_directory_that_holds_anything_else_is_left_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "letters").write_text("to somebody")
    code, _, err = run_here("github", "connect", "--no-browser", "--github-dir", str(tmp_path))
    assert code == 2 and "directory of its own" in err
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_a_secret_that_is_there_and_cannot_be_read_is_not_taken_for_none(tmp_path: Path) -> None:
    directory = AppDirectory(tmp_path)
    assert directory.webhook_secret() == ""
    directory.secret.write_bytes(b"\xff\xfe")
    with pytest.raises(BadSetting, match="not text"):
        directory.webhook_secret()
    directory.secret.unlink()
    directory.secret.mkdir()
    with pytest.raises(BadSetting, match="cannot be read"):
        directory.webhook_secret()


BAD = {
    "a long name": (["--name", "n" * 35], "34 characters"),
    "no path": (["--webhook-url", "https://ci.example"], "https://ci.example/webhooks/github"),
    "no TLS": (["--webhook-url", "http://ci.example/webhooks/github"], "https://HOST/webhooks"),
    "no host": (["--webhook-url", "https:///webhooks/github"], "https://HOST/webhooks"),
    "half a host": (["--webhook-url", "https://[::1/webhooks/github"], "https://HOST/webhooks"),
    "another organisation": (["--org", "other"], "belongs to acme"),
    "another GitHub": (["--github-url", "https://ghe.example/api/v3"], "belongs to https://api."),
}


@pytest.mark.parametrize(("argv", "says"), BAD.values(), ids=BAD)
def test_what_cannot_be_is_refused_before_a_page_is_opened(
    argv: list[str], says: str, tmp_path: Path
) -> None:
    directory = AppDirectory(tmp_path / "g")
    directory.prepare()
    app = Connected(
        app_id=9,
        slug="s",
        html_url="",
        github_url="https://api.github.com",
        organisation="acme",
    )
    directory.keep(app, key="k", secret="hush")
    code, out, err = run_here(
        "github", "connect", "--no-browser", "--github-dir", str(directory.root), *argv
    )
    assert (code, out) == (2, "") and err.count("\n") == 1
    assert says in err


@pytest.mark.parametrize("org", ["", "acme", "a" * 39, "a" * 20 + "-" * 10])
def test_the_name_of_an_app_ends_by_chance_however_long_the_organisations_is(org: str) -> None:
    rng = random.Random(1)
    one, two = app_name(org, rng), app_name(org, rng)
    assert one != two and len(one) <= 34 and "--" not in one[-7:]


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
