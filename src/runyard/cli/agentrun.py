"""Runs `runyard agent`: checks flags and starts the component."""

import ipaddress
import socket
from typing import Literal, NamedTuple, TextIO, cast

import msgspec

from runyard.cli.agent import Flags
from runyard.cli.agentserve import HostPlan, runner_archive, serve_host, server_ca
from runyard.cli.cluster import kubernetes_name
from runyard.cli.joinedagent import Host, joined_host
from runyard.cli.lifecycle import announce, run_component
from runyard.cli.options import BadSetting, labels_of
from runyard.cli.pollerflags import check_no_vm_options
from runyard.cli.probesocket import probe_socket
from runyard.cli.serverfiles import http_url
from runyard.cli.servicelog import ShortLog, service_log
from runyard.clock import RealClock
from runyard.components.hosting import Size, host_settings, machine_size, practice_relay
from runyard.node.settings import Settings
from runyard.telemetry.log import configure
from runyard.vm.registry import Opened, Wanted
from runyard.wire.paths import DISPATCH
from runyard.wire.reasons import render


def run(flags: Flags) -> None:
    """Run the agent until a signal stops it."""
    # The service that `runyard host join` installs appends to this file for ever.
    stream = cast(TextIO, ShortLog(service_log(flags.data))) if flags.joined else None
    if stream is not None:
        stream.write("")  # a start that fails again and again logs nothing
    configure(level=flags.log_level, json=flags.as_json, stream=stream)
    run_component(_live(flags))


async def _live(given: Flags) -> None:
    async with joined_host(given, clock=RealClock()) as host:
        await _serve(host)


async def _serve(host: Host) -> None:
    flags = host.flags
    node = kubernetes_name("--node-name", flags.node_name or socket.gethostname().lower())
    place = _node_flags(flags)
    if flags.driver == "process" or flags.images != flags.data / "images":
        _check_images(flags)
    plan = HostPlan(
        node=node,
        data=flags.data,
        kubeconfig=flags.kubeconfig,
        wanted=_wanted(flags, place),
        settings=lambda opened: settings_of(flags, node, opened, place),
        archive=runner_archive(flags.runner_archive, flags.runner_sha256),
    )

    def ready(urls: tuple[str, ...], opened: Opened) -> None:
        driver = f"driver {opened.name} ({render(opened.why)})"
        text = f"serving the node {node}, {driver}, probes at {urls[0]}"
        announce(text, as_json=flags.as_json, event="serving", url=urls[0], name=node)

    probes = probe_socket(flags.listen, flags.metrics_token_file, clock=RealClock())
    await serve_host(plan, (probes,), ready=ready, beside=host.beside, watched=host.watched)


def _check_images(flags: Flags) -> None:
    if flags.joined and flags.images == flags.data / "images" and not flags.images.exists():
        raise BadSetting(
            "--joined: there is no actions runner for hosts that run processes, which jobs of the real GitHub need."
            " Join again with --runner DIR"
        )
    if not flags.images.is_dir():
        raise BadSetting(
            f"--images: {flags.images} is not a directory. Give the directory that contains the images"
        )


def _wanted(flags: Flags, place: "NodeFlags") -> Wanted:
    return Wanted(
        home=flags.data / "vm",
        driver=flags.driver,
        tart=flags.tart_binary,
        slots=flags.vm_slots,
        insecure=flags.insecure_registry,
        images=flags.images,
        disk_mb=flags.pod_disk_mb,
        isolation=flags.isolation,
        relays=practice_relay(place.practice_url),
    )


class NodeFlags(NamedTuple):
    """The flags that describe the Node, checked before anything is started."""

    address: str
    labels: tuple[tuple[str, str], ...]
    dispatch_url: str
    practice_url: str


def _node_flags(flags: Flags) -> NodeFlags:
    """Check them; `BadSetting` says what is wrong."""
    try:
        address = str(ipaddress.ip_address(flags.node_ip))
    except ValueError:
        raise BadSetting(
            f"--node-ip: {flags.node_ip!r} is not an IP address. Write it as 192.0.2.7"
        ) from None
    url = http_url("--server-url", flags.server_url) + DISPATCH if flags.server_url else ""
    practice = http_url("--practice-url", flags.practice_url) if flags.practice_url else ""
    labels = labels_of("--node-labels", flags.node_labels)
    return NodeFlags(address, labels, url, practice)


def settings_of(flags: Flags, node: str, opened: Opened, place: NodeFlags) -> Settings:
    """The agent's settings by these flags."""
    if opened.name == "process":
        # A host that polls starts the runner itself, also in processes.
        directory = "" if flags.poller == "host" else flags.runner_directory
        slots = flags.vm_slots if flags.vm_slots_set else None
        check_no_vm_options(opened.why, slots=slots, directory=directory)
        _check_images(flags)
    # A Pod more than there are slots would wait here for one, and not go to another host.
    pods = flags.pods or (flags.vm_slots if opened.name == "tart" else Size().pods)
    share = machine_size(pods=pods) if opened.name == "tart" else Size(pods=pods)
    size = Size(
        pods=pods,
        cpu_milli=flags.pod_cpu_milli or share.cpu_milli,
        memory_mb=flags.pod_memory_mb or share.memory_mb,
        disk_mb=flags.pod_disk_mb,
    )
    settings = host_settings(
        node, opened, size=size, fleet=flags.fleet, labels=place.labels, address=place.address
    )
    usual: Literal["host", "guest"] = "host" if opened.name == "tart" else "guest"
    return msgspec.structs.replace(
        settings,
        dispatch_url=place.dispatch_url,
        poller=usual if flags.poller == "auto" else flags.poller,
        server_ca=server_ca(flags.server_ca_file),
        runner_directory=flags.runner_directory,
    )
