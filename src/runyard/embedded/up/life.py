"""A machine's life: it starts, runs, and ends with everything that it started.

This process owns all parts: it binds their sockets, gives them their orders and credentials, restarts what
dies, and ends everything in order. State lives in one directory, so the next start goes on where this one
ended, also after a SIGKILL: the children notice that their owner is gone and end, VMs with a job in them go on,
and the next owner's agents find them again.

Order of the start: the API and Postgres side by side; then accounts, tokens and the kubeconfig; then everything
else side by side. Order of the end: the hosts' agents, the VMs, the other parts, the API, Postgres.

Invariants:
- The end takes less than `END_WITHIN` seconds: each step has its share, and who does not keep to it is killed. That
  is safe for each of them, because each survives a kill at any moment.
- However the end comes about (told to, a part that failed, a defect), it is carried through.
"""

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec

from runyard.clock import Clock
from runyard.embedded.kube.kubeconfig import render
from runyard.embedded.lock import DirectoryLock
from runyard.embedded.up import accounts, disk, images, ports, practice
from runyard.embedded.up.database import MachineDatabase
from runyard.embedded.up.ending import Ending, patiently, unless, whole
from runyard.embedded.up.hosts import PODS, host_names, wanted_isolation
from runyard.embedded.up.identity import identity
from runyard.embedded.up.layout import Layout
from runyard.embedded.up.machine import Machine, Options, Urls
from runyard.embedded.up.people import People
from runyard.embedded.up.secrets import load_or_make
from runyard.embedded.up.supervisor import PartView, Spawn, Supervisor
from runyard.embedded.up.trust import authority, kube_transport
from runyard.files import write_whole
from runyard.http.client import HttpTransport
from runyard.kube.client import Kube
from runyard.kube.errors import AlreadyExists, KubeError
from runyard.kube.kinds import RUNNER_POOLS
from runyard.telemetry.log import Logger
from runyard.telemetry.loops import EXPECTED, run_loop
from runyard.telemetry.meter import Meter
from runyard.wire import names

END_WITHIN = 10.0
# The shares of the end; Postgres has `database.STOP_WITHIN`.
_AGENTS, _VM_GRACE, _VMS, _VMS_KILLED, _PARTS, _API = 1.0, 2.0, 3.0, 2.5, 1.5, 1.0


class Audience:
    """Whoever looks on; this one does not listen."""

    def tell(self, text: str) -> None:
        """Something happened."""

    def part(self, view: PartView) -> None:
        """A part changed its state."""

    def ended(self, seconds: float) -> None:
        """Everything has ended, and it took so long."""


@asynccontextmanager
async def running(
    options: Options,
    *,
    clock: Clock,
    rng: random.Random,
    log: Logger,
    environ: Mapping[str, str],
    ending: Ending,
    audience: Audience,
) -> AsyncIterator[Machine]:
    """A machine that is up for as long as the context lasts; `ToldToEnd` if it was told to before it was up."""
    wanted_isolation(environ)  # a word that means nothing is told before anything is started
    layout, tell = Layout(options.data), audience.tell
    layout.prepare()
    disk.require_room(layout.root)
    async with AsyncExitStack() as stack:
        lock = await _lock(layout, ending)
        stack.callback(lock.release)
        secrets = load_or_make(layout, rng)
        probed = ("operator", *host_names(options.hosts))
        sockets = ports.bind(
            layout, host=options.listen, wanted={"server": options.port}, probed=probed
        )
        for each in sockets.values():
            stack.callback(each.close)
        urls = _urls(options, sockets, probed)
        transport = kube_transport(layout, urls.kube, now=clock.now())
        stack.push_async_callback(transport.close)
        database = MachineDatabase(
            layout,
            clock=clock,
            log=log,
            machine=identity(layout, rng),
            # A demo plays with a database of its own, whatever the shell was set up for.
            given="" if options.demo else environ.get("DATABASE_URL", ""),
            durable=not options.demo,
            tell=tell,
        )
        spawn = await stack.enter_async_context(_background())
        machine = Machine(
            options=options,
            layout=layout,
            secrets=secrets,
            urls=urls,
            supervisor=Supervisor(
                clock=clock,
                log=log,
                lock=lock.descriptor,
                spawn=spawn,
                changed=audience.part,
                ending=ending,
            ),
            database=database,
            kube=Kube(transport, agent="runyard", token=lambda: secrets.admin_token),
            clock=clock,
        )
        stack.push_async_callback(
            whole, _end(machine, clock=clock, log=log, ending=ending, audience=audience)
        )
        spawn(disk.watch(layout.root, clock=clock, tell=tell), "disk")
        await unless(ending.begun, _start(machine, sockets, tell, now=clock.now()))
        spawn(database.watch(), "postgres")
        spawn(_renew(machine, clock=clock, log=log), "tokens")
        yield machine


