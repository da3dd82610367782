"""Certificates, kubeconfigs, shell plugins and a manual clock for the tests of authentication."""

import asyncio
import base64
import os
import ssl
import time
from pathlib import Path
from typing import Any

import msgspec
import yaml

from runyard.http import tls
from runyard.http.messages import Request, Response, Stream
from runyard.kube.config import Config
from runyard.kube.kubeconfig import find_config

ENVIRON = {"PATH": os.environ["PATH"]}
START = 1_800_000_000.0
START_TEXT = "2027-01-15T08:00:00Z"
V1 = "client.authentication.k8s.io/v1"
BETA = "client.authentication.k8s.io/v1beta1"


class HandClock:
    """Time that stands still until a test moves it; waiting is the loop's."""

    def __init__(self) -> None:
        self.passed = 0.0

    def now(self) -> float:
        return START + self.passed

    def monotonic(self) -> float:
        return self.passed

    async def sleep(self, seconds: float) -> None:
        self.passed += max(0.0, seconds)
        await asyncio.sleep(0)

    def timeout(self, seconds: float) -> asyncio.Timeout:
        return asyncio.timeout(seconds)


class Pair(msgspec.Struct, frozen=True):
    """A certificate and its key, PEM."""

    chain: str
    key: str


class Authority:
    """A certificate authority of the test's own."""

    def __init__(self) -> None:
        self._pair = tls.make_authority("test", now=time.time())
        self.pem = self._pair.certificate.decode()

    def issue(self, name: str) -> Pair:
        """A certificate for a client."""
        issued = tls.issue_client(self._pair, name, now=time.time())
        return Pair(issued.certificate.decode(), issued.key.decode())

    def server_tls(self, folder: Path, *hosts: str, clients: bool = False) -> ssl.SSLContext:
        """The TLS context of a server with those names; `clients` requires client certificates."""
        pair = tls.issue_server(self._pair, hosts, now=time.time())
        files = tls.write_pair(folder / "server", "server", pair)
        return tls.server_context(files, clients=self._pair.certificate, required=clients)


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def kubeconfig(
    cluster: dict[str, Any] | None = None,
    user: dict[str, Any] | None = None,
    context: dict[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A kubeconfig of one of each, all called `one`."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "one",
        "clusters": [
            {"name": "one", "cluster": {"server": "https://127.0.0.1:6443"} | (cluster or {})}
        ],
        "users": [{"name": "one", "user": user or {}}],
        "contexts": [
            {"name": "one", "context": {"cluster": "one", "user": "one"} | (context or {})}
        ],
    } | more


def write(path: Path, value: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(value))
    return path


def config_of(folder: Path, value: dict[str, Any], **how: Any) -> Config:
    path = write(folder / "kubeconfig", value)
    return find_config(str(path), environ=how.pop("environ", {}), home=folder / "nobody", **how)


def script(path: Path, body: str) -> Path:
    """A program in POSIX sh that records each of its runs in a file beside it."""
    path.write_text(f'#!/bin/sh\necho run >> "$0.runs"\n{body}\n')
    path.chmod(0o755)
    return path


def runs(path: Path) -> int:
    noted = path.with_name(path.name + ".runs")
    return len(noted.read_text().splitlines()) if noted.exists() else 0


def printed(version: str = V1, **status: str) -> str:
    answer = {"apiVersion": version, "kind": "ExecCredential", "status": status}
    return "cat <<'END'\n" + msgspec.json.encode(answer).decode() + "\nEND"


def plugin_user(command: Path | str, version: str = V1, **more: Any) -> dict[str, Any]:
    exec_entry = {"command": str(command), "apiVersion": version, "interactiveMode": "Never"}
    return {"exec": exec_entry | more}


class Gate:
    """An API that accepts some tokens and answers 401 to the rest."""

    def __init__(self, *accepted: str) -> None:
        self.accepted = accepted
        self.shown: list[str] = []
        self.closed = 0

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        shown = request.header("authorization").removeprefix("Bearer ")
        self.shown.append(shown)
        return Response(status=200 if shown in self.accepted else 401, body=request.body)

    async def close(self) -> None:
        self.closed += 1


GET = Request(method="GET", path="/api/v1/pods")
