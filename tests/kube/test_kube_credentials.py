"""Credentials stay fresh, plugins run only when needed, and no secret is shown."""

import asyncio
import io
import json
import os
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from tests.kube.authsupport import (
    BETA,
    ENVIRON,
    GET,
    START_TEXT,
    V1,
    Authority,
    Gate,
    HandClock,
    b64,
    config_of,
    kubeconfig,
    plugin_user,
    printed,
    runs,
    script,
)

from runyard.http.errors import NotSent
from runyard.http.messages import Request, Response, Stream
from runyard.kube.auth import AuthTransport
from runyard.kube.config import Config, Secret
from runyard.kube.connect import credentials_of
from runyard.kube.credentials import Credential, Credentials, CredentialsUnavailable
from runyard.kube.plugins import PAUSE, PluginCredentials
from runyard.telemetry import log

SECRET = "hush-hush-98765"
AUTHORITY = Authority()
LONG = 30.0  # a request's timeout; no test waits for it

Scenario = Callable[[HandClock], Coroutine[Any, Any, None]]


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """Everything that is logged, at the finest level."""
    stream = io.StringIO()
    log.configure(level="debug", stream=stream)
    yield stream
    structlog.reset_defaults()


def of(config: Config, clock: HandClock, environ: dict[str, str] | None = None) -> Credentials:
    return credentials_of(config, clock=clock, environ=environ or ENVIRON)


def tokens(folder: Path, user: dict[str, Any], scenario: Callable[..., Any]) -> Any:
    """Run a scenario with the credentials of a user and a clock."""
    clock = HandClock()
    config = config_of(folder, kubeconfig(user=user))

    async def main() -> Any:
        credentials = of(config, clock)
        try:
            return await scenario(credentials, clock)
        finally:
            await credentials.close()

    return asyncio.run(main())


async def token(credentials: Credentials) -> str:
    return (await credentials.current()).token.reveal()


# ── stored ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_rotated_token_file_is_seen_within_a_minute_and_not_read_each_time(
    tmp_path: Path,
) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")

    async def scenario(credentials: Credentials, clock: HandClock) -> None:
        assert await token(credentials) == "first"
        file.write_text("second\n")
        clock.passed = 59.0
        assert await token(credentials) == "first"
        clock.passed = 60.0
        assert await token(credentials) == "second"

    tokens(tmp_path, {"tokenFile": "token"}, scenario)


