"""Runs `runyard agent`: reads files and checks flags, makes driver and clients, and starts the component."""

import contextlib
import ipaddress
import random
import socket
from typing import NamedTuple

import msgspec

from runyard.cli.agent import Flags
from runyard.cli.cluster import cluster, kubernetes_name, labels_of
from runyard.cli.lifecycle import announce, run_component, stop_on_signal, until
from runyard.cli.options import BadSetting
from runyard.cli.serverfiles import http_url, listening_socket
from runyard.clock import RealClock
from runyard.components import agent as component
from runyard.components.hosting import Size, process_driver, process_settings
from runyard.components.probing import ProbeSocket
from runyard.embedded.lock import DirectoryInUse, DirectoryLock, DirectoryStuck
from runyard.kube.client import Kube
from runyard.node.deps import Deps
from runyard.node.records import Records
from runyard.node.settings import Settings
from runyard.telemetry import conditions
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.log import configure, get_logger
from runyard.telemetry.meter import Meter
from runyard.vm.process.driver import ProcessDriver
from runyard.wire import names
from runyard.wire.paths import DISPATCH


def run(flags: Flags) -> None:
    """Run the agent until a signal stops it."""
    configure(level=flags.log_level, json=flags.as_json)
    run_component(_live(flags))


async def _live(flags: Flags) -> None:

    ending, clock = stop_on_signal(), RealClock()
    node = kubernetes_name("--node-name", flags.node_name or socket.gethostname().lower())
    log, size, place = get_logger("agent", node=node), _size(flags), _node_flags(flags)
    async with contextlib.AsyncExitStack() as stack:
        kube, _ = cluster(flags.kubeconfig, clock=clock, agent=names.NODE_AGENT)
        stack.push_async_callback(kube.close)
        _prepare(flags, stack)
        sock = listening_socket(flags.listen)
        stack.callback(sock.close)
        driver = await process_driver(
            flags.data / "vm",
            images=flags.images,
            clock=clock,
            size=size,
            isolation=flags.isolation,
        )
        deps = Deps(
            kube=Kube(kube, agent=names.NODE_AGENT),
            driver=driver,
            records=Records(flags.data / "records"),
            clock=clock,
            rng=random.SystemRandom(),
            meter=Meter(),
            log=log,
            settings=settings_of(flags, node, driver, size, place),
            health=Health(clock, conditions.ALL),
            freshness=Freshness(clock),
        )
        probes = (ProbeSocket(sock=sock),)

        def ready(urls: tuple[str, ...]) -> None:
            text = f"serving the node {node}, probes at {urls[0]}"
            announce(text, as_json=flags.as_json, event="serving", url=urls[0], name=node)

        await until(ending, component.serve(deps, probes, ready=ready))


def _size(flags: Flags) -> Size:

    return Size(
        pods=flags.pods,
        cpu_milli=flags.pod_cpu_milli,
        memory_mb=flags.pod_memory_mb,
        disk_mb=flags.pod_disk_mb,
    )


def _prepare(flags: Flags, stack: contextlib.AsyncExitStack) -> None:
    """Create the data directory and lock it for this agent."""

    try:
        flags.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise BadSetting(
            f"--data: {flags.data} cannot be used ({error.strerror}). Use a directory that you can write to"
        ) from None
    if not flags.images.is_dir():
        raise BadSetting(
            f"--images: {flags.images} is not a directory. Give the directory that contains the images"
        )
    lock = DirectoryLock(flags.data)
    try:
        lock.acquire()
    except (DirectoryInUse, DirectoryStuck):
        raise BadSetting(
            f"--data: {flags.data} is used by another agent. Stop that agent, or use another directory"
        ) from None
    stack.callback(lock.release)


class NodeFlags(NamedTuple):
    """The flags that describe the Node, checked before anything is started."""

    address: str
    labels: tuple[tuple[str, str], ...]
    dispatch_url: str


def _node_flags(flags: Flags) -> NodeFlags:
    """Check them; `BadSetting` says what is wrong."""

    try:
        address = str(ipaddress.ip_address(flags.node_ip))
    except ValueError:
        raise BadSetting(
            f"--node-ip: {flags.node_ip!r} is not an IP address. Write it as 192.0.2.7"
        ) from None
    url = http_url("--server-url", flags.server_url) + DISPATCH if flags.server_url else ""
    return NodeFlags(address, labels_of("--node-labels", flags.node_labels), url)


def settings_of(
    flags: Flags, node: str, driver: ProcessDriver, size: Size, place: NodeFlags
) -> Settings:
    """The agent's settings by these flags."""

    settings = process_settings(node, driver, size=size, fleet=flags.fleet, labels=place.labels)
    return msgspec.structs.replace(settings, node_ip=place.address, dispatch_url=place.dispatch_url)