async def _lock(layout: Layout, ending: Ending) -> DirectoryLock:
    """Taken at once, or when the children of an owner that was killed have ended."""
    lock = DirectoryLock(layout.root)
    try:
        await unless(ending.begun, asyncio.to_thread(lock.acquire))
    except BaseException:
        lock.give_up()  # the thread that waits must not outlive us
        raise
    return lock


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
    write_whole(layout.urls, msgspec.json.encode(machine.urls.by_part()))
    tell("starting the Kubernetes API and Postgres")
    async with asyncio.TaskGroup() as both:
        conninfo = both.create_task(machine.database.start())
        both.create_task(supervisor.add(machine.boot("kube", "kube", sockets["kube"])))
        both.create_task(asyncio.to_thread(images.lay_out, layout, machine.options.runner))
    machine.conninfo = conninfo.result()
    await accounts.grant(machine.kube, machine.parts)
    # All of them: the API may have another key by now than the one that signed what lies there.
    await machine.renew_tokens(every=True)
    text = render(
        machine.urls.kube,
        token=machine.secrets.admin_token,
        ca=authority(layout, now=now),
        namespace=names.RUNNERS_NAMESPACE,
    )
    write_whole(layout.kubeconfig, text)
    await _first_pool(machine, tell)
    tell("starting the practice GitHub, the server, the operator and the hosts")
    async with asyncio.TaskGroup() as rest:
        if machine.options.github is None:
            rest.create_task(supervisor.add(machine.boot("github", "github", sockets["github"])))
        served = [sockets[name] for name in ("server", ports.PUBLIC) if name in sockets]
        rest.create_task(supervisor.add(machine.boot("server", "server", *served)))
        rest.create_task(supervisor.add(machine.boot("operator", "operator", sockets["operator"])))
        for host in machine.hosts:
            rest.create_task(supervisor.add(machine.boot("agent", host, sockets[host])))
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


async def _end(
    machine: Machine, *, clock: Clock, log: Logger, ending: Ending, audience: Audience
) -> None:
    """In order, and in a hurry where somebody is in a hurry; whatever goes wrong on the way, the rest ends too."""
    supervisor, began = machine.supervisor, clock.monotonic()
    ending.begun.set()  # so that the next Ctrl-C means: at once
    audience.tell("stopping")
    try:
        await supervisor.stop(machine.hosts, within=_AGENTS)
        calm = await patiently(
            _quietly(machine.stop_vms(grace=_VM_GRACE), log, audience),
            clock=clock,
            within=_VMS,
            ending=ending,
        )
        async with asyncio.TaskGroup() as group:
            if not calm:
                group.create_task(_kill_vms(machine, clock=clock, log=log, audience=audience))
            others = ("operator", "server", "github")
            group.create_task(supervisor.stop(others, within=_PARTS))
        await supervisor.stop(("kube",), within=_API)
    finally:
        supervisor.kill_all()
        await machine.database.stop(ending)
    audience.ended(clock.monotonic() - began)


async def _kill_vms(machine: Machine, *, clock: Clock, log: Logger, audience: Audience) -> None:
    try:
        async with clock.timeout(_VMS_KILLED):
            await _quietly(machine.stop_vms(grace=0.0), log, audience)
    except TimeoutError:
        audience.tell(
            "some VMs do not end although they were killed; look for processes below hosts/"
        )


async def _quietly(work: Coroutine[None, None, None], log: Logger, audience: Audience) -> None:
    try:
        await work
    except Exception as error:  # noqa: BLE001 the end of the machine: nothing may stand in its way
        log.warning("could not end cleanly", what="VMs", error=str(error))
        audience.tell(f"a VM could not be ended: {error}")


def _urls(options: Options, sockets: Mapping[str, socket.socket], probed: tuple[str, ...]) -> Urls:
    return Urls(
        kube=_url(sockets["kube"], "https"),
        server=_url(sockets["server"]),
        github=options.github.url if options.github else _url(sockets["github"]),
        public=_url(sockets[ports.PUBLIC], "https") if ports.PUBLIC in sockets else "",
        probes={name: _url(sockets[name]) for name in probed},
    )


def _url(sock: socket.socket, scheme: str = "http") -> str:
    host, port = sock.getsockname()[:2]
    reach = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104 comparing, not binding
    return f"{scheme}://{reach}:{port}"
