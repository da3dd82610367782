"""Real `runyard server` processes between a Kubernetes API, a practice GitHub, both over HTTP, and a real Postgres."""

import asyncio
import base64
import contextlib
import io
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from runyard.cli.main import cli
from runyard.cli.main import run as run_cli
from runyard.clock import RealClock
from runyard.embedded.github.core import GithubCore, PracticeApp
from runyard.embedded.github.deliveries import Delivery
from runyard.embedded.github.identity import KeyPair
from runyard.embedded.github.settings import PracticeSettings
from runyard.embedded.kube.access.login import authenticator
from runyard.embedded.kube.core import KubeCore, Security
from runyard.embedded.kube.kubeconfig import render
from runyard.embedded.up import accounts
from runyard.http.client import HttpTransport
from runyard.http.loopback import Loopback
from runyard.http.messages import Request, Response
from runyard.http.server import listen
from runyard.kube.client import Kube
from runyard.kube.kinds import PODS, RUNNER_POOLS, SERVICE_ACCOUNTS
from runyard.wire import names, rights
from runyard.wire.paths import DISPATCH, GITHUB_WEBHOOK

APP_ID, SECRET, ADMIN = 7, "hush-hush-hush-hush", "admin-token-of-the-test"
DASHBOARD_TOKEN = "token-of-the-dashboard"
BEARER = f"Bearer {DASHBOARD_TOKEN}"
SPACE = names.RUNNERS_NAMESPACE
LABELS = ("self-hosted", "macOS", "shape-mac")
SOON = 150.0  # generous: the machine may be busy
SCREENED = ("DATABASE_URL", "KUBECONFIG", "TUIST_RUNNERS_NAMESPACE")


class Guest(msgspec.Struct, frozen=True):
    """A Pod and the token that was put into it."""

    name: str
    uid: str
    token: str


class Process:
    """One `runyard …` process."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process = process
        self.log = log
        self.url = ""

    async def serving(self) -> str:
        """Where it serves, once it says so."""
        assert self.process.stdout is not None
        async with asyncio.timeout(SOON):
            line = await self.process.stdout.readline()
        assert line, self.said()
        self.url = str(msgspec.json.decode(line)["url"])
        return self.url

    async def end(self, number: int = signal.SIGTERM) -> int:
        if self.process.returncode is None:
            self.process.send_signal(number)
        async with asyncio.timeout(SOON):
            return await self.process.wait()

    def said(self) -> str:
        return self.log.read_text()


def run_here(*argv: str) -> tuple[int, str, str]:
    """A command in this process: its exit code, its output, its complaints."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = run_cli(cli, name="runyard", argv=list(argv))
        except SystemExit as ended:
            code = int(ended.code or 0)
    return code, out.getvalue(), err.getvalue()


