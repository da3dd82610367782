"""Injects faults: one stream per kind, each with its own random generator.

A kind's name is what `--faults` takes. Each fault starts, lasts and ends by itself; `heal` ends all of them at once,
before the quiet time after which the fleet must be idle. A crash has no duration: the supervisor restarts the
component.

A host that is lost for good is replaced by another machine, and its Node object is removed, as the fleet's operator
would do; nothing else is ever cleaned up from outside.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from runyard.sim.guest import Fate
from runyard.sim.network import Faults, Link
from runyard.sim.process import Process

if TYPE_CHECKING:
    from runyard.sim.fleet import Fleet

Inject = Callable[["Injector"], Coroutine[Any, Any, None]]
MINUTE = 60.0
HOUR = 3600.0
SOON = 60  # a crash hits one of the next 60 effects


class Injector:
    """Injects one kind of fault into one fleet."""

    def __init__(self, fleet: "Fleet", kind: str) -> None:
        self.fleet = fleet
        self.kind = kind
        self.rng = fleet.chance(f"faults {kind}")

    async def run(self, every: float, inject: Inject) -> None:
        """Injects repeatedly, on average once in `every` seconds; when cancelled, it first ends the current fault."""
        while True:
            await self.fleet.clock.sleep(self.rng.expovariate(1.0 / every))
            await inject(self)

    @contextmanager
    def fault(self, what: str) -> Iterator[None]:
        """A fault with a duration."""
        self.fleet.disturb(self.kind)
        self.fleet.report(what)
        try:
            yield
        finally:
            self.fleet.calm(self.kind)

    async def wait(self, low: float, high: float) -> None:
        """Lets the fault last a random time."""
        await self.fleet.clock.sleep(self.rng.uniform(low, high))

    def crash_soon(self, process: Process) -> None:
        """Kills a process at one of its next effects, before or after it happens."""
        when: Literal["before", "after"] = self.rng.choice(("before", "after"))
        process.crash_at(process.effects + self.rng.randint(1, SOON), when=when)
        self.fleet.counts["faults"] += 1
        self.fleet.calm_since = self.fleet.clock.monotonic()
        self.fleet.report(f"{process.name} is about to be killed")

    @contextmanager
    def faulty(self, links: list[Link], **faults: Any) -> Iterator[None]:
        """Gives links other faults for a while."""
        layer = self.fleet.fault_layers.begin(links, faults)
        try:
            yield
        finally:
            self.fleet.fault_layers.end(layer)


class FaultLayers:
    """The faults of links, in layers: faults overlap, and each ends without undoing the others."""

    def __init__(self) -> None:
        self._usual: dict[str, Faults] = {}
        self._layers: dict[int, tuple[list[Link], dict[str, Any]]] = {}
        self._number = 0

    def begin(self, links: list[Link], faults: dict[str, Any]) -> int:
        """Adds a layer to these links; returns its number."""
        self._number += 1
        self._layers[self._number] = (links, faults)
        self._apply(links)
        return self._number

    def end(self, number: int) -> None:
        """Removes a layer."""
        links, _ = self._layers.pop(number)
        self._apply(links)

    def _apply(self, links: list[Link]) -> None:
        for link in links:
            faults = self._usual.setdefault(link.name, link.faults)
            for covered, changes in self._layers.values():
                if link in covered:
                    faults = msgspec.structs.replace(faults, **changes)
            link.faults = faults


async def crash_server(it: Injector) -> None:
    """Kills one replica."""
    it.crash_soon(it.rng.choice(it.fleet.replicas).process)


async def crash_operator(it: Injector) -> None:
    """Kills the operator."""
    it.crash_soon(it.fleet.operator)


async def crash_agent(it: Injector) -> None:
    """Kills an agent; its VMs continue."""
    hosts = [host for host in it.fleet.hosts.values() if host.may_run]
    it.crash_soon(it.rng.choice(hosts).process)


async def webhooks(it: Injector) -> None:
    """Loses, duplicates, delays and reorders webhooks."""
    lost = it.rng.choice((0.3, 0.3, 1.0))
    with (
        it.fault("webhooks are lost, doubled and delayed"),
        it.faulty(
            it.fleet.webhook_links,
            drop_request=lost,
            drop_response=0.1,
            duplicate=0.2,
            delay=0.3,
            delay_up_to=60.0,
        ),
    ):
        await it.wait(3 * MINUTE, 15 * MINUTE)


async def kube_outage(it: Injector) -> None:
    """Makes the Kubernetes API unavailable: it refuses, or fails in the middle of a request."""
    kube = [link for link in it.fleet.links if link.name.endswith(">kube")]
    with it.fault("the Kubernetes API is away"):
        if it.rng.random() < 0.5:
            it.fleet.kube_process.crash()
        for link in kube:
            link.down = True
        try:
            await it.wait(10.0, 3 * MINUTE)
        finally:
            for link in kube:
                link.down = False


async def github_outage(it: Injector) -> None:
    """Makes GitHub answer 503, or create runners and answer as if it had not."""
    github = it.fleet.github
    if it.rng.random() < 0.4:
        it.fleet.report("GitHub creates runners and answers 503")
        github.faults.fail_after_mint(503, times=it.rng.randint(1, 3))
        it.fleet.calm_since = it.fleet.clock.monotonic()
        return
    with it.fault("GitHub is away"):
        github.faults.outage = True
        try:
            await it.wait(30.0, 5 * MINUTE)
        finally:
            github.faults.outage = False


async def database_outage(it: Injector) -> None:
    """Makes the database unavailable, or loses the answers to some commits."""
    databases = it.fleet.databases
    with it.fault("the database fails or is slow"):
        lost = it.rng.random() < 0.5
        for database in databases:
            database.down = not lost
            database.lose_answer = (lambda name: it.rng.random() < 0.2) if lost else None
        try:
            await it.wait(5.0, 2 * MINUTE)
        finally:
            for database in databases:
                database.down = False
                database.lose_answer = None


async def hung_vm(it: Injector) -> None:
    """Makes a guest hang before or after its JIT, die in its job, or end with a wrong code."""
    fates: tuple[Fate, ...] = ("hang-before-jit", "hang-with-jit", "die", "exit-code")
    fate = it.rng.choice(fates)
    it.fleet.counts["faults"] += 1
    it.fleet.calm_since = it.fleet.clock.monotonic()
    it.fleet.break_next(fate)


async def lost_node(it: Injector) -> None:
    """Cuts a host's power or network, for a while or for good."""
    hosts = [host for host in it.fleet.hosts.values() if host.may_run and not host.cut]
    host = it.rng.choice(hosts)
    powered = it.rng.random() < 0.5
    for_good = it.rng.random() < 0.3
    it.fleet.hit_host(host.name, "lost-node")
    with it.fault(f"{host.name} lost its {'network' if powered else 'power'}"):
        (host.cut_network if powered else host.power_off)()
        try:
            await it.wait(30.0, 15 * MINUTE)
        finally:
            it.fleet.hit_host(host.name, "lost-node")
            if not for_good and powered:
                host.restore_network()
            elif not for_good:
                host.power_on()
            else:
                it.fleet.afterwards(it.fleet.replace_host(host.name), "replace a host")


