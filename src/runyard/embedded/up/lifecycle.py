"""Starts a machine, runs it, and stops it with everything that it started.

This process owns all components: it binds their sockets, passes their configuration and credentials, restarts what
crashes, and stops everything in order. State is in one directory, so the next start continues where this one stopped,
also after a SIGKILL: the children exit when their parent is gone, VMs with a job keep running, and the next start's
agents take them over.

Order of the start: the API and Postgres concurrently; then accounts, tokens and the kubeconfig; then everything
else concurrently. Order of the end: the hosts' agents, the VMs, the other components, the API, Postgres.

Invariants:
- The end takes less than `END_WITHIN` seconds: each step has a share of it and is killed after that. This is safe,
  because each component survives a kill at any moment.
- With `keep_vms` no step ends a VM, the second Ctrl-C included: as after a kill, the next start takes them over.
- Whatever starts the shutdown (a request, a component that failed, a defect), it runs to completion.
"""

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec

from runyard.clock import Clock
from runyard.embedded.kube.kubeconfig import render
from runyard.embedded.lock import DirectoryLock
from runyard.embedded.up import (
    accounts,
    archives,
    conditions,
    disk,
    first_pool,
    former_hosts,
    images,
    ports,
    practice,
    pulls,
    stores,
)
from runyard.embedded.up.database import GivenDatabase, MachineDatabase
from runyard.embedded.up.hosts import host_names, wanted_isolation
from runyard.embedded.up.identity import identity
from runyard.embedded.up.layout import Layout
from runyard.embedded.up.machine import Machine, Options, Urls
from runyard.embedded.up.practice_client import PracticeClient
from runyard.embedded.up.restarts import RestartRecord
from runyard.embedded.up.secrets import load_or_make
from runyard.embedded.up.shutdown import Shutdown, uncancelled, unless, within_deadline
from runyard.embedded.up.supervisor import ComponentView, Spawn, Supervisor
from runyard.embedded.up.token_files import ensure_token
from runyard.embedded.up.trust import authority, has_authority, kube_transport, reachable
from runyard.files import write_whole
from runyard.http.client import HttpTransport
from runyard.http.errors import TRANSPORT_ERRORS
from runyard.kube.client import Kube
from runyard.kube.errors import AlreadyExists, KubeError
from runyard.kube.kinds import LEASES
from runyard.telemetry.log import Logger
from runyard.telemetry.loops import run_loop
from runyard.telemetry.meter import Meter
from runyard.telemetry.names import Loop
from runyard.wire import names

END_WITHIN = 10.0
# The time of each step of the shutdown; that of Postgres is `database.STOP_WITHIN`.
_AGENTS, _VM_GRACE, _VMS, _VMS_KILLED, _COMPONENTS, _API = 1.0, 2.0, 3.0, 2.5, 1.5, 1.0


class ProgressListener:
    """Receives progress; this base class ignores it."""

    def report(self, text: str) -> None:
        """Takes a line of text."""

    def component(self, view: ComponentView) -> None:
        """A component changed its state."""

    def pulls(self, views: tuple[pulls.PullView, ...]) -> None:
        """The image pulls that are under way; called every second, and once when none is left."""

    def ended(self, seconds: float) -> None:
        """Everything has ended, after so many seconds."""


@asynccontextmanager
async def running(
    options: Options,
    *,
    clock: Clock,
    rng: random.Random,
    log: Logger,
    environ: Mapping[str, str],
    shutdown: Shutdown,
    listener: ProgressListener,
) -> AsyncIterator[Machine]:
    """Runs a machine for as long as the context lasts; `ShutdownRequested` if that came before it was up."""
    wanted_isolation(environ)  # an invalid value is refused before anything is started
    layout, report = Layout(options.data), listener.report
    layout.prepare()
    disk.require_space(layout.root)
    async with AsyncExitStack() as stack:
        lock = await _lock(layout, shutdown)
        stack.callback(lock.release)
        secrets = load_or_make(layout, rng)
        # A demo always uses its own database, whatever the environment says.
        given = "" if options.demo else environ.get("DATABASE_URL", "")
        in_use = stores.in_use(practice=options.github is None, database=not given)
        stores.check(layout, in_use)
        new_authority = stores.known(layout) and not has_authority(layout)
        token = _tokens(layout, rng, first=secrets.dashboard_token)
        probed = ("operator", *host_names(options.hosts))
        sockets = _bound(layout, options, probed)
        for each in sockets.values():
            stack.callback(each.close)
        urls = _urls(options, sockets, probed)
        transport = kube_transport(layout, urls.kube, now=clock.now())
        stack.push_async_callback(transport.close)
        restarts = RestartRecord(layout.restarts, clock=clock, log=log)

        def changed(view: ComponentView) -> None:
            restarts.note(view)
            listener.component(view)

        database = MachineDatabase(
            layout,
            clock=clock,
            log=log,
            given=GivenDatabase(url=given, owner=identity(layout, rng)),
            durable=not options.demo,
            report=report,
            restarts=restarts,
        )
        spawn = await stack.enter_async_context(_background())
        machine = Machine(
            options=options,
            secrets=secrets,
            urls=urls,
            supervisor=Supervisor(
                clock=clock,
                log=log,
                lock=lock.descriptor,
                spawn=spawn,
                changed=changed,
                shutdown=shutdown,
            ),
            database=database,
            kube=Kube(transport, agent="runyard", token=lambda: secrets.admin_token),
            clock=clock,
        )
        stack.push_async_callback(
            uncancelled, _end(machine, clock=clock, log=log, shutdown=shutdown, listener=listener)
        )
        if new_authority:
            report(_new_authority(layout))
        spawn(disk.watch(layout.root, clock=clock, report=report), "disk")
        await unless(shutdown.begun, _start(machine, sockets, report, clock=clock))
        stores.record(layout, in_use)
        spawn(database.watch(), "postgres")
        spawn(_renew(machine, clock=clock, log=log), "tokens")
        if not options.demo:  # whose faults are meant, and reported by its scenario
            _watch(machine, spawn, token=token, clock=clock, listener=listener)
        yield machine


