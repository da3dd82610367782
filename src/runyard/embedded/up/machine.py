"""One machine as a fleet: the embedded API, Postgres, a practice GitHub, the server, the operator, the hosts.

This process owns all of them: it binds their sockets, gives them their orders and credentials, restarts what
dies, and ends everything in order. State lives in one directory, so the next start goes on where this one
ended, also after a SIGKILL: the children notice that their owner is gone and end, VMs with a job in them go on,
and the next owner's agents find them again.

Order of the start: the API and Postgres side by side; then accounts, tokens and the kubeconfig; then everything
else side by side. Order of the end: the hosts' agents, the VMs, the other parts, the API, Postgres.
"""

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec

from runyard.clock import Clock
from runyard.embedded.kube.kubeconfig import render
from runyard.embedded.lock import DirectoryLock
from runyard.embedded.up import accounts, images, ports, practice
from runyard.embedded.up.boot import QUICK, Boot, Pace
from runyard.embedded.up.database import MachineDatabase
from runyard.embedded.up.hosts import PODS, host_names, vm_home, wanted_isolation
from runyard.embedded.up.layout import Layout, write_private
from runyard.embedded.up.people import People
from runyard.embedded.up.secrets import Secrets, load_or_make
from runyard.embedded.up.supervisor import PartView, Spawn, Supervisor, quietly
from runyard.embedded.up.trust import authority, kube_transport
from runyard.http.client import HttpTransport
from runyard.kube.client import Kube
from runyard.kube.errors import AlreadyExists, KubeError
from runyard.kube.kinds import RUNNER_POOLS
from runyard.telemetry.log import Logger
from runyard.telemetry.loops import EXPECTED, run_loop
from runyard.telemetry.meter import Meter
from runyard.vm.process.driver import ProcessDriver
from runyard.wire import names

VM_GRACE = 2.0
VMS_WITHIN = 6.0
DEMO_DISK_MB = 64  # one of its jobs fills it


class GitHubApp(msgspec.Struct, frozen=True, kw_only=True):
    """A real GitHub, and the App that speaks to it."""

    app_id: int
    key: Path
    url: str = "https://api.github.com"
    pull: bool = True  # deliveries are fetched: no public address is needed


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a person may choose."""

    data: Path
    hosts: int = 1
    listen: str = "127.0.0.1"
    port: int = 0
    demo: bool = False
    github: GitHubApp | None = None  # None: the practice GitHub
    runner: Path | None = None  # an unpacked actions runner, for a real GitHub
    runtime: str = names.NODE_RUNTIME_PROCESS

    @property
    def pace(self) -> Pace:
        """A demo has no time for production's patience; pulled deliveries are looked for often."""
        if self.demo:
            return QUICK
        pull = self.github is not None and self.github.pull
        return Pace(audit_every=5.0, audit_settle=1.0) if pull else Pace()


class Urls(msgspec.Struct, frozen=True, kw_only=True):
    """Where things are."""

    kube: str
    server: str
    github: str
    public: str = ""  # the server for others, if it is to be reached by them


