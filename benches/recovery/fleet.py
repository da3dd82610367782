"""A small fleet around real server processes: everything except the servers and Postgres runs in this process.

     users ─▶ practice GitHub ══ webhooks ══▶ runyard server (processes) ──▶ Postgres (real)
                   ▲   ▲────────── HTTP ──────────┘ │  ▲  ▲
                   │                                │  │  └─ operator (the real one)
                guests ◀── Pods ── Kubernetes API ◀─┘  │        (the embedded core, over HTTP, with the shipped roles)
                   └──────────────── HTTP polls ───────┘

The clock is real and every deadline has its default, unless `flags` change it.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import psycopg
from benches.recovery.hosts import SPACE, Hosts
from benches.recovery.servers import LoadBalancer, Server
from psycopg.rows import dict_row

from runyard.clock import RealClock
from runyard.components import operator
from runyard.embedded.github.core import GithubCore, PracticeApp
from runyard.embedded.github.deliveries import Delivery
from runyard.embedded.github.identity import KeyPair
from runyard.embedded.github.webhook_sender import webhook_sender
from runyard.embedded.kube.access.login import authenticator
from runyard.embedded.kube.core import KubeCore, Security
from runyard.embedded.kube.kubeconfig import render
from runyard.embedded.kube.settings import Settings as KubeSettings
from runyard.embedded.up.accounts import grant
from runyard.http.errors import OutcomeUnknown
from runyard.http.loopback import Loopback
from runyard.http.messages import Request, Response, Stream, Transport
from runyard.http.server import listen
from runyard.kube.client import Kube
from runyard.kube.kinds import NODES, PODS, RUNNER_POOLS, SERVICE_ACCOUNTS
from runyard.kube.objects import Pod, ServiceAccount
from runyard.pools.deps import Deps as OperatorDeps
from runyard.pools.settings import Settings as PoolSettings
from runyard.telemetry import conditions
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.log import get_logger
from runyard.telemetry.meter import Meter
from runyard.wire import names, rights
from runyard.wire.paths import DISPATCH

APP_ID = 4711
ADMIN = "the-administrator-of-this-fleet"
SECRET = "the-secret-of-this-webhook"
LABEL = "fleet"
TENANT = "acme"
REPO = "acme/app"
RUNNER = (1, 1)  # virtual processors and GB of memory
_DAY = 86400


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a fleet."""

    servers: int = 1
    replicas: int = 4
    tenants: tuple[str, ...] = (TENANT,)
    operated: bool = True  # with operator and hosts; otherwise the caller creates Pods