class Yard:
    """What a server needs around it."""

    def __init__(self, folder: Path, *, database_url: str, keys: KeyPair) -> None:
        self.folder = folder
        self.database_url = database_url
        self.clock = RealClock()
        self.kube = KubeCore(clock=self.clock, rng=random.Random(1), security=Security(rbac=True))
        self.kube.guard(authenticator((ADMIN,), self.kube.tokens))
        self.admin = Kube(Loopback(self.kube.handle), token=lambda: ADMIN)
        self.keys = keys
        self.github: GithubCore
        self.github_url = ""
        self.deliver_to = ""  # the server that GitHub calls
        self.processes: list[Process] = []

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator["Yard"]:
        async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as group:
            kube = await listen(self.kube.handle)
            stack.push_async_callback(kube.close)
            stack.callback(self.kube.close_watches)
            github = await listen(self._github)
            stack.push_async_callback(github.close)
            self.github_url = github.url
            self.github = GithubCore(
                clock=self.clock,
                rng=random.Random(2),
                app=PracticeApp(
                    app_id=APP_ID, public_key=self.keys.public_pem, webhook_secret=SECRET
                ),
                deliver=self._deliver,
                settings=PracticeSettings(public_url=github.url),
            )
            beats = [
                group.create_task(self.github.run()),
                group.create_task(self.kube.run_controllers()),
            ]
            await self._furnish(kube.url)
            try:
                yield self
            finally:
                for process in self.processes:
                    await process.end(signal.SIGKILL)
                for beat in beats:
                    beat.cancel()

    async def _github(self, request: Request) -> Response:
        return await self.github.handle(request)

    async def _deliver(self, delivery: Delivery) -> int:
        if not self.deliver_to:
            return 502
        way = HttpTransport(self.deliver_to)
        try:
            return (await way.send(delivery.request(GITHUB_WEBHOOK), timeout=10.0)).status
        finally:
            await way.close()

    async def _furnish(self, kube_url: str) -> None:
        await accounts.grant(self.admin, (rights.SERVER,))
        account = accounts.account_of(rights.SERVER)
        await self.admin.create(
            SERVICE_ACCOUNTS,
            {"metadata": {"name": account}},
            namespace=names.CONTROLLER_NAMESPACE,
        )
        token = await self.admin.create_token(
            account, namespace=names.CONTROLLER_NAMESPACE, audience="", seconds=86400
        )
        self.write("kubeconfig", render(kube_url, token=token, namespace=SPACE))
        self.write("db.url", self.database_url + "\n")
        self.write("app.pem", self.keys.private_pem)
        self.write("hook.secret", SECRET + "\n")
        self.write("seal.key", base64.b64encode(bytes(range(32))).decode() + "\n")
        self.write("dashboard.token", DASHBOARD_TOKEN + "\n")
        self.github.install("acme")
        self.github.add_repo("acme/app")

    def write(self, name: str, content: str) -> Path:
        path = self.folder / name
        path.write_text(content)
        return path

    def flags(self, **changes: object) -> list[str]:
        """The command line of a replica; a value of None leaves a flag out."""
        given: dict[str, Any] = {
            "database_url_file": self.folder / "db.url",
            "kubeconfig": self.folder / "kubeconfig",
            "github_url": self.github_url,
            "github_app_id": APP_ID,
            "github_key_file": self.folder / "app.pem",
            "webhook_secret_file": self.folder / "hook.secret",
            "github_intake": "webhook",
            "seal_key_file": self.folder / "seal.key",
            "dashboard_token_file": self.folder / "dashboard.token",
            "listen": "127.0.0.1:0",
            **changes,
        }
        pairs = [
            (f"--{key.replace('_', '-')}", str(value))
            for key, value in given.items()
            if value is not None
        ]
        return ["--json", *(word for pair in pairs for word in pair)]

    async def start(self, name: str, *more: str, **changes: object) -> Process:
        """A replica as a process of its own."""
        return await self.run("server", *self.flags(name=name, **changes), *more, name=name)

    async def run(self, *argv: str, name: str) -> Process:
        log = self.folder / f"{name}.log"
        environ = {key: value for key, value in os.environ.items() if key not in SCREENED}
        with log.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "runyard.cli.main", *argv),
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env=environ,
            )
        self.processes.append(Process(process, log))
        return self.processes[-1]

    async def command(self, url: str, *argv: str) -> tuple[int, str, str]:
        """A command that speaks to a server: its exit code, its output, its complaints."""
        token = (
            () if "--token-file" in argv else ("--token-file", str(self.folder / "dashboard.token"))
        )
        return await asyncio.to_thread(run_here, *argv, "--server", url, *token)

    async def pool(self) -> None:
        spec = {
            "image": "vm:1",
            "fleetSelector": "f",
            "dispatchLabel": "shape-mac",
            "runnerLabels": ["self-hosted", "macOS"],
            "podCPUMilli": 4000,
            "podMemoryMB": 8192,
        }
        await self.admin.create(
            RUNNER_POOLS, {"metadata": {"name": "mac"}, "spec": spec}, namespace=SPACE
        )

    async def pod(self, number: int = 1) -> Guest:
        name = f"mac-runner-{number:08x}"
        labels = {names.RUNNER_POOL: "mac"}
        await self.admin.create(
            SERVICE_ACCOUNTS, {"metadata": {"name": name, "labels": labels}}, namespace=SPACE
        )
        body = {
            "metadata": {"name": name, "labels": labels | {names.RUNNER: "true"}},
            "spec": {
                "serviceAccountName": name,
                "containers": [{"name": "runner", "image": "vm:1"}],
            },
        }
        made = await self.admin.create(PODS, body, namespace=SPACE)
        uid = made["metadata"]["uid"]
        token = await self.admin.create_token(
            name,
            namespace=SPACE,
            audience=names.DISPATCH_AUDIENCE,
            seconds=86400,
            pod_name=name,
            pod_uid=uid,
        )
        return Guest(name, uid, token)


async def ask(url: str, method: str, path: str, body: bytes = b"", **headers: str) -> Response:
    """One request to a server."""
    way = HttpTransport(url)
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    try:
        got = await way.send(
            Request(method=method, path=path, headers=named, body=body), timeout=SOON
        )
        assert isinstance(got, Response)
        return got
    finally:
        await way.close()


async def poll(url: str, guest: Guest, *, wait: float = 25.0) -> Response:
    """A runner asks for work."""
    return await ask(
        url, "POST", DISPATCH, b"{}", authorization=f"Bearer {guest.token}", prefer=f"wait={wait}"
    )


def play(
    scenario: Callable[[Yard], Awaitable[None]], folder: Path, database_url: str, keys: KeyPair
) -> None:
    """Run a scenario in a fresh yard."""

    async def main() -> None:
        async with Yard(folder, database_url=database_url, keys=keys).open() as yard:
            await scenario(yard)

    asyncio.run(main())