class Machine:
    """The running fleet, for whoever looks on or plays with it."""

    def __init__(
        self,
        *,
        options: Options,
        layout: Layout,
        secrets: Secrets,
        urls: Urls,
        supervisor: Supervisor,
        database: MachineDatabase,
        kube: Kube,
        clock: Clock,
    ) -> None:
        self.options = options
        self.layout = layout
        self.secrets = secrets
        self.urls = urls
        self.supervisor = supervisor
        self.database = database
        self.kube = kube
        self.conninfo = ""
        self._clock = clock

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of the hosts."""
        return host_names(self.options.hosts)

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts that speak to the API with a token of their own."""
        return ("server", "operator", *self.hosts)

    def boot(self, role: str, name: str, *socks: socket.socket) -> Boot:
        """The orders of one part."""
        return Boot(
            role=role,
            name=name,
            root=str(self.layout.root),
            kube_url=self.urls.kube,
            server_url=self.urls.server,
            github_url=self.urls.github,
            database=self.conninfo if role == "server" else "",
            sockets=tuple((sock.getsockname()[0], sock.fileno()) for sock in socks),
            pace=self.options.pace,
            faults=self.options.demo,
            app_id=self.options.github.app_id if self.options.github else 1,
            app_key_file=str(self.options.github.key) if self.options.github else "",
            runtime=self.options.runtime,
            disk_mb=DEMO_DISK_MB if self.options.demo else 0,
        )

    async def renew_tokens(self) -> None:
        """Fresh credentials for every part whose own will not last."""
        parts = accounts.due(self.layout, self.parts, now=self._clock.now())
        await accounts.renew(self.kube, self.layout, parts)

    async def stop_vms(self) -> None:
        """End every VM of every host, side by side; one that cannot be ended keeps none of the others."""
        drivers = [
            ProcessDriver(
                vm_home(self.layout, host), image_source=self.layout.images, clock=self._clock
            )
            for host in self.hosts
        ]
        async with self._clock.timeout(VMS_WITHIN):
            outcomes = await asyncio.gather(
                *(driver.stop_all(grace=VM_GRACE) for driver in drivers), return_exceptions=True
            )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome


@asynccontextmanager
async def running(
    options: Options,
    *,
    clock: Clock,
    rng: random.Random,
    log: Logger,
    environ: Mapping[str, str],
    changed: Callable[[PartView], None] = lambda view: None,
    tell: Callable[[str], None] = lambda text: None,
) -> AsyncIterator[Machine]:
    """A machine that is up for as long as the context lasts."""
    wanted_isolation(environ)  # a word that means nothing is told before anything is started
    layout = Layout(options.data)
    layout.prepare()
    async with AsyncExitStack() as stack:
        lock = DirectoryLock(layout.root)
        await asyncio.to_thread(lock.acquire)
        stack.callback(lock.release)
        secrets = load_or_make(layout, rng)
        sockets = ports.bind(layout, host=options.listen, wanted={"server": options.port})
        for each in sockets.values():
            stack.callback(each.close)
        urls = Urls(
            kube=_url(sockets["kube"], "https"),
            server=_url(sockets["server"]),
            github=options.github.url if options.github else _url(sockets["github"]),
            public=_url(sockets[ports.PUBLIC], "https") if ports.PUBLIC in sockets else "",
        )
        transport = kube_transport(layout, urls.kube, now=clock.now())
        stack.push_async_callback(transport.close)
        database = MachineDatabase(
            layout,
            clock=clock,
            log=log,
            # A demo plays with a database of its own, whatever the shell was set up for.
            given="" if options.demo else environ.get("DATABASE_URL", ""),
            durable=not options.demo,
            tell=tell,
        )
        stack.push_async_callback(database.stop)
        spawn = await stack.enter_async_context(_background())
        supervisor = Supervisor(
            clock=clock, log=log, lock=lock.descriptor, spawn=spawn, changed=changed
        )
        machine = Machine(
            options=options,
            layout=layout,
            secrets=secrets,
            urls=urls,
            supervisor=supervisor,
            database=database,
            kube=Kube(transport, agent="runyard", token=lambda: secrets.admin_token),
            clock=clock,
        )
        stack.push_async_callback(_end, machine, log, tell)
        await _start(machine, sockets, tell, now=clock.now())
        spawn(database.watch(), "postgres")
        spawn(_renew(machine, clock=clock, log=log), "tokens")
        yield machine


@asynccontextmanager
async def _background() -> AsyncIterator[Spawn]:
    """Tasks that end with the context, instead of being waited for; one that fails ends the context."""
    tasks: list[asyncio.Task[None]] = []
    async with asyncio.TaskGroup() as group:

        def spawn(work: Coroutine[None, None, None], name: str) -> None:
            tasks.append(group.create_task(work, name=name))

        try:
            yield spawn
        finally:
            for task in tasks:
                task.cancel()


