"""A dashboard on a real socket, between a real Postgres and the embedded Kubernetes API; time is real."""

import asyncio
import contextlib
import functools
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import psycopg

from runyard.clock import RealClock
from runyard.components import server
from runyard.db.pooled import open_pool
from runyard.dispatch.deps import Deps
from runyard.dispatch.matching.values import Matching
from runyard.dispatch.settings import Settings as Dispatching
from runyard.embedded.github.identity import KeyPair, generate_key_pair
from runyard.embedded.kube.core import KubeCore
from runyard.github.app import AppAuth
from runyard.http.addresses import is_loopback
from runyard.http.client import HttpTransport
from runyard.http.errors import NotSent
from runyard.http.loopback import Loopback
from runyard.http.messages import Request, Response, Stream
from runyard.http.routes import Routes
from runyard.http.server import listen
from runyard.kube.client import Kube
from runyard.kube.kinds import NODES, PODS, RUNNER_POOLS
from runyard.telemetry.conditions import ALL
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.log import get_logger
from runyard.telemetry.meter import Meter
from runyard.web.dashboard import Dashboard, DashboardDeps
from runyard.web.explain.explainer import Dispatch
from runyard.web.settings import Settings
from runyard.wire import names
from runyard.wire.instants import to_rfc3339
from runyard.wire.login import LOGIN_LINKS

SPACE = names.RUNNERS_NAMESPACE
EVIL = '<script>alert(1)</script>"><img src=x onerror=alert(2)>'
REFUSED = "connection refused"
TOKEN = "correct-horse-battery-staple"
QUICK = Settings(token=TOKEN, every=0.05, cluster_every=0.05, patience=20.0)


class Line:
    """The line to Kubernetes: it can be cut, can hang, and counts."""

    def __init__(self, core: KubeCore) -> None:
        self._onward = Loopback(core.handle)
        self.cut = False
        self.hang = False
        self.asked = 0

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        self.asked += 1
        if self.cut:
            raise NotSent(REFUSED)
        if self.hang:
            await asyncio.Event().wait()
        return await self._onward.send(request, timeout=timeout)


class Site:
    """The dashboard, what it stands on, and a browser's view of it."""

    def __init__(self, url: str, dashboard: Dashboard, line: Line, core: KubeCore) -> None:
        self.database_url = url
        self.dashboard = dashboard
        self.line = line
        self.admin = Kube(Loopback(core.handle))
        self.url = ""
        self.transport = HttpTransport("http://127.0.0.1:1")
        self.token = ""  # sent with each request that has no credential of its own
        self.opened: list[Events] = []

    async def get(
        self, path: str, *, query: tuple[tuple[str, str], ...] = (), **headers: str
    ) -> Response:
        answer = await self.send(Request(method="GET", path=path, query=query), **headers)
        assert isinstance(answer, Response)
        return answer

    async def send(self, request: Request, **headers: str) -> Response | Stream:
        if self.token and not {"authorization", "cookie"} & set(headers):
            headers["authorization"] = f"Bearer {self.token}"
        named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
        whole = Request(
            method=request.method,
            path=request.path,
            query=request.query,
            headers=(*request.headers, *named),
            body=request.body,
        )
        return await self.transport.send(whole, timeout=20.0)

    async def login_link(self) -> str:
        """A link that logs one browser in."""
        made = await self.send(Request(method="POST", path=LOGIN_LINKS))
        assert isinstance(made, Response) and made.status == 201, made
        return f"{self.url}{made.json()['path']}"

    async def events(self, *, page: bool = False) -> "Events":
        query = (("view", "page"),) if page else ()
        request = Request(method="GET", path="/api/v1/events", query=query)
        stream = await self.send(request, accept="text/event-stream")
        assert isinstance(stream, Stream), stream
        self.opened.append(Events(stream))
        return self.opened[-1]

    # ── a fleet, by hand ────────────────────────────────────────────────────────────────────────

    def execute(self, sql: str, *params: object) -> None:
        with psycopg.connect(self.database_url, autocommit=True) as link:
            link.execute(sql, params)

    def job(
        self,
        job_id: int,
        *,
        repository: str = "acme/app",
        state: str = "queued",
        name: str = "",
        workflow: str = "",
    ) -> None:
        self.execute(
            "INSERT INTO tenants (tenant, installation_id) VALUES ('acme', 1) ON CONFLICT DO NOTHING"
        )
        self.execute(
            "INSERT INTO jobs (job_id, tenant, repository, labels, state, verified, enqueued_at, look_at,"
            " name, workflow, run_id)"
            " VALUES (%s, 'acme', %s, %s, %s, true, runyard_now(), runyard_now(), %s, %s, 77)",
            job_id,
            repository,
            ["self-hosted", EVIL],
            state,
            name,
            workflow,
        )

    def slot(self, uid: str, name: str, *, pool: str = "mac", state: str = "idle") -> None:
        self.execute(
            "INSERT INTO slots (pod_uid, pod_name, pool, generation, state, deadline, last_beat, opened_at)"
            " VALUES (%s, %s, %s, 1, %s, runyard_now(), runyard_now(), runyard_now())",
            uid,
            name,
            pool,
            state,
        )

    async def pool(self, name: str = "mac", **spec: Any) -> None:
        body = {
            "image": "vm:1",
            "fleetSelector": "f",
            "dispatchLabel": "mac",
            "runnerLabels": ["self-hosted"],
            "replicas": 2,
            **spec,
        }
        whole = {"metadata": {"name": name}, "spec": body}
        await self.admin.create(RUNNER_POOLS, whole, namespace=SPACE)

    async def pod(self, name: str, *, pool: str = "mac", image: str = "vm:1") -> str:
        labels = {names.RUNNER: "true", names.RUNNER_POOL: pool}
        spec = {"containers": [{"name": "runner", "image": image}]}
        body = {"metadata": {"name": name, "labels": labels}, "spec": spec}
        return str((await self.admin.create(PODS, body, namespace=SPACE))["metadata"]["uid"])

    async def host(self, name: str) -> None:
        await self.admin.create(NODES, {"metadata": {"name": name}})
        now = to_rfc3339(RealClock().now())
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": now}
        status = {"conditions": [ready], "allocatable": {"pods": "2"}}
        await self.admin.patch(NODES, name, {"status": status}, subresource="status")


