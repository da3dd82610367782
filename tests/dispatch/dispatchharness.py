"""Runs a whole dispatch server with an embedded Kubernetes API, a practice GitHub and a real Postgres.

Time is virtual. The server either runs as in production (`running`), or its loops are stepped by hand. A test can
change each request to Kubernetes and GitHub.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import msgspec
import psycopg
from psycopg.rows import dict_row

from runyard.clock import Clock
from runyard.components import server
from runyard.db.contract import Database, Tx
from runyard.db.inline import InlineDatabase
from runyard.dispatch.deps import Deps
from runyard.dispatch.machine.changes import Context
from runyard.dispatch.settings import Limit, Settings
from runyard.dispatch.store import Store
from runyard.embedded.github.core import GithubCore, PracticeApp
from runyard.embedded.github.deliveries import Delivery
from runyard.embedded.github.identity import KeyPair
from runyard.embedded.kube.core import KubeCore
from runyard.github.app import AppAuth
from runyard.http.loopback import Loopback
from runyard.http.messages import Request, Response, Stream
from runyard.kube.client import Kube
from runyard.kube.kinds import PODS, RUNNER_POOLS, SERVICE_ACCOUNTS
from runyard.sim.clock import VirtualClock
from runyard.sim.loop import run_virtual
from runyard.telemetry import conditions
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.log import get_logger
from runyard.telemetry.meter import Meter
from runyard.wire import names
from runyard.wire.paths import DISPATCH, GITHUB_WEBHOOK, POD_STOPPED

T = TypeVar("T")
Onward = Callable[[], Awaitable[Response | Stream]]
Tamper = Callable[[Request, Onward], Awaitable[Response | Stream]]

APP_ID = 77
SECRET = "hush"
SPACE = names.RUNNERS_NAMESPACE
LABELS = ("self-hosted", "macOS", "shape-mac")
BIG = (
    Limit(platform="macos", vcpus=80, memory_gb=200),
    Limit(platform="linux", vcpus=80, memory_gb=200),
)


class Wire:
    """A transport that records requests and lets a test change them."""

    def __init__(self, handler: Callable[[Request], Awaitable[Response | Stream]]) -> None:
        self._handler = handler
        self.requests: list[Request] = []
        self.tamper: Tamper | None = None

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        self.requests.append(request)

        async def onward() -> Response | Stream:
            return await Loopback(self._handler).send(request, timeout=timeout)

        return await (onward() if self.tamper is None else self.tamper(request, onward))


class Lines(list[dict[str, Any]]):
    """Collects log lines for assertions."""

    def write(self, event: str, **fields: Any) -> None:
        self.append({"event": event, **fields})

    debug = info = warning = error = critical = write


class Guest(msgspec.Struct, frozen=True):
    """A runner Pod and its token."""

    name: str
    uid: str
    token: str


class Between:
    """A database that runs something else before a transaction, to simulate concurrency."""

    def __init__(self, database: Database, happens: Callable[[str], Awaitable[None]]) -> None:
        self._database = database
        self._happens = happens

    async def transact(self, work: Callable[[Tx], Awaitable[T]], *, name: str) -> T:
        await self._happens(name)
        return await self._database.transact(work, name=name)


class Harness:
    """One server and its dependencies."""

    def __init__(
        self,
        url: str,
        keys: KeyPair,
        *,
        clock: Clock | None = None,
        log: Lines | None = None,
        **changes: Any,
    ) -> None:
        self.url = url
        self.keys = keys
        self.clock = clock or VirtualClock()
        self.settings = Settings(
            **{
                "webhook_secrets": (SECRET,),
                "seal_key": bytes(range(32)),
                "default_limits": BIG,
                **changes,
            }
        )
        self.kube = KubeCore(clock=self.clock, rng=random.Random(1))
        self.github = GithubCore(
            clock=self.clock,
            rng=random.Random(2),
            app=PracticeApp(app_id=APP_ID, public_key=keys.public_pem, webhook_secret=SECRET),
            deliver=self._deliver,
        )
        self.acme = self.github.install("acme")
        self.mona = self.github.install("mona", kind="User")
        for repo in ("acme/app", "acme/lib", "mona/dots"):
            self.github.add_repo(repo)
        self.admin = Kube(Loopback(self.kube.handle))
        self.kube_wire, self.github_wire = Wire(self.kube.handle), Wire(self.github.handle)
        self.database = InlineDatabase(url, clock=self.clock)
        self.meter = Meter()
        self.log: Any = get_logger("dispatch") if log is None else log
        self.server = server.wire(self.deps())
        self.handle: Callable[[Request], Awaitable[Response | Stream]] | None = (
            self.server.intake.api.handle
        )
        self.store = Store(
            self.database, ctx=Context(deadlines=self.settings.deadlines), actor="test"
        )
        self.deliver = True
        self.mints: list[Awaitable[None]] = []
        self._link = psycopg.connect(url, autocommit=True, row_factory=dict_row)

    def deps(self, **changes: Any) -> Deps:
        values: dict[str, Any] = {
            "name": "server-1",
            "kube": Kube(self.kube_wire),
            "github": self.github_wire,
            "auth": AppAuth(app_id=APP_ID, private_key=self.keys.private_pem, clock=self.clock),
            "database": self.database,
            "clock": self.clock,
            "rng": random.Random(3),
            "meter": self.meter,
            "log": self.log,
            "settings": self.settings,
            "health": Health(self.clock, conditions.ALL),
            "freshness": Freshness(self.clock),
        }
        return Deps(**(values | changes))

    def close(self) -> None:
        self.database.close()
        self._link.close()

    # ── the harness ─────────────────────────────────────────────────────────────────────────────

    def listen(self, handler: Callable[[Request], Awaitable[Response | Stream]]) -> None:
        self.handle = handler

    async def _deliver(self, delivery: Delivery) -> int:
        if not self.deliver or self.handle is None:
            return 502
        answer = await self.handle(delivery.request(GITHUB_WEBHOOK))
        return answer.status

    async def pool(self, name: str = "mac", **spec: Any) -> None:
        body = {
            "image": "vm:1",
            "fleetSelector": "f",
            "dispatchLabel": "shape-mac",
            "runnerLabels": ["self-hosted", "macOS"],
            "podCPUMilli": 4000,
            "podMemoryMB": 8192,
        }
        await self.admin.create(
            RUNNER_POOLS, {"metadata": {"name": name}, "spec": body | spec}, namespace=SPACE
        )
        await self.server.shared.pools.refresh()

    async def pod(self, number: int = 1, *, pool: str = "mac", **labels: str) -> Guest:
        name = f"{pool}-runner-{number:08x}"
        member = {names.RUNNER_POOL: pool}
        await self.admin.create(
            SERVICE_ACCOUNTS, {"metadata": {"name": name, "labels": member}}, namespace=SPACE
        )
        return await self.pod_only(name, pool=pool, **labels)

    async def pod_only(self, name: str, *, pool: str = "mac", **labels: str) -> Guest:
        member = {names.RUNNER_POOL: pool, names.RUNNER: "true", **labels}
        made = await self.admin.create(
            PODS,
            {
                "metadata": {"name": name, "labels": member},
                "spec": {
                    "serviceAccountName": name,
                    "containers": [{"name": "runner", "image": "vm:1"}],
                },
            },
            namespace=SPACE,
        )
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

    async def label(self, guest: Guest, **labels: str | None) -> None:
        body = {"metadata": {"labels": labels}}
        await self.admin.patch(PODS, guest.name, body, namespace=SPACE)

    async def end_pod(self, guest: Guest, phase: str = "Succeeded") -> None:
        body = {"status": {"phase": phase}}
        await self.admin.patch(PODS, guest.name, body, namespace=SPACE, subresource="status")

    async def delete_pod(self, guest: Guest) -> None:
        await self.admin.delete(PODS, guest.name, namespace=SPACE, grace=0)

    def stamp(self, guest: Guest) -> str:
        pod = self.kube.find("pods", SPACE, guest.name)
        return (
            "no pod" if pod is None else pod["metadata"].get("labels", {}).get(names.POOL_OWNER, "")
        )

    def queue(self, repo: str = "acme/app", labels: tuple[str, ...] = LABELS, **more: Any) -> int:
        return self.github.queue_job(repo, labels, **more)

    async def queued(self, repo: str = "acme/app", labels: tuple[str, ...] = LABELS) -> int:
        job = self.queue(repo, labels)
        await self.github.settle()
        return job

    # ── speaking to the server ──────────────────────────────────────────────────────────────────

    async def ask(
        self, method: str, path: str, body: bytes = b"", headers: tuple[tuple[str, str], ...] = ()
    ) -> Response:
        assert self.handle is not None
        answer = await self.handle(Request(method=method, path=path, headers=headers, body=body))
        assert isinstance(answer, Response)
        return answer

    async def poll(self, guest: Guest, *, wait: float | None = 0.0) -> Response:
        headers: tuple[tuple[str, str], ...] = (("authorization", f"Bearer {guest.token}"),)
        if wait is not None:
            headers = (*headers, ("prefer", f"wait={wait}"))
        return await self.ask("POST", DISPATCH, b"{}", headers)

    async def report_stopped(self, name: str, token: str) -> Response:
        body = msgspec.json.encode({"pod_name": name, "ended_at": "2026-01-01T00:00:00Z"})
        return await self.ask("POST", POD_STOPPED, body, (("authorization", f"Bearer {token}"),))

    async def controller_token(self, name: str = names.CONTROLLER_ACCOUNT) -> str:
        with contextlib.suppress(Exception):
            await self.admin.create(
                SERVICE_ACCOUNTS, {"metadata": {"name": name}}, namespace=names.CONTROLLER_NAMESPACE
            )
        return await self.admin.create_token(
            name, namespace=names.CONTROLLER_NAMESPACE, audience="", seconds=86400
        )

    # ── stepping by hand ────────────────────────────────────────────────────────────────────────

    async def match(self) -> None:
        """Run one step of the matcher; its mints are collected, not run."""
        await self.server.matcher.step(self.mints.append)

    async def mint(self) -> None:
        while self.mints:
            await self.mints.pop(0)

    @contextlib.asynccontextmanager
    async def waiting(self, *guests: Guest) -> AsyncIterator[list[asyncio.Task[Response]]]:
        """Keep these Pods in a long poll."""
        polls = [asyncio.create_task(self.poll(guest, wait=25.0)) for guest in guests]
        await self.clock.sleep(0.01)
        try:
            yield polls
        finally:
            for poll in polls:
                poll.cancel()
            await asyncio.gather(*polls, return_exceptions=True)

    async def offered(self, guest: Guest, repo: str = "acme/app") -> int:
        """Let the matcher offer a job to a Pod; its mint is collected."""
        job = await self.queued(repo)
        async with self.waiting(guest):
            await self.match()
        assert self.slot(guest)["state"] == "offered"
        return job

    async def armed(self, guest: Guest, repo: str = "acme/app") -> int:
        job = await self.offered(guest, repo)
        await self.mint()
        assert self.slot(guest)["state"] == "armed"
        return job

    async def jit(self, guest: Guest) -> str:
        answer = await self.poll(guest)
        assert answer.status == 200, answer
        return str(answer.json()["encoded_jit_config"])

    @contextlib.asynccontextmanager
    async def running(self, **changes: Any) -> AsyncIterator[None]:
        """Run the server as in production, and the practice GitHub."""
        self.handle = None
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(server.run(self.deps(**changes), ready=self.listen))]
            tasks.append(group.create_task(self.github.run()))
            tasks.append(group.create_task(self.kube.run_controllers()))
            await self.clock.sleep(0.1)
            yield
            for task in tasks:
                task.cancel()

    # ── looking ─────────────────────────────────────────────────────────────────────────────────

    def rows(self, sql: str, *params: object) -> list[dict[str, Any]]:
        return self._link.execute(sql, params).fetchall()

    def execute(self, sql: str, *params: object) -> None:
        self._link.execute(sql, params)

    def slot(self, guest: Guest) -> dict[str, Any]:
        found = self.rows("SELECT * FROM slots WHERE pod_uid = %s", guest.uid)
        return found[0] if found else {}

    def job(self, job_id: int) -> dict[str, Any]:
        found = self.rows("SELECT * FROM jobs WHERE job_id = %s", job_id)
        return found[0] if found else {}

    def overdue(self, guest: Guest) -> None:
        """Let a slot's deadline pass, without an outage."""
        self.execute("UPDATE slots SET deadline = '2020-01-01Z' WHERE pod_uid = %s", guest.uid)
        self.served_long()

    def served_long(self) -> None:
        self.execute(
            "INSERT INTO service (served_since, last_tick) VALUES ('2020-01-01Z', '2100-01-01Z')"
            " ON CONFLICT (singleton) DO UPDATE SET served_since = excluded.served_since,"
            " last_tick = excluded.last_tick"
        )

    def check(self) -> None:
        """Check the invariants of the rows."""
        bound = self.rows("SELECT job_id FROM jobs WHERE state = 'bound' ORDER BY job_id")
        meant = self.rows(
            "SELECT intended_job AS job_id FROM slots s JOIN jobs j ON j.job_id = s.intended_job"
            " WHERE j.state = 'bound' ORDER BY 1"
        )
        assert bound == meant


def play(
    scenario: Callable[[Harness], Awaitable[T]],
    url: str,
    keys: KeyPair,
    *,
    seed: int = 0,
    **changes: Any,
) -> T:
    """Run a scenario in a fresh harness."""

    async def main() -> T:
        harness = Harness(url, keys, **changes)
        try:
            result = await scenario(harness)
            harness.check()
            assert not harness.kube.failures
            assert not harness.github.internal_errors
            return result
        finally:
            for mint in harness.mints:
                mint.close()  # type: ignore[attr-defined]  # coroutines, in truth
            harness.close()

    return run_virtual(main(), seed=seed)
