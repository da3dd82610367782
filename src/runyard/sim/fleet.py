"""The whole fleet in one process: every part as it is shipped, on one virtual clock.

    people ─▶ GitHub ══▶ servers (2) ──▶ Postgres (real)         ══ webhooks through a line of their own
                ▲  ▲        │  ▲  ▲
                │  └────────┘  │  └── operator ──▶ Kubernetes API ◀── agents (one a host)
                └── guests ────┘                                        └── VMs ─▶ guests

Every arrow is a `Link` with faults of its own, every effect of a part passes through its `Process`, and so
every effect is a place where it can be killed. The parts share nothing else. The world around them (the API
server's store, GitHub, Postgres, the machines) keeps what it was told when a part dies.

Each component draws from a generator of its own, derived from the run's number and the component's name, so
that one fault more does not reshuffle everything else at once.
"""

import asyncio
import random
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from pathlib import Path
from typing import Any

import msgspec

from runyard.db.inline import InlineDatabase
from runyard.embedded.github.core import GithubCore
from runyard.embedded.github.deliveries import Delivery
from runyard.embedded.github.identity import KeyPair
from runyard.embedded.kube.core import KubeCore
from runyard.http.errors import TransportError
from runyard.http.loopback import Loopback
from runyard.http.messages import Handler, Request, Response, Stream
from runyard.kube.client import Kube
from runyard.kube.kinds import NODES, RUNNER_POOLS, SERVICE_ACCOUNTS
from runyard.parts import operator, server
from runyard.parts.reporting import ReportingTransport
from runyard.sim import seams
from runyard.sim.books import Books
from runyard.sim.callers import Callers
from runyard.sim.clock import VirtualClock
from runyard.sim.faults import Weather
from runyard.sim.guest import Fate, Guest, GuestView
from runyard.sim.hosts import HostDriver, HostRecords, SimHost
from runyard.sim.invariants import Invariants
from runyard.sim.liveness import LOOK_EVERY, Liveness
from runyard.sim.loop import VirtualLoop
from runyard.sim.network import NO_FAULTS, Faults, Link
from runyard.sim.orders import (
    OPERATOR,
    SECRET,
    node_settings,
    pool_body,
    server_guards,
    server_settings,
)
from runyard.sim.process import Process, wrap_database, wrap_transport
from runyard.sim.replicas import Balancer, Replica
from runyard.sim.shape import PLATFORM, Shape
from runyard.sim.trace import Trace
from runyard.telemetry import conditions
from runyard.telemetry.health import Health
from runyard.telemetry.log import get_logger
from runyard.telemetry.meter import Meter
from runyard.wire import names
from runyard.wire.paths import DISPATCH, GITHUB_WEBHOOK, POD_STOPPED

SPACE = names.RUNNERS_NAMESPACE
APP_ID = 4711
LATENCY = Faults(latency=(0.001, 0.01))
OUTSIDE = Faults(latency=(0.02, 0.08))  # to and from GitHub
RESTART = {"agent": (2.0, 10.0), "operator": (1.0, 8.0), "server": (2.0, 12.0), "kube": (5.0, 5.0)}
WEBHOOK_TIMEOUT = 9.9  # just before GitHub itself gives up, so that losses are counted
TEN_YEARS = 10 * 365 * 86400


