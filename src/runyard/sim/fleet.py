"""The whole fleet in one process: every component as it is shipped, on one virtual clock.

    users ──▶ GitHub ══▶ servers (2) ──▶ Postgres (real)         ══ webhooks through a link of their own
                ▲  ▲        │  ▲  ▲
                │  └────────┘  │  └── operator ──▶ Kubernetes API ◀── agents (one a host)
                └── guests ────┘                                        └── VMs ─▶ guests

Every arrow is a `Link` with its own faults, every effect of a component passes through its `Process`, and so
every effect is a point where it can be killed. The components share nothing else. What surrounds them (the API
server's store, GitHub, Postgres, the machines) keeps its state when a component dies.

Each component draws from its own generator, derived from the run's seed and the component's name, so
that one more fault does not reshuffle everything else at once.
"""

import asyncio
import random
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from pathlib import Path
from typing import Any

import msgspec

from runyard.components import operator, server
from runyard.db.inline import InlineDatabase
from runyard.dispatch.deps import Deps as ServerDeps
from runyard.embedded.github.core import GithubCore, PracticeApp
from runyard.embedded.github.deliveries import Delivery
from runyard.embedded.github.identity import KeyPair
from runyard.embedded.kube.core import KubeCore, Security
from runyard.github.app import AppAuth
from runyard.http.errors import TransportError
from runyard.http.loopback import Loopback
from runyard.http.messages import Handler, Request, Response, Stream
from runyard.kube.client import Kube
from runyard.kube.kinds import NODES, RUNNER_POOLS, SERVICE_ACCOUNTS
from runyard.pools.deps import Deps as OperatorDeps
from runyard.sim import guard_switches
from runyard.sim.callers import Callers
from runyard.sim.clock import VirtualClock
from runyard.sim.component_settings import (
    OPERATOR,
    SECRET,
    node_settings,
    pool_body,
    server_guards,
    server_settings,
)
from runyard.sim.faults import FaultLayers
from runyard.sim.guest import Fate, Guest, GuestView
from runyard.sim.hosts import Hardware, HostDriver, HostRecords, Links, SimHost
from runyard.sim.invariants import Invariants
from runyard.sim.ledger import Ledger
from runyard.sim.liveness import CHECK_EVERY, Liveness
from runyard.sim.loop import VirtualLoop
from runyard.sim.network import NO_FAULTS, Faults, Link
from runyard.sim.process import Process, wrap_database, wrap_transport
from runyard.sim.replicas import Balancer, Replica
from runyard.sim.shape import PLATFORM, Shape
from runyard.sim.trace import Trace
from runyard.sim.uplink import Uplink
from runyard.sim.violations import Violated
from runyard.telemetry import conditions
from runyard.telemetry.freshness import Freshness
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
    """All components and the environment of one run. Create it inside a running virtual loop; `start` it once."""

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
        self.fault_layers = FaultLayers()
        self.lose_webhook: Callable[[Delivery], bool] | None = None
        self.ignore_stop_reports = "stop_reports_count" in shape.off
        self.watchdog_yields = "watchdog_yields" not in shape.off
        self._background: list[asyncio.Task[object]] = []
        self._fates: dict[Fate, int] = {}
        self._directory = directory
        self._key = key
        self._conninfo = conninfo
        self._databases: list[InlineDatabase] = []
        self._tasks: asyncio.TaskGroup | None = None
        self.links: list[Link] = []
        self._make_environment(key)
        self._make_links()

    # ── setting up ──────────────────────────────────────────────────────────────────────────────

    def _make_environment(self, key: KeyPair) -> None:
        """Creates what exists before any component runs, and the invariant checks."""
        self.callers = Callers()
        self.kube = KubeCore(
            clock=self.clock,
            rng=self.chance("kube"),
            on_write=self._on_kube_write,
            security=Security(authenticate=self.callers.who, authorize=self.callers.decide),
        )
        self.github = GithubCore(
            clock=self.clock,
            rng=self.chance("github"),
            app=PracticeApp(app_id=APP_ID, public_key=key.public_pem, webhook_secret=SECRET),
            deliver=self.deliver,
            on_event=self._on_github_event,
        )
        self.ledger = Ledger(self._open_database(onlooker=True))
        self.invariants = Invariants(
            trace=self.trace,
            ledger=self.ledger,
            github=self.github,
            kube=self.kube,
            now=self.clock.monotonic,
            fail=self.loop.fail,
        )

    def _make_links(self) -> None:
        """Creates the processes of the components and every link between them."""
        self.admin = Kube(Loopback(self.kube.handle))
        self.kube_process = Process("kube", trace=self.trace)
        self.replicas = [self._replica(number) for number in range(1, self.shape.replicas + 1)]
        self._webhooks = self._server_links("github", OUTSIDE)
        self.webhook_links = [link for _, link in self._webhooks]
        self._webhook_rng = self.chance("webhooks")
        self.operator = Process("operator", trace=self.trace)
        self.operator_kube = self._kube_link("operator")
        self._operator_kube = wrap_transport(self.operator, self.operator_kube, name="kube")
        self._operator_links = self._server_links("operator", LATENCY)
        self._operator_token = ""
        self.hosts: dict[str, SimHost] = {}
        self.uplink = Uplink(self.clock, bandwidth=self.shape.uplink)

    def chance(self, name: str) -> random.Random:
        """A component's own random generator."""
        return random.Random(f"{self.shape.seed}/{name}")

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Creates the environment and starts every component."""
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
            self.background(self._check_invariants(), "onlooker")

    async def _check_invariants(self) -> None:
        liveness = Liveness(self)
        while True:
            await self.clock.sleep(CHECK_EVERY)
            self.invariants.periodic()
            liveness.check()

    def background(self, work: Coroutine[Any, Any, object], name: str) -> asyncio.Task[object]:
        """Runs something of the environment, beside the components."""
        assert self._tasks is not None
        task = self._tasks.create_task(work, name=name, context=Context())
        self._background.append(task)
        return task

    def afterwards(self, work: Coroutine[Any, Any, object], name: str) -> None:
        """Like `background`, for cleanup after a fault; does nothing if the run is stopping."""
        try:
            self.background(work, name)
        except RuntimeError:
            work.close()

    def stop(self) -> None:
        """Ends the run: the components, then the environment."""
        self.restarts = False
        for host in self.hosts.values():
            host.process.crash()
        for process in (self.operator, *(replica.process for replica in self.replicas)):
            process.crash()
        self.kube_process.crash()
        for task in self._background:
            task.cancel()

    def close(self) -> None:
        """Closes the database."""
        for database in self._databases:
            database.close()

    def add_host(self, name: str) -> SimHost:
        """Adds a machine to the fleet."""
        rng = self.chance(f"host {name}")
        links = self._server_links(f"guests-{name}", LATENCY)
        lines = Balancer(links, rng=self.chance(f"balancer {name}"))
        records = HostRecords(self._directory / name)
        guest = Guest(self, host=name, server=lines, over=lambda vm: self._is_over(name, vm))
        driver = HostDriver(
            self.clock,
            host=self.shape.machine,
            guest=guest.live,
            uplink=self.uplink,
            on_create=lambda vm: self.invariants.vm_created(name, vm, vm in records.vms.values()),
            on_start=lambda vm, times: self.invariants.vm_started(name, vm, times),
        )
        host = SimHost(
            name,
            settings=node_settings(self.shape, name, number=len(self.hosts)),
            hardware=Hardware(driver=driver, records=records),
            links=Links(
                kube=self._kube_link(f"agent-{name}"), lines=tuple(link for _, link in links)
            ),
            trace=self.trace,
            rng=rng,
            meters=self.meters["agent"],
        )
        self.hosts[name] = host
        self._supervise(host.process, "agent", lambda: host.may_run)
        host.process.start(host.agent)
        return host

    async def replace_host(self, name: str) -> None:
        """Replaces a machine that will not come back: removes its Node and adds another, as an operator would."""
        host = self.hosts.pop(name)
        host.power_off()
        host.gone = True
        self.report(f"{name} is gone for good and replaced")
        self.calm_since = self.clock.monotonic()
        await self.admin.delete(NODES, name)
        self.add_host(f"{name}x")

    def _replica(self, number: int) -> Replica:
        name = f"server-{number}"
        replica = Replica(name, trace=self.trace, clock=self.clock, watch=self._watch_server)
        database = wrap_database(replica.process, self._open_database())
        kube = wrap_transport(replica.process, self._kube_link(name), name="kube")
        link = self._link(f"{name}>github", self._github_receives, OUTSIDE)
        github = wrap_transport(replica.process, link, name="github")
        rng = self.chance(name)

        async def main() -> None:
            meter = Meter()
            self.meters["server"].append(meter)
            replica.health = health = Health(self.clock, conditions.ALL)
            await server.run(
                ServerDeps(
                    name=name,
                    kube=Kube(kube),
                    github=github,
                    auth=AppAuth(
                        app_id=APP_ID, private_key=self._key.private_pem, clock=self.clock
                    ),
                    database=database,
                    clock=self.clock,
                    rng=random.Random(rng.getrandbits(64)),
                    meter=meter,
                    log=get_logger("server", replica=name),
                    settings=server_settings(self.shape),
                    health=health,
                    freshness=Freshness(self.clock),
                    guards=server_guards(self.shape),
                ),
                ready=replica.listen,
            )

        replica.main = main
        return replica

    async def _run_operator(self) -> None:
        """Runs one life of the operator, without an election: a Lease would add a fifth to all requests.

        tests/components/test_components_replicas.py runs elected operators under virtual time and with faults.
        """
        meter = Meter()
        self.meters["operator"].append(meter)
        lines = Balancer(self._operator_links, rng=self.chance(f"operator {self.operator.starts}"))
        await operator.run(
            OperatorDeps(
                clock=self.clock,
                rng=self.chance(f"operator's own {self.operator.starts}"),
                kube=Kube(
                    self._operator_kube,
                    agent=names.CONTROLLER_ACCOUNT,
                    token=lambda: self._operator_token,
                ),
                server=wrap_transport(self.operator, lines, name="server"),
                meter=meter,
                log=get_logger("operator"),
                settings=OPERATOR,
                health=Health(self.clock, conditions.ALL),
                freshness=Freshness(self.clock),
                token=lambda: self._operator_token,
            )
        )

    def _add_tenant(self, name: str) -> None:
        tenant = next(each for each in self.shape.tenants if each.name == name)
        installation = self.github.install(name, kind=tenant.kind)
        for repository in tenant.repositories:
            self.github.add_repo(f"{name}/{repository}")
        self.ledger.add_tenant(
            name,
            installation_id=installation,
            platform=PLATFORM,
            vcpus=tenant.vcpus,
            memory_gb=tenant.memory_gb,
        )

    # ── lines and processes ─────────────────────────────────────────────────────────────────────

    async def _github_receives(self, request: Request) -> Response | Stream:
        self.invariants.asked_github(request)
        return guard_switches.github_answer(
            self.shape.off, request, await self.github.handle(request)
        )

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

    def _server_links(self, client: str, faults: Faults) -> tuple[tuple[Replica, Link], ...]:
        links = []
        for replica in self.replicas:
            rng = self.chance(f"link {client} {replica.name}")
            link = replica.link(client, rng=rng, trace=self.trace, faults=faults)
            self.links.append(link)
            links.append((replica, link))
        return tuple(links)

    def _start(
        self, process: Process, main: Callable[[], Coroutine[Any, Any, object]], kind: str
    ) -> None:
        self._supervise(process, kind, lambda: True)
        process.start(main)

    def _start_replica(self, replica: Replica) -> None:
        assert replica.main is not None
        self._start(replica.process, replica.main, "server")

    def _supervise(self, process: Process, kind: str, may_run: Callable[[], bool]) -> None:
        """Restarts a component after its death, a little later."""
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
            database.after_commit_query = self.ledger.new_entries
        return database

    def open_database(self) -> InlineDatabase:
        """One more connection like the servers': it fails when theirs do."""
        return self._open_database()

    def open_kube(self) -> Link:
        """One more link like the servers' to the Kubernetes API: cut when theirs are, and without delay."""
        link = self._kube_link("server-somebody")
        link.faults = NO_FAULTS
        return link

    @property
    def app_key(self) -> str:
        """The App's private key."""
        return self._key.private_pem

    @property
    def databases(self) -> list[InlineDatabase]:
        """The connections of the servers; the first one is that of the invariant checks and never fails."""
        return self._databases[1:]

    # ── events of the environment ────────────────────────────────────────────────────────────────────

    def report(self, what: str) -> None:
        """Adds a line to the display and the trace of the run."""
        self.trace.note("story", what)
        self.story.append((self.clock.monotonic(), what))

    def _before_transaction(self, name: str) -> None:
        self.counts["transactions"] += 1

    def _after_commit(self, database: InlineDatabase, name: str, wrote: bool) -> None:
        if wrote:
            self.invariants.committed(name, database.after_commit_rows)

    def _on_kube_write(self, verb: str, kind: str, key: str, uid: str) -> None:
        if hasattr(self, "invariants"):
            self.invariants.wrote(verb, kind, key, uid)

    def _on_github_event(self, what: str, detail: dict[str, Any]) -> None:
        self.counts[f"github {what}"] += 1
        self.invariants.happened(what, detail)
        if what == "job" and detail["what"] == "completed:failure":
            self._failed(detail["job"], str(detail["runner"]))

    def _failed(self, job: int, runner: str) -> None:
        """Checks that a fault had hit the runner of a failed job, because simulated jobs never fail by themselves."""
        why = self.hit.get(self.runners.get(runner, ""), "")
        self.report(f"job {job} failed on {runner}: {why or 'without a reason'}")
        if not why:
            self.invariants.violated(Violated.JOB_FAILED_UNHIT, job=job, runner=runner)

    async def deliver(self, delivery: Delivery) -> int:
        """Sends a webhook to some server."""
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
        """A server's answer to the operator's account."""
        bearer = ("authorization", f"Bearer {self._operator_token}")
        asked = msgspec.structs.replace(request, headers=(bearer, *request.headers))
        return await self._operator_links[0][1].send(asked, timeout=WEBHOOK_TIMEOUT)

    def _watch_server(self, replica: str, handler: Handler) -> Handler:
        """Checks the answers that a server gives to guests."""

        async def handle(request: Request) -> Response | Stream:
            if request.path == POD_STOPPED and self.ignore_stop_reports:
                return Response(status=204)
            if request.path == GITHUB_WEBHOOK:
                await guard_switches.before_a_webhook(self.shape.off, self.links, replica)
            answer = await handler(request)
            if request.path == DISPATCH and answer.status == 200 and isinstance(answer, Response):
                self._check_delivery(request)
            return answer

        return handle

    def _check_delivery(self, request: Request) -> None:
        guest = self.pollers.get(request.header("authorization").removeprefix("Bearer "))
        if guest is not None:
            self.invariants.answering(guest.uid, guest.pod)

    # ── guests ──────────────────────────────────────────────────────────────────────────────────

    def break_next(self, kind: Fate) -> None:
        """Makes the next guest fail in that way, when it reaches that point."""
        self._fates[kind] = self._fates.get(kind, 0) + 1

    def stop_breaking_guests(self) -> None:
        """Stops breaking guests."""
        self._fates.clear()

    def fate(self, kind: Fate, guest: GuestView) -> bool:
        """Whether this guest is to fail in that way now."""
        left = self._fates.get(kind, 0)
        if left <= 0:
            return False
        self._fates[kind] = left - 1
        self.hit[guest.uid] = kind
        self.counts["broken guests"] += 1
        self.report(f"{guest.pod}: {kind}")
        return True

    def delivered(self, guest: GuestView, jit: str) -> None:
        """A JIT configuration arrived."""
        self.runners[names.runner_name(guest.pod)] = guest.uid
        self.invariants.delivered(guest, jit)

    def die(self, guest: GuestView) -> None:
        """Ends its VM without a report."""
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
        """Marks the start of a fault."""
        self.disturbed[kind] += 1
        self.counts["faults"] += 1

    def calm(self, kind: str) -> None:
        """Marks the end of a fault."""
        self.disturbed[kind] -= 1
        if self.disturbed[kind] <= 0:
            del self.disturbed[kind]
        self.calm_since = self.clock.monotonic()

    def hit_host(self, name: str, why: str) -> None:
        """Records that every runner on this host may fail because of that."""
        for guest in self.guests.values():
            if guest.host == name:
                self.hit[guest.uid] = why