def _watch(
    machine: Machine, spawn: Spawn, *, token: str, clock: Clock, listener: ProgressListener
) -> None:
    """Report what changes while the machine runs."""
    url, report = machine.urls.server, listener.report
    spawn(conditions.watch(url, token=token, clock=clock, report=report), "conditions")
    if machine.options.driver == "tart":
        layout, hosts = machine.layout, machine.hosts
        spawn(pulls.watch(layout, hosts, machine.kube, clock=clock, listener=listener), "pulls")


def _bound(layout: Layout, options: Options, probed: tuple[str, ...]) -> dict[str, socket.socket]:
    return ports.bind(
        layout,
        host=options.listen,
        wanted={"server": options.port},
        probed=probed,
        joining=options.joining,
    )


def _tokens(layout: Layout, rng: random.Random, *, first: str) -> str:
    """Writes the token files that are missing, and returns the dashboard's token."""
    ensure_token(layout.metrics_token, rng)
    return ensure_token(layout.dashboard_token, rng, first=first)


def _new_authority(layout: Layout) -> str:
    return (
        f"{layout.tls} had no certificate authority, so there is a new one. Machines and browsers that"
        " trusted the old one need its ca.crt"
    )


async def _lock(layout: Layout, shutdown: Shutdown) -> DirectoryLock:
    """Takes the lock at once, or when the children of a killed owner have ended."""
    lock = DirectoryLock(layout.root)
    try:
        await unless(shutdown.begun, asyncio.to_thread(lock.acquire))
    except BaseException:
        lock.give_up()  # so that the waiting thread ends
        raise
    return lock


@asynccontextmanager
async def _background() -> AsyncIterator[Spawn]:
    """Runs tasks that are cancelled at the end of the context; one that fails ends the context."""
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
    report: Callable[[str], None],
    *,
    clock: Clock,
) -> None:
    supervisor, layout = machine.supervisor, machine.layout
    write_whole(layout.urls, msgspec.json.encode(machine.urls.by_component()))
    report("starting the Kubernetes API and Postgres")
    async with asyncio.TaskGroup() as both:
        conninfo = both.create_task(machine.database.start())
        both.create_task(supervisor.add(machine.boot("kube", "kube", sockets["kube"])))
        if machine.options.driver == "process":
            both.create_task(asyncio.to_thread(images.build, layout, machine.options.runner))
        archive = both.create_task(archives.prepare(machine.options, clock=clock, report=report))
    machine.conninfo, machine.runner_archive = conninfo.result(), archive.result()
    await accounts.grant(machine.kube, machine.components)
    # All of them: the API may have another key than the one that signed the stored tokens.
    await machine.renew_tokens(every=True)
    text = render(
        machine.urls.kube,
        token=machine.secrets.admin_token,
        ca=authority(layout, now=clock.now()),
        namespace=names.RUNNERS_NAMESPACE,
    )
    write_whole(layout.kubeconfig, text)
    await _free_lease(machine.kube)
    await former_hosts.remove(
        machine.kube, layout, hosts=machine.options.hosts, clock=clock, report=report
    )
    await first_pool.ensure(machine.kube, machine.options, report)
    machine.labels = await first_pool.labels(machine.kube)
    machine.waits_for = await first_pool.waits_for(machine.kube, machine.options)
    practising = "the practice GitHub, " if machine.options.github is None else ""
    report(f"starting {practising}the server, the operator and the hosts")
    async with asyncio.TaskGroup() as rest:
        if machine.options.github is None:
            rest.create_task(supervisor.add(machine.boot("github", "github", sockets["github"])))
        served = [sockets[name] for name in ("server", ports.PUBLIC) if name in sockets]
        rest.create_task(supervisor.add(machine.boot("server", "server", *served)))
        rest.create_task(supervisor.add(machine.boot("operator", "operator", sockets["operator"])))
        if ports.HOSTS in sockets:
            rest.create_task(supervisor.add(machine.boot("hosts", "hosts", sockets[ports.HOSTS])))
        for host in machine.hosts:
            rest.create_task(supervisor.add(machine.boot("agent", host, sockets[host])))
    if machine.options.github is None:
        await _practice_repository(machine)


