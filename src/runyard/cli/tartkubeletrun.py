"""Runs `tart-kubelet`: finds the Node's name and address, and starts the component."""

import asyncio
import socket

import click
import msgspec

from runyard.cli.agentserve import HostPlan, runner_archive, serve_host, server_ca
from runyard.cli.cluster import kubernetes_name
from runyard.cli.lifecycle import run_component
from runyard.cli.options import BadSetting, Failed
from runyard.cli.tart_kubelet import Flags
from runyard.components.allowed_clients import PRIVATE, allow
from runyard.components.hosting import Size, host_settings
from runyard.components.node_address import NoAddress, own_address, tailscale_address
from runyard.components.probing import ProbeSocket
from runyard.http.sockets import bind
from runyard.node.settings import Settings
from runyard.telemetry.log import configure, get_logger
from runyard.vm.registry import Opened, Wanted
from runyard.wire import names
from runyard.wire.reasons import render

_DEFAULT_METRICS = ":8080"
_OFF = "0"
# What a flag with the value 0 means.
_CPU, _MEMORY_MB, _PODS = 8, 16384, 2


def run(flags: Flags) -> None:
    """Run the agent until a signal stops it."""
    json = flags.zap_encoder != "console" and not flags.zap_devel
    level = flags.zap_log_level or ("debug" if flags.zap_devel else "info")
    configure(level=level, json=json, zap_time=flags.zap_time_encoding or "epoch")
    node = kubernetes_name("--node-name", flags.node_name or socket.gethostname().lower())
    log = get_logger("agent", node=node)
    if flags.zap_stacktrace_level:
        log.warning("a flag has no effect and may be removed", flag="--zap-stacktrace-level")
    _check_labels(flags, node)
    address = _node_address(flags)
    if not address:
        log.warning("no address for other machines was found: the Node has none; give --node-ip")
    plan = HostPlan(
        node=node,
        data=flags.data,
        kubeconfig=flags.kubeconfig,
        wanted=Wanted(
            home=flags.data / "vm",
            driver=flags.driver,
            tart=flags.tart_binary,
            slots=flags.vm_slots,
            insecure=flags.insecure_registry,
        ),
        settings=lambda opened: settings_of(flags, node, opened, address),
        archive=runner_archive(flags.runner_archive, flags.runner_sha256),
    )

    def ready(urls: tuple[str, ...], opened: Opened) -> None:
        line = {"event": "serving", "name": node, "urls": urls, "driver": opened.name}
        line["reason"] = render(opened.why)
        click.echo(msgspec.json.encode(line).decode())

    run_component(serve_host(plan, sockets(flags, address), ready=ready))


def _check_labels(flags: Flags, node: str) -> None:
    """Refuse labels that would say something else than what this host is."""
    fixed = {
        names.NODE_OS: "darwin",
        names.NODE_ARCH: "arm64",
        names.NODE_HOSTNAME: node,
        names.NODE_RUNTIME: names.NODE_RUNTIME_TART,
    }
    for name, value in flags.node_labels.items():
        if flags.driver == "tart" and fixed.get(name, value) != value:
            raise BadSetting(
                f"--node-labels: {name} is always {fixed[name]} on this host. Remove {name}={value}"
            )


def _node_address(flags: Flags) -> str:
    if flags.node_ip:
        return flags.node_ip
    if flags.node_ip_source == "auto":
        return own_address()
    try:
        return asyncio.run(tailscale_address())
    except NoAddress as error:
        raise Failed(f"--node-ip-source tailscale: {error}") from None


def sockets(flags: Flags, address: str) -> tuple[ProbeSocket, ...]:
    """Probes for all clients, metrics for the allowed networks; either may be switched off.

    `/readyz` is 200 as long as it answers, as on existing hosts: no request is ever sent to the agent because of it.
    What does not work is in its body.
    """
    metrics = flags.metrics_bind_address
    if metrics == _DEFAULT_METRICS and flags.node_ip_source == "tailscale":
        metrics = f"{address}:8080"  # never on a public address
    bound = []
    if flags.health_probe_bind_address != _OFF:
        sock = _bound("--health-probe-bind-address", flags.health_probe_bind_address)
        bound.append(ProbeSocket(sock=sock, metrics=False, needs=()))
    if metrics != _OFF:
        guard = allow(flags.scrape_allowed_cidr or PRIVATE)
        sock = _bound("--metrics-bind-address", metrics)
        bound.append(ProbeSocket(sock=sock, metrics_guard=guard, probes=False))
    return tuple(bound)


def settings_of(flags: Flags, node: str, opened: Opened, address: str) -> Settings:
    """The agent's settings by these flags."""
    pods = flags.max_pods or _PODS
    size = Size(
        pods=pods,
        cpu_milli=(flags.host_cpu or _CPU) * 1000 // pods,
        memory_mb=(flags.host_memory_mb or _MEMORY_MB) // pods,
    )
    labels = tuple(sorted(flags.node_labels.items()))
    settings = host_settings(node, opened, size=size, fleet="", labels=labels, address=address)
    return msgspec.structs.replace(
        settings,
        provider_id=flags.provider_id,
        cpu_milli=(flags.host_cpu or _CPU) * 1000,
        memory_mb=flags.host_memory_mb or _MEMORY_MB,
        gc=not flags.disable_vm_gc,
        poller=flags.poller,
        refuse_loopback=False,  # existing hosts pass the Pods' environment on unchanged
        server_ca=server_ca(flags.server_ca_file),
        runner_directory=flags.runner_directory,
        fleet=flags.node_labels.get(names.NODE_FLEET, ""),
    )


def _bound(flag: str, value: str) -> socket.socket:
    host, _, port = value.rpartition(":")
    try:
        return bind(host.removeprefix("[").removesuffix("]") or "0.0.0.0", int(port))  # noqa: S104 as Go's ":8080"
    except OSError as error:
        raise BadSetting(
            f"{flag}: {value} cannot be bound ({error.strerror or error})."
            " Stop the program that uses it, or choose another address"
        ) from None