async def stalled_pull(it: Injector) -> None:
    """Lets the pulls of a host, or of all hosts, stand still or crawl."""
    hosts = [host for host in it.fleet.hosts.values() if host.may_run]
    if it.rng.random() < 0.7:
        hosts = [it.rng.choice(hosts)]
    crawl = it.rng.random() < 0.5
    with it.fault(f"pulls {'crawl' if crawl else 'stand still'} on {len(hosts)} hosts"):
        for host in hosts:
            if crawl:
                host.driver.slow_down(host.driver.host.bandwidth / 50)
            else:
                host.driver.stall_pulls()
        try:
            await it.wait(1 * MINUTE, 15 * MINUTE)
        finally:
            for host in hosts:
                host.driver.slow_down()
                host.driver.stall_pulls(False)


async def hung_driver(it: Injector) -> None:
    """Lets a host's driver answer nothing for a while; its VMs run on."""
    host = it.rng.choice([host for host in it.fleet.hosts.values() if host.may_run])
    with it.fault(f"the driver of {host.name} hangs"):
        host.driver.stand_still()
        try:
            # No job may fail by it. After seven minutes Kubernetes evicts the Pods, as those of a lost node: the agent
            # reports Ready as Unknown after two, and Pods tolerate that for five.
            await it.wait(10.0, 5 * MINUTE)
        finally:
            host.driver.stand_still(False)