class Events:
    """Reads server-sent events one by one."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._chunks = stream.__aiter__()
        self._text = ""

    async def next(self) -> tuple[str, str]:
        """The name and the data of the next event; comments are skipped."""
        while True:
            while "\n\n" not in self._text:
                self._text += (await anext(self._chunks)).decode()
            block, _, self._text = self._text.partition("\n\n")
            fields = [line.partition(": ") for line in block.splitlines()]
            data = "\n".join(value for name, _, value in fields if name == "data")
            name = next((value for name, _, value in fields if name == "event"), "")
            if name:
                return name, data

    async def until(self, name: str, holds: Callable[[str], bool]) -> str:
        async with asyncio.timeout(20):
            while True:
                found, data = await self.next()
                if found == name and holds(data):
                    return data

    async def close(self) -> None:
        await self._stream.aclose()


@functools.cache
def _key() -> KeyPair:
    return generate_key_pair()


@contextlib.asynccontextmanager
async def site(
    database_url: str, settings: Settings = QUICK, *, reachable: bool = True
) -> AsyncIterator[Site]:
    """A running dashboard; `reachable` False points it to a database that is not there."""
    clock, rng = RealClock(), random.Random(5)
    core = KubeCore(clock=clock, rng=random.Random(1))
    line = Line(core)
    url = database_url if reachable else "host=127.0.0.1 port=1 dbname=none connect_timeout=1"
    async with open_pool(
        url, clock=clock, rng=rng, patience=10.0 if reachable else 0.2
    ) as database:
        deps = Deps(
            name="server",
            # A transport of its own: faults of the dashboard's do not concern it.
            kube=Kube(Loopback(core.handle)),
            github=Loopback(core.handle),  # nobody asks GitHub here
            auth=AppAuth(app_id=1, private_key=_key().private_pem, clock=clock),
            database=database,
            clock=clock,
            rng=rng,
            meter=Meter(),
            log=get_logger("web"),
            settings=Dispatching(webhook_secrets=("x",), seal_key=bytes(32)),
            health=Health(clock, ALL),
            freshness=Freshness(clock),
        )
        wired = server.wire(deps)

        async def look() -> Matching:
            await wired.shared.pools.refresh()
            return await wired.matcher.preview()

        dashboard = Dashboard(
            DashboardDeps(
                database=database,
                kube=Kube(line),
                health=Health(clock, ALL),
                freshness=Freshness(clock),
                clock=clock,
                rng=rng,
                meter=Meter(),
                log=get_logger("web"),
                settings=settings,
                dispatch=Dispatch(read_matching=look),
            )
        )
        made = Site(database_url, dashboard, line, core)
        routes = Routes("runyard", "0", dashboard.routes(), guard=dashboard.guard)
        listening = await listen(routes.handle)
        made.url = listening.url
        made.token = settings.token if is_loopback(settings.listen) else ""
        made.transport = HttpTransport(listening.url)
        try:
            async with asyncio.TaskGroup() as group:
                running = group.create_task(dashboard.run())
                try:
                    yield made
                finally:
                    for events in made.opened:
                        await events.close()
                    await made.transport.close()
                    running.cancel()
        finally:
            await listening.close()


def visit(
    scenario: Callable[[Site], Awaitable[None]],
    database_url: str,
    settings: Settings = QUICK,
    *,
    reachable: bool = True,
) -> None:
    """Run a scenario against a fresh dashboard."""

    async def main() -> None:
        async with asyncio.timeout(60), site(database_url, settings, reachable=reachable) as made:
            await scenario(made)

    asyncio.run(main())