def test_a_refused_token_file_is_read_at_once_but_once_for_all(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first")

    async def scenario(credentials: Credentials, clock: HandClock) -> None:
        refused = await credentials.current()
        assert await credentials.renew(refused) == refused  # nothing else is there
        file.write_text("second")
        assert (await credentials.renew(refused)).token == Secret("second")
        file.write_text("third")  # a late refusal of the old token gets the current one
        assert (await credentials.renew(refused)).token == Secret("second")

    tokens(tmp_path, {"tokenFile": "token"}, scenario)


@pytest.mark.parametrize("content", [b"", b"\n", b"two words", b"caf\xc3\xa9", b"\xff", b"a\nb"])
def test_a_broken_token_file_does_not_take_a_good_token_away(
    tmp_path: Path, content: bytes, logged: io.StringIO
) -> None:
    file = tmp_path / "token"
    file.write_text(SECRET)

    async def scenario(credentials: Credentials, clock: HandClock) -> None:
        assert await token(credentials) == SECRET
        file.write_bytes(content)
        clock.passed = 61.0
        assert await token(credentials) == SECRET
        file.unlink()
        clock.passed = 122.0
        assert await token(credentials) == SECRET

    tokens(tmp_path, {"tokenFile": "token"}, scenario)
    assert str(file) in logged.getvalue() and SECRET not in logged.getvalue()


def test_a_token_file_that_was_never_good_is_an_error_with_a_fix(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{SECRET} {SECRET}")
    with pytest.raises(CredentialsUnavailable, match="token holds no token; write") as caught:
        tokens(tmp_path, {"tokenFile": "token"}, lambda credentials, _: credentials.current())
    assert isinstance(caught.value, NotSent)
    assert SECRET not in repr(caught.value)


def test_a_token_beside_an_unreadable_token_file_is_used(tmp_path: Path) -> None:
    user = {"token": "written", "tokenFile": "token"}
    assert tokens(tmp_path, user, lambda credentials, _: token(credentials)) == "written"
    (tmp_path / "token").write_text("newer")
    assert tokens(tmp_path, user, lambda credentials, _: token(credentials)) == "newer"


# ── plugins ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_plugin_gets_the_same_input_as_from_kubectl(tmp_path: Path) -> None:
    plugin = script(
        tmp_path / "plugin",
        'printf "%s" "$KUBERNETES_EXEC_INFO" > "$0.info"; echo "$*|$EXTRA|$GIVEN|$(cat)" > "$0.seen"\n'
        + printed(BETA, token="t"),
    )
    extension = {
        "name": "client.authentication.k8s.io/exec",
        "extension": {"audience": "x", "n": 3},
    }
    cluster = {
        "certificate-authority-data": b64(AUTHORITY.pem),
        "tls-server-name": "api.test",
        "extensions": [{"name": "other", "extension": {}}, extension],
    }
    user = plugin_user(
        plugin,
        BETA,
        args=["get-token", "two words"],
        env=[{"name": "EXTRA", "value": "more"}, {"name": "KUBERNETES_EXEC_INFO", "value": "lie"}],
        provideClusterInfo=True,
    )
    config = config_of(tmp_path, kubeconfig(cluster, user))

    async def main() -> str:
        return await token(of(config, HandClock(), {**ENVIRON, "GIVEN": "inherited", "EXTRA": "x"}))

    assert asyncio.run(main()) == "t"
    assert (tmp_path / "plugin.seen").read_text() == "get-token two words|more|inherited|\n"
    assert json.loads((tmp_path / "plugin.info").read_text()) == {
        "apiVersion": BETA,
        "kind": "ExecCredential",
        "spec": {
            "interactive": False,
            "cluster": {
                "server": "https://127.0.0.1:6443",
                "tls-server-name": "api.test",
                "certificate-authority-data": b64(AUTHORITY.pem),
                "config": {"audience": "x", "n": 3},
            },
        },
    }


def test_a_plugin_without_provide_cluster_info_gets_no_cluster(tmp_path: Path) -> None:
    save_info = 'printf "%s" "$KUBERNETES_EXEC_INFO" > "$0.info"\n'
    plugin = script(tmp_path / "plugin", save_info + printed(token="t"))
    tokens(tmp_path, plugin_user(plugin), lambda credentials, _: credentials.current())
    info = json.loads((tmp_path / "plugin.info").read_text())
    assert info["spec"] == {"interactive": False}


def counting(tmp_path: Path, **status: str) -> Path:
    """A plugin whose token is the number of its run."""
    body = printed(token="t-RUN", **status).replace("'END'", "END")
    return script(tmp_path / "plugin", body.replace("RUN", '$(wc -l < "$0.runs" | tr -d " ")'))


def test_a_credential_is_used_until_it_expires_and_not_longer(tmp_path: Path) -> None:
    plugin = counting(tmp_path, expirationTimestamp="2027-01-15T08:01:40Z")

    async def scenario(credentials: Credentials, clock: HandClock) -> None:
        assert await token(credentials) == "t-1"
        clock.passed = 99.9
        assert await token(credentials) == "t-1"
        clock.passed = 100.0
        assert await token(credentials) == "t-2"

    tokens(tmp_path, plugin_user(plugin), scenario)
    assert runs(plugin) == 2


def test_without_an_expiry_only_a_refusal_runs_the_plugin_again(tmp_path: Path) -> None:
    plugin = counting(tmp_path)

    async def scenario(credentials: Credentials, clock: HandClock) -> None:
        first = await credentials.current()
        clock.passed = 1e6
        assert await credentials.current() == first
        second = await credentials.renew(first)
        assert second.token == Secret("t-2")
        assert await credentials.renew(first) == second  # a late refusal of the old one
        assert await credentials.renew(second) == second  # refused again at once: not run again
        clock.passed += PAUSE
        assert await credentials.renew(first) == second  # a very late one
        assert (await credentials.renew(second)).token == Secret("t-3")

    tokens(tmp_path, plugin_user(plugin), scenario)
    assert runs(plugin) == 3


def test_an_answer_that_has_expired_already_does_not_run_the_plugin_each_time(
    tmp_path: Path,
) -> None:
    plugin = counting(tmp_path, expirationTimestamp=START_TEXT)

    async def scenario(credentials: Credentials, clock: HandClock) -> None:
        for passed in (0.0, PAUSE - 0.1):
            clock.passed = passed
            assert await token(credentials) == "t-1"
        clock.passed = PAUSE
        assert await token(credentials) == "t-2"

    tokens(tmp_path, plugin_user(plugin), scenario)


def test_requests_at_the_same_time_share_one_run(tmp_path: Path) -> None:
    plugin = counting(tmp_path)

    async def scenario(credentials: Credentials, clock: HandClock) -> None:
        found = await asyncio.gather(*(credentials.current() for _ in range(50)))
        assert [item.token for item in found] == [Secret("t-1")] * 50
        found = await asyncio.gather(*(credentials.renew(found[0]) for _ in range(50)))
        assert [item.token for item in found] == [Secret("t-2")] * 50

    tokens(tmp_path, plugin_user(plugin), scenario)
    assert runs(plugin) == 2


def waiting(tmp_path: Path) -> tuple[Path, Path]:
    """A plugin that reports its start through one FIFO and continues when it reads from another."""
    for name in ("began", "go"):
        os.mkfifo(tmp_path / name)
    body = f'echo x > "{tmp_path}/began"; read -r x < "{tmp_path}/go"\n' + printed(token="late")
    return script(tmp_path / "plugin", body), tmp_path


def test_a_cancelled_request_does_not_end_the_plugin_run_of_the_next_request(
    tmp_path: Path,
) -> None:
    plugin, folder = waiting(tmp_path)

    async def scenario(credentials: Credentials, clock: HandClock) -> None:
        impatient = asyncio.create_task(credentials.current())
        await asyncio.to_thread((folder / "began").read_text)
        impatient.cancel()
        with pytest.raises(asyncio.CancelledError):
            await impatient
        patient = asyncio.create_task(credentials.current())
        await asyncio.to_thread((folder / "go").write_text, "x\n")
        assert (await patient).token == Secret("late")

    tokens(tmp_path, plugin_user(plugin), scenario)
    assert runs(plugin) == 1


def test_closing_ends_the_plugin_and_its_waiting_requests(tmp_path: Path) -> None:
    plugin, folder = waiting(tmp_path)

    async def scenario(credentials: Credentials, clock: HandClock) -> None:
        waiter = asyncio.create_task(credentials.current())
        await asyncio.to_thread((folder / "began").read_text)
        await credentials.close()
        with pytest.raises(CredentialsUnavailable, match="closed"):
            await waiter
        with pytest.raises(CredentialsUnavailable, match="closed"):
            await credentials.current()

    tokens(tmp_path, plugin_user(plugin), scenario)
    assert runs(plugin) == 1


BROKEN = {
    "fails": (
        f"echo {SECRET}; echo 'log in first' >&2; exit 3",
        "code 3 and printed: log in first",
    ),
    "prints nothing": ("true", "no ExecCredential"),
    "prints a text": (f"echo {SECRET}", "no ExecCredential"),
    "prints another kind": (
        printed(token=SECRET).replace("ExecCredential", "Pod"),
        "did not print an ExecCredential",
    ),
    "prints another version": (
        printed(BETA, token=SECRET),
        f"did not print an ExecCredential of {V1}",
    ),
    "prints no status": (printed(), "neither a token nor a certificate"),
    "prints an empty token": (printed(token=""), "neither a token nor a certificate"),
    "prints half a pair": (printed(clientKeyData=SECRET), "without its key"),
    "prints two lines": (printed(token=f"{SECRET}\r\nx: y"), "characters that no token has"),
    "prints a bad time": (printed(token=SECRET, expirationTimestamp=SECRET), "no ExecCredential"),
    "prints a time without zone": (
        printed(token=SECRET, expirationTimestamp="2027-01-15T08:00:00"),
        "no ExecCredential",
    ),
    "prints a wrong type": (f"""echo '{{"status": ["{SECRET}"]}}'""", "no ExecCredential"),
    "floods": (f"yes {SECRET} | head -c 400000", "no ExecCredential"),
    "floods and fails": (f"yes x{SECRET} | head -c 400000 >&2; exit 1", "failed with code 1;"),
    "dies": ("kill -9 $$", "failed with code -9"),
}


@pytest.mark.parametrize("title", BROKEN)
def test_a_plugin_that_fails_is_named_and_its_output_is_not(
    tmp_path: Path, title: str, logged: io.StringIO
) -> None:
    body, message = BROKEN[title]
    plugin = script(tmp_path / "plugin", body)
    with pytest.raises(CredentialsUnavailable, match=message) as caught:
        tokens(tmp_path, plugin_user(plugin), lambda credentials, _: credentials.current())
    assert str(plugin) in str(caught.value)
    shown = f"{caught.value!r} {caught.value.__context__!r} {logged.getvalue()}"
    assert SECRET not in shown and str(plugin) in logged.getvalue()


def test_the_stderr_of_a_failed_plugin_is_shown_without_secrets(
    tmp_path: Path, logged: io.StringIO
) -> None:
    body = """
        echo "using $PASSWORD and $1" >&2
        echo "got eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.eyJzdWIiOiJ4In0.c2ln" >&2
        echo "Authorization: Bearer abcdefghijklmnop" >&2
        printf '\\033[31mthe session is over\\033[0m: run "login"\\n' >&2
        exit 1"""
    user = plugin_user(
        script(tmp_path / "plugin", body),
        args=[f"--secret={SECRET}"],
        env=[{"name": "PASSWORD", "value": f"{SECRET}\n{SECRET}"}],
    )
    with pytest.raises(CredentialsUnavailable) as caught:
        tokens(tmp_path, user, lambda credentials, _: credentials.current())
    shown = f"{caught.value} {logged.getvalue()}"
    assert "the session is over" in shown and 'run "login"' in str(caught.value)
    for secret in (SECRET, "eyJhbGci", "abcdefghijklmnop", "\033"):
        assert secret not in shown


def test_a_failing_plugin_is_not_run_for_each_request(tmp_path: Path) -> None:
    plugin = script(tmp_path / "plugin", "exit 1")

    async def scenario(credentials: Credentials, clock: HandClock) -> None:
        asked = [credentials.current() for _ in range(20)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(item, CredentialsUnavailable) for item in found)
        clock.passed = PAUSE - 0.1
        with pytest.raises(CredentialsUnavailable):
            await credentials.current()
        assert runs(plugin) == 1
        script(plugin, printed(token="better"))
        clock.passed = PAUSE
        assert await token(credentials) == "better"

    tokens(tmp_path, plugin_user(plugin), scenario)
    assert runs(plugin) == 2


def test_the_error_for_a_missing_plugin_has_the_install_hint(tmp_path: Path) -> None:
    def ask(credentials: Credentials, _: HandClock) -> Coroutine[Any, Any, Credential]:
        return credentials.current()

    user = plugin_user("no-such-plugin", installHint="get it\nfrom example.test")
    with pytest.raises(
        CredentialsUnavailable, match="no-such-plugin was not found; get it from example"
    ):
        tokens(tmp_path, user, ask)
    with pytest.raises(CredentialsUnavailable, match="put its directory on PATH"):
        tokens(tmp_path, plugin_user("no-such-plugin"), ask)
    (tmp_path / "text").write_text("no program")
    with pytest.raises(CredentialsUnavailable, match="cannot be started: Permission denied"):
        tokens(tmp_path, plugin_user("./text"), ask)


def test_a_plugin_that_waits_for_input_is_ended(tmp_path: Path) -> None:
    plugin, _ = waiting(tmp_path)
    config = config_of(tmp_path, kubeconfig(user=plugin_user(plugin)))
    assert config.user.plugin is not None
    credentials = PluginCredentials(
        config.user.plugin, config.cluster, clock=HandClock(), environ=ENVIRON, deadline=0.0
    )
    with pytest.raises(CredentialsUnavailable, match=r"did not end within 0 s.*log in by hand"):
        asyncio.run(credentials.current())


def test_a_plugins_certificate_is_read_and_hidden(tmp_path: Path) -> None:
    pair = AUTHORITY.issue("me")
    plugin = script(
        tmp_path / "plugin",
        printed(clientCertificateData=pair.chain, clientKeyData=pair.key),
    )
    found = tokens(tmp_path, plugin_user(plugin), lambda credentials, _: credentials.current())
    assert found.certificate.key.reveal() == pair.key
    assert not found.token
    assert "BEGIN" not in repr(found)


# ── the transport ───────────────────────────────────────────────────────────────────────────────────


def carried(folder: Path, gate: Any, user: dict[str, Any], scenario: Callable[..., Any]) -> Any:
    async def main(credentials: Credentials, clock: HandClock) -> Any:
        return await scenario(AuthTransport(gate, credentials, clock=clock), clock)

    return tokens(folder, user, main)


def test_a_request_without_authorization_gets_one(tmp_path: Path) -> None:
    gate = Gate("t")
    request = Request(method="POST", path="/x", headers=(("accept", "a"),), body=b"b")
    answer = carried(
        tmp_path, gate, {"token": "t"}, lambda auth, _: auth.send(request, timeout=LONG)
    )
    assert (answer.status, answer.body) == (200, b"b")
    assert gate.shown == ["t"]


def test_a_request_with_its_own_authorization_is_left_alone(tmp_path: Path) -> None:
    gate = Gate("t")
    plugin = counting(tmp_path)
    request = Request(method="GET", path="/x", headers=(("authorization", "Bearer own"),))
    answer = carried(
        tmp_path, gate, plugin_user(plugin), lambda auth, _: auth.send(request, timeout=LONG)
    )
    assert answer.status == 401
    assert gate.shown == ["own"]
    assert runs(plugin) == 0


def test_an_anonymous_request_has_no_authorization(tmp_path: Path) -> None:
    gate = Gate("")
    carried(tmp_path, gate, {}, lambda auth, _: auth.send(GET, timeout=LONG))
    assert gate.shown == [""]


def test_a_refused_request_is_repeated_once_with_a_renewed_credential(tmp_path: Path) -> None:
    plugin = counting(tmp_path)
    gate = Gate("t-2")

    async def scenario(auth: AuthTransport, clock: HandClock) -> None:
        answer = await auth.send(Request(method="POST", path="/x", body=b"b"), timeout=LONG)
        assert (answer.status, gate.shown) == (200, ["t-1", "t-2"])
        gate.accepted = ()
        gate.shown.clear()
        clock.passed += PAUSE
        assert (await auth.send(GET, timeout=LONG)).status == 401
        assert gate.shown == ["t-2", "t-3"]  # twice, never a third time
        assert (await auth.send(GET, timeout=LONG)).status == 401
        assert gate.shown == ["t-2", "t-3", "t-3"]  # and not again at once

    carried(tmp_path, gate, plugin_user(plugin), scenario)


def test_a_refusal_with_nothing_new_is_not_repeated(tmp_path: Path) -> None:
    gate = Gate()
    answer = carried(tmp_path, gate, {"token": "t"}, lambda auth, _: auth.send(GET, timeout=LONG))
    assert answer.status == 401
    assert gate.shown == ["t"]


def test_many_refusals_at_once_run_the_plugin_once(tmp_path: Path) -> None:
    plugin = counting(tmp_path)
    gate = Gate("t-2")

    async def scenario(auth: AuthTransport, clock: HandClock) -> None:
        sent = (auth.send(GET, timeout=LONG) for _ in range(30))
        assert [answer.status for answer in await asyncio.gather(*sent)] == [200] * 30

    carried(tmp_path, gate, plugin_user(plugin), scenario)
    assert runs(plugin) == 2


class Streams(Gate):
    """Answers with streams, also when it refuses."""

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        answer = await super().send(request, timeout=timeout)

        async def nothing() -> Any:
            for chunk in (b"one", b"two"):
                yield chunk

        return Stream(nothing(), status=answer.status, on_close=self._count)

    def _count(self) -> None:
        self.closed += 1


def test_a_refused_stream_is_closed_and_never_left_open(tmp_path: Path) -> None:
    gate = Streams("t-2")

    async def scenario(auth: AuthTransport, clock: HandClock) -> None:
        answer = await auth.send(GET, timeout=LONG)
        assert isinstance(answer, Stream) and answer.status == 200
        assert gate.closed == 1
        await answer.aclose()
        gate.accepted = ()
        answer = await auth.send(GET, timeout=LONG)
        assert isinstance(answer, Response) and answer.status == 401
        assert gate.closed == 3

    carried(tmp_path, gate, plugin_user(counting(tmp_path)), scenario)


def test_a_slow_plugin_does_not_exceed_the_timeout_of_a_request(tmp_path: Path) -> None:
    plugin, folder = waiting(tmp_path)
    gate = Gate("late")

    async def scenario(auth: AuthTransport, clock: HandClock) -> None:
        with pytest.raises(CredentialsUnavailable, match="no credentials within 0 s"):
            await auth.send(GET, timeout=0.0)
        assert gate.shown == []
        await asyncio.to_thread((folder / "began").read_text)
        again = asyncio.create_task(auth.send(GET, timeout=LONG))
        await asyncio.to_thread((folder / "go").write_text, "x\n")
        assert (await again).status == 200

    carried(tmp_path, gate, plugin_user(plugin), scenario)
    assert runs(plugin) == 1


def test_a_request_is_not_sent_if_the_plugin_fails(tmp_path: Path) -> None:
    gate = Gate()
    user = plugin_user(script(tmp_path / "plugin", "exit 1"))
    with pytest.raises(NotSent):
        carried(tmp_path, gate, user, lambda auth, _: auth.send(GET, timeout=LONG))
    assert gate.shown == []


def test_closing_closes_the_inner_transport(tmp_path: Path) -> None:
    gate = Gate()
    plugin, folder = waiting(tmp_path)

    async def scenario(auth: AuthTransport, clock: HandClock) -> None:
        waiter = asyncio.create_task(auth.send(GET, timeout=LONG))
        await asyncio.to_thread((folder / "began").read_text)
        await auth.close()
        with pytest.raises(CredentialsUnavailable, match="closed"):
            await waiter

    carried(tmp_path, gate, plugin_user(plugin), scenario)
    assert gate.closed == 1
    assert gate.shown == []
