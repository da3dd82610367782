"""`runyard tenant` and `runyard job` against a real server: what is said, what is kept, how it ends."""

import asyncio
import json
from pathlib import Path

import pytest
from tests.cli.server_harness import LABELS, Yard, ask, play, run_here

from runyard.cli.main import cli
from runyard.cli.main import run as run_cli
from runyard.embedded.github.identity import KeyPair
from runyard.http.messages import Request, Response
from runyard.http.server import listen


async def _job(yard: Yard, url: str) -> int:
    yard.deliver_to = url
    job = yard.github.queue_job("acme/app", LABELS)
    await yard.github.settle()
    return job


@pytest.mark.slow
def test_a_tenant_is_changed_paused_and_resumed_and_the_trail_tells_it(
    tmp_path: Path, database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(yard: Yard) -> None:
        url = await (await yard.start("one")).serving()
        await _job(yard, url)
        code, out, said = await yard.command(url, "tenant", "list")
        assert code == 0, said
        assert out.splitlines()[0].startswith("TENANT") and "acme" in out
        code, out, said = await yard.command(
            url, "tenant", "set", "acme", "--macos-vcpus", "24", "--weight", "2", "--why", "more Macs", "--json"
        )  # fmt: skip
        assert code == 0, said
        assert json.loads(out)["weight"] == 2.0
        for word in ("pause", "resume"):
            assert (await yard.command(url, "tenant", word, "acme"))[0] == 0
        code, out, _ = await yard.command(url, "tenant", "show", "acme")
        assert code == 0
        for words in ("more Macs", "12 vCPU, 28 GB", "24 vCPU, 28 GB", "paused"):
            assert words in out
        code, out, said = await yard.command(url, "tenant", "pause", "nobody")
        assert (code, out) == (1, "")
        assert said.count("\n") == 1 and "runyard tenant list" in said

    play(scenario, tmp_path, database_url, app_keys)


@pytest.mark.slow
def test_jobs_are_listed_and_shown_with_what_happened(
    tmp_path: Path, database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(yard: Yard) -> None:
        url = await (await yard.start("one")).serving()
        job = await _job(yard, url)
        code, out, said = await yard.command(url, "job", "list", "--state", "queued")
        assert code == 0 and str(job) in out, said
        code, out, _ = await yard.command(url, "job", "list", "--state", "done", "--json")
        assert (code, json.loads(out)["items"]) == (0, [])
        code, out, _ = await yard.command(url, "job", "show", str(job))
        assert code == 0
        for words in ("acme/app", "queued", "shape-mac", "WHY"):
            assert words in out

    play(scenario, tmp_path, database_url, app_keys)


@pytest.mark.slow
def test_a_server_that_is_not_loopback_wants_the_token(
    tmp_path: Path, database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(yard: Yard) -> None:
        token = yard.write("token", "correct-horse-battery\n")
        scrape = yard.write("scrape", "prometheus-reads-this\n")
        replica = await yard.start(
            "one", listen="0.0.0.0:0", dashboard_token_file=token, metrics_token_file=scrape
        )
        url = (await replica.serving()).replace("0.0.0.0", "127.0.0.1")
        code, _, said = await yard.command(url, "tenant", "list")
        assert code == 1 and "token" in said
        code, _, said = await yard.command(url, "tenant", "list", "--token-file", str(token))
        assert code == 0, said
        narrow = "Bearer prometheus-reads-this"
        assert (await ask(url, "GET", "/metrics", authorization=narrow)).status == 200
        for other in ("", "Bearer correct-horse-battery"):
            assert (await ask(url, "GET", "/metrics", authorization=other)).status == 401
        for method, path in (("GET", "/api/v1/tenants"), ("PATCH", "/api/v1/tenants/acme")):
            assert (await ask(url, method, path, authorization=narrow)).status == 401
        for secret in ("correct-horse", "prometheus-reads"):
            assert secret not in replica.said()

    play(scenario, tmp_path, database_url, app_keys)


@pytest.mark.slow
def test_a_server_on_loopback_writes_a_token_that_the_owners_commands_find(
    tmp_path: Path, database_url: str, app_keys: KeyPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNYARD_DATA", str(tmp_path / "data"))
    token = tmp_path / "data" / "dashboard.token"

    async def scenario(yard: Yard) -> None:
        replica = await yard.start("one", dashboard_token_file=None)
        url = await replica.serving()
        assert token.stat().st_mode & 0o777 == 0o600
        assert token.parent.stat().st_mode & 0o777 == 0o700
        for method, path in (("GET", "/api/v1/tenants"), ("PATCH", "/api/v1/tenants/acme")):
            assert (await ask(url, method, path)).status == 401
        line = ("tenant", "list", "--server", url)
        code, _, said = await asyncio.to_thread(run_here, *line)
        assert code == 0, said
        code, _, said = await asyncio.to_thread(run_here, *line, "--data", str(tmp_path))
        assert code == 1 and "--token-file" in said
        assert str(token) in replica.said()
        assert token.read_text().strip() not in replica.said()

    play(scenario, tmp_path, database_url, app_keys)


BAD = {
    "nothing to set": (["tenant", "set", "acme"], "nothing to set"),
    "a share of nobody": (["tenant", "set", "acme", "--priority", "3"], "--repository"),
    "a repository and nothing": (["tenant", "set", "acme", "--repository", "a/b"], "needs"),
    "a path for a name": (["tenant", "show", "a/b"], "not the name"),
    "no number": (["job", "show", "x"], "not a valid integer"),
    "nobody listens": (["job", "list"], "does not respond"),
    "no authority": (
        ["job", "list", "--server", "https://127.0.0.1:1", "--ca-file", "nowhere.pem"],
        "--ca-file: nowhere.pem cannot be used (No such file",
    ),
    "an authority that is none": (
        ["job", "list", "--server", "https://127.0.0.1:1", "--ca-file", __file__],
        "certificate in PEM",
    ),
    "no address": (["job", "list", "--server", "nowhere"], "--server"),
}


@pytest.mark.parametrize(("argv", "says"), BAD.values(), ids=BAD)
def test_what_cannot_be_asked_is_one_line_and_exit_code_2(
    argv: list[str],
    says: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("RUNYARD_SERVER", "http://127.0.0.1:1")
    assert run_cli(cli, name="runyard", argv=argv) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1 and says in told.err


def test_without_a_server_and_without_a_machine_the_fix_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("RUNYARD_SERVER", raising=False)
    assert run_cli(cli, name="runyard", argv=["job", "list"]) == 2
    assert "--server URL" in capsys.readouterr().err


@pytest.mark.parametrize("more", [(), ("--json",)], ids=["for people", "for scripts"])
def test_somebody_elses_server_is_not_taken_for_ours(more: tuple[str, ...]) -> None:
    async def main() -> tuple[int, str, str]:
        async def handle(_: Request) -> Response:
            return Response(status=200, body=b"<html>\xff welcome")

        listening = await listen(handle)
        try:
            argv = ("explain", "job", "7", "--server", listening.url, *more)
            return await asyncio.to_thread(run_here, *argv)
        finally:
            await listening.close()

    code, out, err = asyncio.run(main())
    assert (code, out) == (2, "") and "not from runyard" in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("server", "warned"),
    [("http://ci.invalid", True), ("https://ci.invalid", False), ("http://127.0.0.1:1", False)],
)
def test_a_token_that_everybody_on_the_way_can_read_is_warned_of(
    server: str, warned: bool, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("correct-horse-battery")
    code, _, err = run_here("job", "list", "--server", server, "--token-file", str(token))
    assert code == 2 and "correct-horse" not in err
    assert ("unencrypted" in err) == warned