class Fleet:
    """One fleet; created by `fleet`."""

    def __init__(
        self, folder: Path, *, database: str, key: KeyPair, sizes: Sizes, seed: str
    ) -> None:
        self.folder, self.database, self.sizes = folder, database, sizes
        self.clock = RealClock()
        self.rng = random.Random(seed)
        self.key = key
        self.servers: list[Server] = []
        self.jobs: list[int] = []
        self.installations: dict[str, int] = {}
        self.last: list[str] = []  # what last kept the fleet from settling
        self.running: asyncio.Future[None] | None = None  # the task of `run`
        self.wakeup = asyncio.Event()  # set by every write to the API
        self.drop_delivery: Callable[[Delivery], bool] = lambda _: False
        self.drop_report: Callable[[], bool] = lambda: False
        self.refuse_kube: Callable[[Request], Response | None] = lambda _: None
        self.refuse_github: Callable[[Request], Awaitable[Response | None]] = _lets_pass
        self.kube = KubeCore(
            clock=self.clock,
            rng=random.Random(f"{seed} kube"),
            settings=KubeSettings(schedule=False),
            on_write=self._written,
            security=Security(rbac=True),
        )
        self.kube.guard(authenticator((ADMIN,), self.kube.tokens))
        self.github = GithubCore(
            clock=self.clock,
            rng=random.Random(f"{seed} github"),
            app=PracticeApp(app_id=APP_ID, public_key=key.public_pem, webhook_secret=SECRET),
            deliver=self._deliver,
        )
        self.admin = Kube(Loopback(self.kube.handle), token=lambda: ADMIN)
        self._carry = webhook_sender(LoadBalancer(self.servers, patience=8.0))
        polls = LoadBalancer(self.servers, patience=0.0)
        self.hosts = Hosts(
            self.admin,
            polls,
            github=self.github,
            wakeup=self.wakeup,
            clock=self.clock,
            rng=self.rng,
        )

    # ── setting up ──────────────────────────────────────────────────────────────────────────────

    async def create_objects(
        self,
        stack: contextlib.AsyncExitStack,
        *,
        flags: tuple[str, ...],
        deadlines: dict[str, float],
    ) -> None:
        """Create accounts, roles, the pool, tenants, sockets, and the commands of the servers."""
        await grant(self.admin, (rights.SERVER, rights.OPERATOR))
        tokens = {}
        for account in (rights.SERVER_ACCOUNT, names.CONTROLLER_ACCOUNT):
            space = names.CONTROLLER_NAMESPACE
            await self.admin.create(
                SERVICE_ACCOUNTS, {"metadata": {"name": account}}, namespace=space
            )
            tokens[account] = await self.admin.create_token(
                account, namespace=space, audience="", seconds=_DAY
            )
        await self.admin.create(NODES, {"metadata": {"name": "host"}})
        self.operator_token = tokens[names.CONTROLLER_ACCOUNT]
        for tenant in self.sizes.tenants:
            self.installations[tenant] = self.github.install(tenant)
            self.github.add_repo(f"{tenant}/app")
        kube = await listen(self._kube_hears)
        github = await listen(self._github_hears)
        stack.push_async_callback(kube.close)
        stack.push_async_callback(github.close)
        files = {
            "kubeconfig": render(kube.url, token=tokens[rights.SERVER_ACCOUNT]),
            "database": self.database,
            "app.pem": self.key.private_pem,
            "secret": SECRET,
            "seal": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
        }
        for name, text in files.items():
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o600)
        flags = (*self._flags(github.url), *flags)
        for number in range(1, self.sizes.servers + 1):
            server = Server(f"server-{number}", self.folder, flags, deadlines=deadlines)
            self.servers.append(server)
            stack.push_async_callback(self.servers[-1].end)
        await self.admin.create(RUNNER_POOLS, self._pool(), namespace=SPACE)

    def _flags(self, github_url: str) -> tuple[str, ...]:
        folder = self.folder
        return (
            *("--database-url-file", str(folder / "database")),
            *("--kubeconfig", str(folder / "kubeconfig")),
            *("--github-url", github_url),
            *("--github-app-id", str(APP_ID)),
            *("--github-key-file", str(folder / "app.pem")),
            *("--webhook-secret-file", str(folder / "secret")),
            *("--seal-key-file", str(folder / "seal")),
        )

    def _pool(self) -> dict[str, Any]:
        spec = {
            "image": "registry.example/runner-macos@sha256:" + "1" * 64,
            "fleetSelector": "hosts",
            "dispatchLabel": LABEL,
            "runnerLabels": ["self-hosted", "macOS"],
            "replicas": self.sizes.replicas,
            "os": "darwin",
            "podCPUMilli": RUNNER[0] * 1000,
            "podMemoryMB": RUNNER[1] * 1024,
        }
        return {"metadata": {"name": "pool"}, "spec": spec}

    async def run(self) -> None:
        """Run everything except the servers, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.github.run())
            group.create_task(self.hosts.run())
            group.create_task(self._operate())

    async def nothing(self) -> None:
        """Do nothing instead of `run`, for a caller that replaces it."""
        await asyncio.Event().wait()

    async def _operate(self) -> None:
        await operator.run(
            OperatorDeps(
                clock=self.clock,
                rng=random.Random(self.rng.random()),
                kube=Kube(Loopback(self.kube.handle), token=lambda: self.operator_token),
                server=_Reports(self, LoadBalancer(self.servers, patience=4.0)),
                meter=Meter(),
                log=get_logger("operator"),
                settings=PoolSettings(dispatch_url=f"http://127.0.0.1{DISPATCH}"),
                health=Health(self.clock, conditions.ALL),
                freshness=Freshness(self.clock),
                token=lambda: self.operator_token,
            )
        )

    # ── lines ───────────────────────────────────────────────────────────────────────────────────

    def _written(self, *_: str) -> None:
        self.wakeup.set()

    async def _kube_hears(self, request: Request) -> Response | Stream:
        return self.refuse_kube(request) or await self.kube.handle(request)

    async def _github_hears(self, request: Request) -> Response | Stream:
        return await self.refuse_github(request) or await self.github.handle(request)

    async def _deliver(self, delivery: Delivery) -> int:
        if self.drop_delivery(delivery):
            raise OutcomeUnknown("lost on its way")
        return await self._carry(delivery)

    # ── work ────────────────────────────────────────────────────────────────────────────────────

    def queue(self, *, seconds: float, tenant: str = TENANT) -> int:
        job = self.github.queue_job(f"{tenant}/app", ("self-hosted", LABEL), duration=seconds)
        self.jobs.append(job)
        return job

    async def pods(self) -> tuple[Pod, ...]:
        return tuple(await self.admin.list_as(PODS, Pod, namespace=SPACE))

    async def accounts(self) -> tuple[str, ...]:
        found = await self.admin.list_as(SERVICE_ACCOUNTS, ServiceAccount, namespace=SPACE)
        mine = [each.metadata for each in found if names.RUNNER_POOL in each.metadata.labels]
        return tuple(sorted(meta.name for meta in mine))

    async def sql(self, statement: str) -> list[dict[str, Any]]:
        link = await psycopg.AsyncConnection.connect(
            self.database, autocommit=True, row_factory=dict_row
        )
        async with link:
            cursor = await link.execute(statement)
            return await cursor.fetchall() if cursor.description else []


async def _lets_pass(request: Request) -> Response | None:
    return None


class _Reports:
    """The operator's connection to the server; it can lose stop reports."""

    def __init__(self, fleet: Fleet, inner: Transport) -> None:
        self._fleet = fleet
        self._inner = inner

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        if request.method == "POST" and self._fleet.drop_report():
            return Response(status=204)
        return await self._inner.send(request, timeout=timeout)


@contextlib.asynccontextmanager
async def fleet(
    folder: Path,
    *,
    database: str,
    key: KeyPair,
    sizes: Sizes | None = None,
    flags: tuple[str, ...] = (),
    deadlines: dict[str, float] | None = None,
    seed: str = "1",
) -> AsyncIterator[Fleet]:
    """Run a fleet with its servers; `deadlines` replace defaults of the state machine."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Fleet(folder, database=database, key=key, sizes=sizes or Sizes(), seed=seed)
    async with contextlib.AsyncExitStack() as stack:
        await made.create_objects(stack, flags=flags, deadlines=deadlines or {})
        for server in made.servers:
            server.start()
        for server in made.servers:
            await server.ready()
        world = made.run() if made.sizes.operated else made.nothing()
        running = made.running = asyncio.ensure_future(world)
        try:
            yield made
        finally:
            made.hosts.ended = True
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