class Fleet:
    """Everything of one run. Made inside of a running virtual loop; `start` it once."""

    def __init__(
        self, shape: Shape, *, conninfo: str, directory: Path, key: KeyPair, trace: Trace
    ) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.loop = loop
        self.shape = shape
        self.trace = trace
        self.clock = VirtualClock()
        self.rng = self.chance("fleet")
        self.counts: Counter[str] = Counter()
        self.requests: Counter[str] = Counter()  # at the Kubernetes API, by client
        self.story: deque[tuple[float, str]] = deque(maxlen=200)
        self.meters: dict[str, list[Meter]] = {"server": [], "operator": [], "agent": []}
        self.guests: dict[str, GuestView] = {}
        self.pollers: dict[str, GuestView] = {}  # by token
        self.runners: dict[str, str] = {}  # runner name → uid of its Pod
        self.hit: dict[str, str] = {}  # Pod uid → the fault that may have broken its runner
        self.disturbed: Counter[str] = Counter()  # faults that are going on now
        self.calm_since = 0.0
        self.restarts = True
        self.rest_seconds = 0.0
        self.weather = Weather()
        self.lose_webhook: Callable[[Delivery], bool] | None = None
        self.deaf_to_stops = "stop_reports_are_heard" in shape.off
        self.watchdog_yields = "watchdog_yields" not in shape.off
        self._background: list[asyncio.Task[object]] = []
        self._fates: dict[Fate, int] = {}
        self._directory = directory
        self._key = key
        self._conninfo = conninfo
        self._databases: list[InlineDatabase] = []
        self._tasks: asyncio.TaskGroup | None = None
        self.links: list[Link] = []
        self._make_world(key)
        self._draw_lines()

    # ── setting up ──────────────────────────────────────────────────────────────────────────────

    def _make_world(self, key: KeyPair) -> None:
        """What is there before any part runs, and whoever looks on."""
        self.callers = Callers()
        self.kube = KubeCore(
            clock=self.clock,
            rng=self.chance("kube"),
            on_write=self._on_kube_write,
            authenticate=self.callers.who,
            authorize=self.callers.decide,
        )
        self.github = GithubCore(
            clock=self.clock,
            rng=self.chance("github"),
            app_id=APP_ID,
            public_key=key.public_pem,
            webhook_secret=SECRET,
            deliver=self.deliver,
            on_event=self._on_github_event,
        )
        self.books = Books(self._open_database(onlooker=True))
        self.invariants = Invariants(
            trace=self.trace,
            books=self.books,
            github=self.github,
            kube=self.kube,
            now=self.clock.monotonic,
            fail=self.loop.fail,
        )

    def _draw_lines(self) -> None:
        """The processes of the parts and every line between them."""
        self.admin = Kube(Loopback(self.kube.handle))
        self.kube_process = Process("kube", trace=self.trace)
        self.replicas = [self._replica(number) for number in range(1, self.shape.replicas + 1)]
        self._webhooks = self._ways("github", OUTSIDE)
        self.webhook_links = [link for _, link in self._webhooks]
        self._webhook_rng = self.chance("webhooks")
        self.operator = Process("operator", trace=self.trace)
        self.operator_kube = self._kube_link("operator")
        self._operator_kube = wrap_transport(self.operator, self.operator_kube, name="kube")
        self._operator_ways = self._ways("operator", LATENCY)
        self._operator_token = ""
        self.hosts: dict[str, SimHost] = {}

    def chance(self, name: str) -> random.Random:
        """A component's own generator."""
        return random.Random(f"{self.shape.seed}/{name}")

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Create the world and start every part."""
        self._tasks = tasks
        self.background(self.github.run(), "github")
        self._start(self.kube_process, self.kube.run_controllers, "kube")
        for tenant in self.shape.tenants:
            self._add_tenant(tenant.name)
        account = {"metadata": {"name": names.CONTROLLER_ACCOUNT}}
        await self.admin.create(SERVICE_ACCOUNTS, account, namespace=names.CONTROLLER_NAMESPACE)
        self._operator_token = await self.admin.create_token(
            names.CONTROLLER_ACCOUNT,
            namespace=names.CONTROLLER_NAMESPACE,
            audience="",  # the API server's own, as an operator's mounted token has
            seconds=TEN_YEARS,
        )
        for number in range(1, self.shape.hosts + 1):
            self.add_host(f"mini-{number}")
        for pool in self.shape.pools:
            await self.admin.create(RUNNER_POOLS, pool_body(self.shape, pool), namespace=SPACE)
        for replica in self.replicas:
            self._start_replica(replica)
        self._start(self.operator, self._run_operator, "operator")
        if self.shape.hours > 0:
            self.background(self._look(), "onlooker")

    async def _look(self) -> None:
        liveness = Liveness(self)
        while True:
            await self.clock.sleep(LOOK_EVERY)
            self.invariants.periodic()
            liveness.look()

    def background(self, work: Coroutine[Any, Any, object], name: str) -> asyncio.Task[object]:
        """Run something of the world, beside the parts."""
        assert self._tasks is not None
        task = self._tasks.create_task(work, name=name, context=Context())
        self._background.append(task)
        return task

    def afterwards(self, work: Coroutine[Any, Any, object], name: str) -> None:
        """The same at the end of something; if the whole run is ending, nothing is left to be done."""
        try:
            self.background(work, name)
        except RuntimeError:
            work.close()

    def stop(self) -> None:
        """The run is over: end the parts, then the world."""
        self.restarts = False
        for host in self.hosts.values():
            host.process.crash()
        for process in (self.operator, *(replica.process for replica in self.replicas)):
            process.crash()
        self.kube_process.crash()
        for task in self._background:
            task.cancel()

    def close(self) -> None:
        """Let go of the database."""
        for database in self._databases:
            database.close()

    def add_host(self, name: str) -> SimHost:
        """Put a machine into the fleet."""
        rng = self.chance(f"host {name}")
        ways = self._ways(f"guests-{name}", LATENCY)
        lines = Balancer(ways, rng=self.chance(f"balancer {name}"))
        records = HostRecords(self._directory / name)
        guest = Guest(self, host=name, server=lines, over=lambda vm: self._is_over(name, vm))
        driver = HostDriver(
            self.clock,
            host=self.shape.machine,
            guest=guest.live,
            on_create=lambda vm: self.invariants.vm_created(name, vm, vm in records.vms.values()),
            on_start=lambda vm, times: self.invariants.vm_started(name, vm, times),
        )
        host = SimHost(
            name,
            settings=node_settings(self.shape, name, number=len(self.hosts)),
            driver=driver,
            records=records,
            kube=self._kube_link(f"agent-{name}"),
            lines=tuple(link for _, link in ways),
            trace=self.trace,
            rng=rng,
            meters=self.meters["agent"],
        )
        self.hosts[name] = host
        self._supervise(host.process, "agent", lambda: host.may_run)
        host.process.start(host.agent)
        return host

    async def replace_host(self, name: str) -> None:
        """The machine will not come back: whoever owns the fleet removes its Node and adds another."""
        host = self.hosts.pop(name)
        host.power_off()
        host.gone = True
        self.tell(f"{name} is gone for good and replaced")
        self.calm_since = self.clock.monotonic()
        await self.admin.delete(NODES, name)
        self.add_host(f"{name}x")

    def _replica(self, number: int) -> Replica:
        name = f"server-{number}"
        replica = Replica(name, trace=self.trace, clock=self.clock, watch=self._watch_server)
        database = wrap_database(replica.process, self._open_database())
        kube = wrap_transport(replica.process, self._kube_link(name), name="kube")
        link = self._link(f"{name}>github", self._github_hears, OUTSIDE)
        github = wrap_transport(replica.process, link, name="github")
        rng = self.chance(name)

        async def main() -> None:
            meter = Meter()
            self.meters["server"].append(meter)
            replica.health = health = Health(self.clock, conditions.ALL)
            senses = ReportingTransport(
                github,
                health,
                unreachable=conditions.GITHUB_UNREACHABLE,
                refused=conditions.GITHUB_REFUSED,
            )
            await server.run(
                server.ServerDeps(
                    clock=self.clock,
                    rng=random.Random(rng.getrandbits(64)),
                    kube=kube,
                    token=lambda: "",
                    github=senses,
                    app_id=APP_ID,
                    app_key=self._key.private_pem,
                    database=database,
                    meter=meter,
                    log=get_logger("server", replica=name),
                    settings=server_settings(self.shape),
                    guards=server_guards(self.shape),
                    name=name,
                    listen=replica.listen,
                )
            )

        replica.main = main
        return replica

    async def _run_operator(self) -> None:
        meter = Meter()
        self.meters["operator"].append(meter)
        lines = Balancer(self._operator_ways, rng=self.chance(f"operator {self.operator.starts}"))
        await operator.run(
            operator.OperatorDeps(
                clock=self.clock,
                rng=self.chance(f"operator's own {self.operator.starts}"),
                kube=self._operator_kube,
                server=wrap_transport(self.operator, lines, name="server"),
                meter=meter,
                log=get_logger("operator"),
                settings=OPERATOR,
                token=lambda: self._operator_token,
            )
        )

    def _add_tenant(self, name: str) -> None:
        tenant = next(each for each in self.shape.tenants if each.name == name)
        installation = self.github.install(name, kind=tenant.kind)
        for repository in tenant.repositories:
            self.github.add_repo(f"{name}/{repository}")
        self.books.add_tenant(
            name,
            installation_id=installation,
            platform=PLATFORM,
            vcpus=tenant.vcpus,
            memory_gb=tenant.memory_gb,
        )

    # ── lines and processes ─────────────────────────────────────────────────────────────────────

    async def _github_hears(self, request: Request) -> Response | Stream:
        self.invariants.asked_github(request)
        return seams.heard(self.shape.off, request, await self.github.handle(request))

    def _link(
        self, name: str, handler: Handler, faults: Faults, server: Process | None = None
    ) -> Link:
        link = Link(
            name,
            handler,
            rng=self.chance(f"link {name}"),
            trace=self.trace,
            server=server,
            faults=faults,
        )
        self.links.append(link)
        return link

    def _kube_link(self, client: str) -> Link:
        self.callers.add(client)

        async def handle(request: Request) -> Response | Stream:
            self.requests[client.partition("-")[0]] += 1
            busy = self.invariants.deletes_busy(client, request)
            self.callers.asking = client
            try:
                answer = await self.kube.handle(request)
            finally:
                self.callers.asking = ""
            if busy and answer.status < 300:
                self.invariants.deleted_busy(client, busy)
            return answer

        return self._link(f"{client}>kube", handle, LATENCY, self.kube_process)

    def _ways(self, client: str, faults: Faults) -> tuple[tuple[Replica, Link], ...]:
        ways = []
        for replica in self.replicas:
            rng = self.chance(f"link {client} {replica.name}")
            link = replica.link(client, rng=rng, trace=self.trace, faults=faults)
            self.links.append(link)
            ways.append((replica, link))
        return tuple(ways)

    def _start(
        self, process: Process, main: Callable[[], Coroutine[Any, Any, object]], kind: str
    ) -> None:
        self._supervise(process, kind, lambda: True)
        process.start(main)

    def _start_replica(self, replica: Replica) -> None:
        assert replica.main is not None
        self._start(replica.process, replica.main, "server")

    def _supervise(self, process: Process, kind: str, may_run: Callable[[], bool]) -> None:
        """Start a part again after its death, a little later."""
        rng = self.chance(f"supervisor of {process.name}")

        def died() -> None:
            self.counts[f"crashes of {kind}"] += self.restarts  # the end of the run is no crash
            self.loop.call_later(rng.uniform(*RESTART[kind]), again, context=Context())

        def again() -> None:
            if not process.alive and self.restarts and may_run():
                process.restart()

        process.on_crash(died)

    def _open_database(self, *, onlooker: bool = False) -> InlineDatabase:
        database = InlineDatabase(self._conninfo, clock=self.clock)
        self._databases.append(database)
        if not onlooker:
            database.before = self._before_transaction
            database.after_commit = lambda name, wrote: self._after_commit(database, name, wrote)
            database.look = self.books.look
        return database

    def open_database(self) -> InlineDatabase:
        """One more connection of the servers' kind: it is away when theirs are."""
        return self._open_database()

    def open_kube(self) -> Link:
        """One more line of the servers' kind to the Kubernetes API: cut when theirs are, and without delay."""
        link = self._kube_link("server-somebody")
        link.faults = NO_FAULTS
        return link

    @property
    def app_key(self) -> str:
        """The App's private key."""
        return self._key.private_pem

    @property
    def databases(self) -> list[InlineDatabase]:
        """The connections of the servers; the first one is the onlooker's and never fails."""
        return self._databases[1:]

    # ── what the world tells ────────────────────────────────────────────────────────────────────

    def tell(self, what: str) -> None:
        """Something worth a line in the picture of the run."""
        self.trace.note("story", what)
        self.story.append((self.clock.monotonic(), what))

    def _before_transaction(self, name: str) -> None:
        self.counts["transactions"] += 1

    def _after_commit(self, database: InlineDatabase, name: str, wrote: bool) -> None:
        if wrote:
            self.invariants.committed(name, database.looked)

    def _on_kube_write(self, verb: str, kind: str, key: str, uid: str) -> None:
        if hasattr(self, "invariants"):
            self.invariants.wrote(verb, kind, key, uid)

    def _on_github_event(self, what: str, detail: dict[str, Any]) -> None:
        self.counts[f"github {what}"] += 1
        self.invariants.happened(what, detail)
        if what == "job" and detail["what"] == "completed:failure":
            self._failed(detail["job"], str(detail["runner"]))

    def _failed(self, job: int, runner: str) -> None:
        """A job failed: then a fault must have hit its runner, for jobs themselves never fail here."""
        why = self.hit.get(self.runners.get(runner, ""), "")
        self.tell(f"job {job} failed on {runner}: {why or 'without a reason'}")
        if not why:
            self.invariants.violated(f"job {job} failed on {runner}, which no fault had hit")

    async def deliver(self, delivery: Delivery) -> int:
        """Carry a webhook to some server."""
        self.counts["webhooks"] += 1
        if self.lose_webhook is not None and self.lose_webhook(delivery):
            self.counts["webhooks lost"] += 1
            return 502
        up = [link for replica, link in self._webhooks if replica.seems_up]
        link = self._webhook_rng.choice(up or [link for _, link in self._webhooks])
        try:
            answer = await link.send(delivery.request(GITHUB_WEBHOOK), timeout=WEBHOOK_TIMEOUT)
        except TransportError:
            self.counts["webhooks lost"] += 1
            return 502
        return answer.status

    async def ask_as_operator(self, request: Request) -> Response | Stream:
        """What the operator's account is told by a server."""
        bearer = ("authorization", f"Bearer {self._operator_token}")
        asked = msgspec.structs.replace(request, headers=(bearer, *request.headers))
        return await self._operator_ways[0][1].send(asked, timeout=WEBHOOK_TIMEOUT)

    def _watch_server(self, replica: str, handler: Handler) -> Handler:
        """Look at the answers that a server gives to guests."""

        async def handle(request: Request) -> Response | Stream:
            if request.path == POD_STOPPED and self.deaf_to_stops:
                return Response(status=204)
            if request.path == GITHUB_WEBHOOK:
                await seams.before_a_webhook(self.shape.off, self.links, replica)
            answer = await handler(request)
            if request.path == DISPATCH and answer.status == 200 and isinstance(answer, Response):
                self._look_at_delivery(request)
            return answer

        return handle

    def _look_at_delivery(self, request: Request) -> None:
        guest = self.pollers.get(request.header("authorization").removeprefix("Bearer "))
        if guest is not None:
            self.invariants.answering(guest.uid, guest.pod)

    # ── guests ──────────────────────────────────────────────────────────────────────────────────

    def break_next(self, kind: Fate) -> None:
        """The next guest that comes to that point breaks there."""
        self._fates[kind] = self._fates.get(kind, 0) + 1

    def mend_guests(self) -> None:
        """No more broken guests from now on."""
        self._fates.clear()

    def fate(self, kind: Fate, guest: GuestView) -> bool:
        """Whether this guest is the one."""
        left = self._fates.get(kind, 0)
        if left <= 0:
            return False
        self._fates[kind] = left - 1
        self.hit[guest.uid] = kind
        self.counts["broken guests"] += 1
        self.tell(f"{guest.pod}: {kind}")
        return True

    def delivered(self, guest: GuestView, jit: str) -> None:
        """A JIT configuration arrived."""
        self.runners[names.runner_name(guest.pod)] = guest.uid
        self.invariants.delivered(guest, jit)

    def die(self, guest: GuestView) -> None:
        """Its VM ends without a word."""
        host = self.hosts.get(guest.host)
        if host is not None:
            host.driver.kill(guest.vm)

    @property
    def github_reachable(self) -> bool:
        """GitHub answers runners."""
        return not self.github.faults.outage

    def _is_over(self, host: str, vm: str) -> bool:
        found = self.hosts.get(host)
        if found is None:
            return True
        view = found.driver.view(vm)
        return view is None or view.state == "exited"

    # ── faults ──────────────────────────────────────────────────────────────────────────────────

    def disturb(self, kind: str) -> None:
        """A fault begins."""
        self.disturbed[kind] += 1
        self.counts["faults"] += 1

    def calm(self, kind: str) -> None:
        """It is over."""
        self.disturbed[kind] -= 1
        if self.disturbed[kind] <= 0:
            del self.disturbed[kind]
        self.calm_since = self.clock.monotonic()

    def hit_host(self, name: str, why: str) -> None:
        """Every runner on this host may fail because of that."""
        for guest in self.guests.values():
            if guest.host == name:
                self.hit[guest.uid] = why