async def _free_lease(kube: Kube) -> None:
    """Creates the operators' Lease without a holder, so that the first operator leads at once; keeps an existing one.

    An operator that finds no Lease waits 15 s, because an unknown leader might still write. Here none has started yet.
    """
    free = {"metadata": {"name": names.CONTROLLER_LEASE}, "spec": {}}
    with contextlib.suppress(AlreadyExists):
        await kube.create(LEASES, free, namespace=names.CONTROLLER_NAMESPACE)


async def _practice_repository(machine: Machine) -> None:
    """Installs the App and a repository at the practice GitHub."""
    transport = HttpTransport(machine.urls.github)
    try:
        client = PracticeClient(transport, token=machine.secrets.practice_token)
        await client.install(practice.ACCOUNT, practice.REPOSITORY)
    finally:
        await transport.close()


async def _renew(machine: Machine, *, clock: Clock, log: Logger) -> None:
    await clock.sleep(accounts.CHECK_EVERY)
    await run_loop(
        Loop.TOKEN_RENEWAL,
        machine.renew_tokens,
        clock=clock,
        meter=Meter(),
        log=log,
        every=accounts.CHECK_EVERY,
        deadline=60.0,
        expected=(*TRANSPORT_ERRORS, KubeError),
        max_backoff=accounts.CHECK_EVERY,
    )


async def _end(
    machine: Machine, *, clock: Clock, log: Logger, shutdown: Shutdown, listener: ProgressListener
) -> None:
    """Ends everything in order, or at once on request; a step that fails does not stop the others."""
    supervisor, began = machine.supervisor, clock.monotonic()
    shutdown.begun.set()  # so that the next Ctrl-C ends it at once
    listener.report("stopping")
    try:
        await supervisor.stop(machine.hosts, within=_AGENTS)
        ended = machine.options.keep_vms or await within_deadline(
            _logging_failures(machine.stop_vms(grace=_VM_GRACE), log, listener),
            clock=clock,
            within=_VMS,
            shutdown=shutdown,
        )
        async with asyncio.TaskGroup() as group:
            if not ended:
                group.create_task(_kill_vms(machine, clock=clock, log=log, listener=listener))
            others = ("hosts", "operator", "server", "github")
            group.create_task(supervisor.stop(others, within=_COMPONENTS))
        await supervisor.stop(("kube",), within=_API)
    finally:
        supervisor.kill_all()
        await machine.database.stop(shutdown)
    listener.ended(clock.monotonic() - began)


async def _kill_vms(
    machine: Machine, *, clock: Clock, log: Logger, listener: ProgressListener
) -> None:
    try:
        async with clock.timeout(_VMS_KILLED):
            await _logging_failures(machine.stop_vms(grace=0.0), log, listener)
    except TimeoutError:
        listener.report(
            "some VMs do not end although they were killed; find the processes below hosts/"
        )


async def _logging_failures(
    work: Coroutine[None, None, None], log: Logger, listener: ProgressListener
) -> None:
    try:
        await work
    except Exception as error:  # noqa: BLE001 the end of the machine: a failed step must not stop it
        log.warning("could not end cleanly", what="VMs", error=str(error))
        listener.report(f"a VM could not be ended: {error}")


def _urls(options: Options, sockets: Mapping[str, socket.socket], probed: tuple[str, ...]) -> Urls:
    return Urls(
        kube=_url(sockets["kube"], "https"),
        server=_url(sockets["server"]),
        github=options.github.url if options.github else _url(sockets["github"]),
        public=_outside(sockets[ports.PUBLIC]) if ports.PUBLIC in sockets else "",
        hosts=_outside(sockets[ports.HOSTS]) if ports.HOSTS in sockets else "",
        probes={name: _url(sockets[name]) for name in probed},
    )


def _outside(sock: socket.socket) -> str:
    """The URL under which other machines reach it."""
    host, port = sock.getsockname()[:2]
    host = reachable(host)
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _url(sock: socket.socket, scheme: str = "http") -> str:
    host, port = sock.getsockname()[:2]
    reach = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104 comparing, not binding
    return f"{scheme}://{reach}:{port}"
