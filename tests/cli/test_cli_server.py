"""`runyard server` as real processes: replicas share a database, say what is missing, and end in order."""

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.cli.server_harness import BEARER, LABELS, SOON, Yard, ask, play, poll

from runyard.cli.github_auth import GithubIdentity, github_identity
from runyard.cli.main import cli
from runyard.cli.main import run as run_cli
from runyard.cli.server import server
from runyard.cli.serverflags import Flags, flags_of
from runyard.cli.serverrun import _server_socket, settings_of
from runyard.clock import RealClock
from runyard.components.server import END_WITHIN
from runyard.db.owner import Owner, claim
from runyard.embedded.github.identity import KeyPair
from runyard.embedded.github.session import RunnerSession
from runyard.http.errors import TransportError
from runyard.telemetry.log import get_logger


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a state of another process."""
    async with asyncio.timeout(SOON):
        while not await holds():
            await asyncio.sleep(0.05)


@pytest.mark.slow
def test_a_job_that_one_replica_hears_of_runs_on_a_runner_that_waits_at_another(
    tmp_path: Path, database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(yard: Yard) -> None:
        await yard.pool()
        guest = await yard.pod()
        hearing, holding = await yard.start("hearing"), await yard.start("holding")
        yard.deliver_to = await hearing.serving()
        await holding.serving()
        waiting = asyncio.create_task(poll(holding.url, guest))
        job = yard.github.queue_job("acme/app", LABELS)
        answer = await waiting
        assert answer.status == 200, holding.said()
        session = yard.github.connect(answer.json()["encoded_jit_config"])
        assert isinstance(session, RunnerSession)
        assigned = await session.next_job()
        assert assigned is not None and assigned.job_id == job
        assert session.finish("success")

        async def gone() -> bool:
            return (await poll(hearing.url, guest, wait=0)).status == 410

        await until(gone)

        async def works() -> bool:
            return bool(
                (await ask(holding.url, "GET", "/readyz", authorization=BEARER)).json()["works"]
            )

        await until(works)
        assert await hearing.end() == 0 and await holding.end() == 0
        for replica in (hearing, holding):
            assert "Traceback" not in replica.said()
            assert app_keys.private_pem.splitlines()[1] not in replica.said()

    play(scenario, tmp_path, database_url, app_keys)


@pytest.mark.slow
def test_a_token_for_one_repository_and_no_webhook_is_enough_for_a_job_to_run(
    tmp_path: Path, database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(yard: Yard) -> None:
        await yard.pool()
        guest = await yard.pod()
        yard.github.allow_token("github_pat_of_the_test", repo="acme/app")
        token = yard.write("pat", "github_pat_of_the_test\n")
        replica = await yard.start(
            "one",
            github_app_id=None,
            github_key_file=None,
            webhook_secret_file=None,
            github_token_file=token,
            github_repository="acme/app",
            github_intake="pull",
        )
        await replica.serving()
        job = yard.github.queue_job("acme/app", LABELS)
        async with asyncio.timeout(SOON):
            while (answer := await poll(replica.url, guest)).status == 204:
                pass  # it has waited already
        assert answer.status == 200, replica.said()
        assert answer.json()["workflow_job_id"] == job
        session = yard.github.connect(answer.json()["encoded_jit_config"])
        assert isinstance(session, RunnerSession) and session.assignment is not None
        assert "pat_of_the_test" not in replica.said()
        assert await replica.end() == 0

    play(scenario, tmp_path, database_url, app_keys)


@pytest.mark.slow
def test_a_replica_that_is_told_to_end_sends_its_runners_elsewhere_and_is_gone_in_time(
    tmp_path: Path, database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(yard: Yard) -> None:
        await yard.pool()
        guest = await yard.pod()
        replica = await yard.start("one")
        await replica.serving()
        waiting = asyncio.create_task(poll(replica.url, guest))

        async def waits() -> bool:
            page = await ask(replica.url, "GET", "/api/v1/overview", authorization=BEARER)
            return guest.name.encode() in page.body

        await until(waits)
        began = asyncio.get_running_loop().time()
        assert await replica.end(signal.SIGTERM) == 0
        # Twice the promise, for a machine that is busy; still less than the poll would have waited.
        assert asyncio.get_running_loop().time() - began < 2 * END_WITHIN
        assert (await waiting).status == 204
        with pytest.raises(TransportError):
            await ask(replica.url, "GET", "/healthz")

    play(scenario, tmp_path, database_url, app_keys)


@pytest.mark.slow
def test_a_replica_without_its_schema_lives_says_what_is_missing_and_goes_on_when_it_is_there(
    tmp_path: Path, empty_database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(yard: Yard) -> None:
        replica = await yard.start("one", "--no-migrate", listen="127.0.0.1:0")
        port = await _port(replica.said)
        url = f"http://127.0.0.1:{port}"
        assert (await ask(url, "GET", "/healthz")).status == 200

        async def names_it() -> bool:
            ready = await ask(url, "GET", "/readyz", authorization=BEARER)
            assert ready.status == 503
            return b"0001_pre_time.sql" in ready.body and b"runyard migrate pre" in ready.body

        await until(names_it)
        step = await yard.run(
            "migrate", "pre", "--database-url-file", str(tmp_path / "db.url"), name="migrate"
        )
        assert await step.process.wait() == 0, step.said()
        assert await replica.serving() == url

        async def works() -> bool:
            ready = await ask(url, "GET", "/readyz", authorization=BEARER)
            return ready.status == 200 and bool(ready.json()["works"])

        await until(works)
        assert await replica.end() == 0

    play(scenario, tmp_path, empty_database_url, app_keys)


async def _port(said: Callable[[], str]) -> str:
    """The port in the first line of a log that names one."""
    async with asyncio.timeout(SOON):
        while True:
            with contextlib.suppress(IndexError):
                return said().split("http://127.0.0.1:")[1].split('"')[0]
            await asyncio.sleep(0.05)


@pytest.mark.slow
def test_a_replica_whose_database_is_away_waits_for_it_and_ends_when_told_to(
    tmp_path: Path, database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(yard: Yard) -> None:
        away = yard.write("away.url", "postgresql://nobody@127.0.0.1:1/nothing")
        replica = await yard.start("one", database_url_file=away)
        url = f"http://127.0.0.1:{await _port(replica.said)}"

        async def tells() -> bool:
            ready = await ask(url, "GET", "/readyz", authorization=BEARER)
            assert ready.status == 503
            return b"Postgres does not respond" in ready.body

        await until(tells)
        assert await replica.end() == 0

    play(scenario, tmp_path, database_url, app_keys)


@pytest.mark.slow
def test_a_database_of_one_machine_is_not_served_by_somebody_with_other_keys(
    tmp_path: Path, database_url: str, app_keys: KeyPair
) -> None:
    claim(database_url, Owner("the-machine", "/its/place"))

    async def scenario(yard: Yard) -> None:
        replica = await yard.start("one")
        async with asyncio.timeout(SOON):
            assert await replica.process.wait() == 1
        last = replica.said().splitlines()[-1]
        assert last.startswith("runyard: ") and "/its/place" in last

    play(scenario, tmp_path, database_url, app_keys)


# ── bad settings ────────────────────────────────────────────────────────────────────────────────────

BAD: dict[str, tuple[dict[str, str | None], str]] = {
    "no database": ({"database-url-file": None}, "--database-url is missing"),
    "no scheme of Postgres": ({"database-url-file": "scheme.url"}, "postgresql://USER"),
    "a bare % in the password": ({"database-url-file": "percent.url"}, "%25"),
    "a bare @ in the password": ({"database-url-file": "at.url"}, "%40"),
    "a bare / in the direct one": ({"database-direct-url-file": "slash.url"}, "%2F"),
    "no seal": ({"seal-key-file": None}, "head -c 32"),
    "a short seal": ({"seal-key-file": "short"}, "32 bytes in base64"),
    "no webhook secret": (
        {"webhook-secret-file": None, "github-intake": "webhook"},
        "--github-intake pull",
    ),
    "an empty file": ({"webhook-secret-file": "empty"}, "is empty"),
    "a file that is not there": ({"webhook-secret-file": "nowhere"}, "cannot be read"),
    "no App": ({"github-app-id": None, "github-key-file": None}, "runyard github connect"),
    "half an App": ({"github-app-id": None}, "belong together"),
    "an App and a token": ({"github-token-file": "hook", "github-repository": "a/b"}, "both given"),
    "half a token": (
        {"github-app-id": None, "github-key-file": None, "github-token-file": "hook"},
        "belong together",
    ),
    "a repository that is none": (
        {
            "github-app-id": None,
            "github-key-file": None,
            "github-token-file": "hook",
            "github-repository": "a",
        },
        "owner/name",
    ),
    "a key that is none": ({"github-key-file": "short"}, "no RSA key"),
    "no cluster": ({"kubeconfig": "nowhere"}, "cannot be read"),
    "an address that is none": ({"listen": "8080"}, "HOST:PORT"),
    "everybody may look": ({"listen": "0.0.0.0:0"}, "--dashboard-token-file is missing"),
    "a short token": ({"listen": "0.0.0.0:0", "dashboard-token-file": "short"}, "shorter than"),
    "a short token for metrics": (
        {"dashboard-token-file": "app.pem", "metrics-token-file": "short"},
        "metrics is shorter than",
    ),
    "metrics with the token for everything": (
        {"dashboard-token-file": "app.pem", "metrics-token-file": "app.pem"},
        "can change things",
    ),
    "half of TLS": ({"tls-cert-file": "short"}, "belong together"),
    "GitHub's address is none": ({"github-url": "github.example"}, "not a valid URL"),
    "GitHub's address holds a secret": ({"github-url": "https://a:b@h"}, "password"),
    "a reconciler that is none": ({"reconciler": "everything=off"}, "ghost_registrations"),
    "a namespace that is none": ({"namespace": "Not A Name"}, "--namespace"),
    "objects nowhere": ({"blobs": "gs://x"}, "s3://bucket/prefix"),
    "objects in a file": ({"blobs": "hook/x"}, "cannot be used"),
    "a bucket's flags without one": ({"blobs-region": "eu"}, "--blobs is missing"),
    "a bucket's flags for a directory": ({"blobs": "here", "blobs-region": "eu"}, "s3://"),
    "credentials that are none": (
        {"blobs": "s3://results", "blobs-credentials-file": "hook"},
        "AWS_ACCESS_KEY_ID=",
    ),
    "a short link key": ({"blobs": "here", "link-key-file": "short"}, "32 bytes in base64"),
}


@pytest.mark.parametrize(("changes", "says"), BAD.values(), ids=BAD)
def test_a_bad_setting_is_one_line_with_its_fix(
    changes: dict[str, str | None],
    says: str,
    tmp_path: Path,
    app_keys: KeyPair,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name, content in {
        "db.url": "postgresql://nobody:pass-word@127.0.0.1:1/x",
        "scheme.url": "postgre://nobody:pass-word@127.0.0.1:1/x",
        "percent.url": "postgresql://nobody:%pass-word@127.0.0.1:1/x",
        "at.url": "postgresql://nobody:a@pass-word@127.0.0.1:1/x",
        "slash.url": "postgresql://nobody:pass-word/a@127.0.0.1:1/x",
        "kube": "apiVersion: v1\nkind: Config\ncurrent-context: a\n"
        "clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}]\n"
        "contexts: [{name: a, context: {cluster: a}}]\n",
        "app.pem": app_keys.private_pem,
        "hook": "hush",
        "seal": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
        "short": "c2hvcnQ=",
        "empty": "\n",
    }.items():
        (tmp_path / name).write_text(content)
    given: dict[str, str | None] = {
        "database-url-file": "db.url",
        "kubeconfig": "kube",
        "github-app-id": "7",
        "github-key-file": "app.pem",
        "webhook-secret-file": "hook",
        "seal-key-file": "seal",
        "listen": "127.0.0.1:0",
        **changes,
    }
    argv = [
        word for key, value in given.items() if value is not None for word in (f"--{key}", value)
    ]
    assert run_cli(cli, name="runyard", argv=["server", *argv]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1 and told.err.startswith("runyard: ")
    assert says in told.err
    for secret in ("pass-word", "hush", "c2hvcnQ", "a:b@"):
        assert secret not in told.err


def given(app_keys: KeyPair, folder: Path, *more: str) -> tuple[Flags, GithubIdentity]:
    """The flags of a server with an App, and who it is at GitHub."""
    for name, text in (("seal", "A" * 43 + "="), ("hook", "hush"), ("pem", app_keys.private_pem)):
        (folder / name).write_text(text)
    argv = ["--seal-key-file", "seal", "--webhook-secret-file", "hook", "--github-key-file", "pem"]
    argv = [word if word.startswith("--") else str(folder / word) for word in argv]
    context = server.make_context("server", [*argv, "--github-app-id", "7", *more])
    flags = flags_of(context.params)
    return flags, github_identity(flags.github, clock=RealClock())


def test_the_runner_group_that_was_chosen_is_the_servers(app_keys: KeyPair, tmp_path: Path) -> None:
    flags, who = given(app_keys, tmp_path, "--runner-group", "5")
    assert settings_of(flags, who).runner_group == 5


def test_the_dashboard_links_runs_at_the_configured_github(
    app_keys: KeyPair, tmp_path: Path
) -> None:
    argv = ("--listen", "127.0.0.1:0", "--github-url", "https://ghe.example/api/v3")
    flags, who = given(app_keys, tmp_path, *argv)

    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            socket = _server_socket(flags, who, RealClock(), stack, log=get_logger("test"))
            assert socket.access.github == "https://ghe.example"

    asyncio.run(main())


def test_migrate_refuses_an_address_that_is_none_without_repeating_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for url in ("postgre://u:pass-word@h/x", "postgresql://u:%pass-word@h/x"):
        assert run_cli(cli, name="runyard", argv=["migrate", "--database-url", url]) == 2
        told = capsys.readouterr()
        assert told.err.startswith("runyard: --database-url: ") and told.err.count("\n") == 1
        assert "pass-word" not in told.err + told.out