async def _start(
    machine: Machine,
    sockets: Mapping[str, socket.socket],
    tell: Callable[[str], None],
    *,
    now: float,
) -> None:
    supervisor, layout = machine.supervisor, machine.layout
    tell("starting the Kubernetes API and Postgres")
    async with asyncio.TaskGroup() as both:
        conninfo = both.create_task(machine.database.start())
        both.create_task(supervisor.add(machine.boot("kube", "kube", sockets["kube"])))
        both.create_task(asyncio.to_thread(images.lay_out, layout, machine.options.runner))
    machine.conninfo = conninfo.result()
    await accounts.grant(machine.kube, machine.parts)
    await machine.renew_tokens()
    text = render(
        machine.urls.kube,
        token=machine.secrets.admin_token,
        ca=authority(layout, now=now),
        namespace=names.RUNNERS_NAMESPACE,
    )
    write_private(layout.kubeconfig, text)
    await _first_pool(machine, tell)
    tell("starting the practice GitHub, the server, the operator and the hosts")
    async with asyncio.TaskGroup() as rest:
        if machine.options.github is None:
            rest.create_task(supervisor.add(machine.boot("github", "github", sockets["github"])))
        served = [sockets[name] for name in ("server", ports.PUBLIC) if name in sockets]
        rest.create_task(supervisor.add(machine.boot("server", "server", *served)))
        rest.create_task(supervisor.add(machine.boot("operator", "operator")))
        for host in machine.hosts:
            rest.create_task(supervisor.add(machine.boot("agent", host)))
    if machine.options.github is None:
        await _practice_repository(machine)


async def _first_pool(machine: Machine, tell: Callable[[str], None]) -> None:
    """A pool to begin with; one that somebody changed since is left alone."""
    body = practice.pool(replicas=machine.options.hosts * PODS, runtime=machine.options.runtime)
    try:
        await machine.kube.create(RUNNER_POOLS, body, namespace=names.RUNNERS_NAMESPACE)
    except AlreadyExists:
        found = await machine.kube.get(
            RUNNER_POOLS, practice.POOL, namespace=names.RUNNERS_NAMESPACE
        )
        has, seats = found["spec"].get("replicas", 0), body["spec"]["replicas"]
        if has != seats:
            tell(
                f"the pool {practice.POOL} keeps its {has} runners; these hosts have {seats} seats."
                f" Change it with kubectl patch runnerpool {practice.POOL} --type=merge"
                f' -p \'{{"spec":{{"replicas":{seats}}}}}\''
            )


async def _practice_repository(machine: Machine) -> None:
    """Somewhere to push to."""
    transport = HttpTransport(machine.urls.github)
    try:
        people = People(transport, token=machine.secrets.people_token)
        await people.install(practice.ACCOUNT, practice.REPOSITORY)
    finally:
        await transport.close()


async def _renew(machine: Machine, *, clock: Clock, log: Logger) -> None:
    await clock.sleep(accounts.LOOK_EVERY)
    await run_loop(
        "tokens",
        machine.renew_tokens,
        clock=clock,
        meter=Meter(),
        log=log,
        every=accounts.LOOK_EVERY,
        deadline=60.0,
        expected=(*EXPECTED, KubeError),
        max_backoff=accounts.LOOK_EVERY,
    )


async def _end(machine: Machine, log: Logger, tell: Callable[[str], None]) -> None:
    supervisor = machine.supervisor
    tell("stopping")
    await supervisor.stop(machine.hosts)
    await quietly(machine.stop_vms(), log, "VMs")
    await supervisor.stop(("operator", "server", "github"))
    await supervisor.stop(("kube",))
    supervisor.kill_all()


def _url(sock: socket.socket, scheme: str = "http") -> str:
    host, port = sock.getsockname()[:2]
    reach = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104 comparing, not binding
    return f"{scheme}://{reach}:{port}"