async def growing_disks(it: Injector) -> None:
    """Lets the disks of a host's guests fill up, faster than jobs end."""
    host = it.rng.choice([host for host in it.fleet.hosts.values() if host.may_run])
    usual = host.driver.host.disk_growth
    with it.fault(f"the disks of the guests on {host.name} fill up"):
        host.driver.grow_disks(it.rng.uniform(200.0, 2000.0))
        try:
            await it.wait(2 * MINUTE, 20 * MINUTE)
        finally:
            host.driver.grow_disks(usual)


async def slow_network(it: Injector) -> None:
    """Makes every link, or those of one component, slow and lossy."""
    links = it.fleet.links
    if it.rng.random() < 0.6:
        victim = it.rng.choice(links).name.partition(">")[0]
        links = [link for link in links if link.name.startswith(f"{victim}>")]
    with (
        it.fault("the network is slow"),
        it.faulty(
            list(links),
            latency=(0.05, 1.5),
            drop_request=0.03,
            drop_response=0.03,
            delay=0.1,
            delay_up_to=20.0,
            cut_stream=0.02,
        ),
    ):
        await it.wait(1 * MINUTE, 10 * MINUTE)


async def watch_loss(it: Injector) -> None:
    """Breaks watches: too old, silent for ever, or with missing events."""
    way = it.rng.choice(("gone", "mute", "holes"))
    kube = [link for link in it.fleet.links if link.name.endswith(">kube")]
    it.fleet.report(f"watches: {way}")
    it.fleet.counts["faults"] += 1
    if way == "gone":
        it.fleet.kube.compact()
        it.fleet.kube.expire_watches()
        return
    with it.fault(f"watches of the API: {way}"):
        if way == "mute":
            for link in kube:
                link.mute()
            await it.wait(1.0, 2 * MINUTE)
        else:
            with it.faulty(kube, drop_chunk=0.2, duplicate_chunk=0.1):
                await it.wait(30.0, 5 * MINUTE)
            await it.fleet.clock.sleep(330.0)  # until the next full list this cannot be noticed


async def server_deploy(it: Injector) -> None:
    """Kills both replicas within seconds."""
    with it.fault("a deploy kills every server"):
        for replica in it.fleet.replicas:
            replica.process.crash()
            await it.wait(0.0, 3.0)


# Name → seconds between two faults on average, and the fault.
KINDS: dict[str, tuple[float, Inject]] = {
    "crash-server": (20 * MINUTE, crash_server),
    "crash-operator": (30 * MINUTE, crash_operator),
    "crash-agent": (15 * MINUTE, crash_agent),
    "webhooks": (50 * MINUTE, webhooks),
    "kube-outage": (70 * MINUTE, kube_outage),
    "github-outage": (60 * MINUTE, github_outage),
    "database-outage": (60 * MINUTE, database_outage),
    "hung-vm": (20 * MINUTE, hung_vm),
    "lost-node": (100 * MINUTE, lost_node),
    "stalled-pull": (60 * MINUTE, stalled_pull),
    "hung-driver": (60 * MINUTE, hung_driver),
    "growing-disks": (90 * MINUTE, growing_disks),
    "slow-network": (80 * MINUTE, slow_network),
    "watch-loss": (60 * MINUTE, watch_loss),
    "server-deploy": (80 * MINUTE, server_deploy),
}


def parse(text: str) -> tuple[str, ...]:
    """Parses `all`, `none` or a comma list of kinds; raises `ValueError` that names unknown ones."""
    if text == "all":
        return tuple(KINDS)
    wanted = [word.strip() for word in text.split(",") if word.strip() not in ("", "none")]
    unknown = [word for word in wanted if word not in KINDS]
    if unknown:
        raise ValueError(f"unknown fault: {', '.join(unknown)} (known: {', '.join(KINDS)})")
    return tuple(kind for kind in KINDS if kind in wanted)


class Schedule:
    """All faults of a run, concurrently."""

    def __init__(self, fleet: "Fleet") -> None:
        self._fleet = fleet
        self._tasks: list[asyncio.Task[object]] = []

    def start(self) -> None:
        """Starts all of them."""
        for kind in self._fleet.shape.faults:
            every, inject = KINDS[kind]
            work = Injector(self._fleet, kind).run(every, inject)
            self._tasks.append(self._fleet.background(work, f"faults {kind}"))

    def heal(self) -> None:
        """Ends all faults; each restores what it broke."""
        for task in self._tasks:
            task.cancel()
        self._fleet.stop_breaking_guests()
