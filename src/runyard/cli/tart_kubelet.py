"""The `tart-kubelet` command: the node agent of a Mac, with the command line that existing hosts start it with.

A launchd configuration written for Tuist's agent keeps working: flags have the same names, defaults and variables, one
dash is as good as two, and the flags of its log library are understood. This module declares the flags;
`tartkubeletrun` runs the command.

Invariants:
- A flag that is accepted has an effect. What cannot have one here is named in a warning at the start, or refused.
- Flags of features that are not built (cache volumes, VNC relays) are refused by name, also when they
  come from the environment, because ignoring them would suggest that the feature works.
"""

import ipaddress
import sys
from pathlib import Path
from typing import Any, Literal, get_args

import click
import msgspec

from runyard.cli.main import run
from runyard.cli.options import (
    DRIVERS,
    INSECURE_REGISTRY,
    VM_SLOTS,
    Program,
    labels_of,
    with_options,
)
from runyard.cli.pollerflags import POLLING
from runyard.telemetry.log import ZapTime

# Flag → the environment variable beside it, and what it would need.
REFUSED = {
    "--vnc-control-dir": ("TART_KUBELET_VNC_CONTROL_DIR", "VNC relays"),
    "--vnc-relay-host": ("TART_KUBELET_VNC_RELAY_HOST", "VNC relays"),
    "--vnc-relay-port": ("TART_KUBELET_VNC_RELAY_PORT", "VNC relays"),
    "--runner-cache-root": ("TART_KUBELET_RUNNER_CACHE_ROOT", "per-account cache volumes"),
    "--cache-volume-cap-gib": ("TART_KUBELET_CACHE_VOLUME_CAP_GIB", "per-account cache volumes"),
    "--cache-volume-cas-gib": ("TART_KUBELET_CACHE_VOLUME_CAS_GIB", "per-account cache volumes"),
}


# Their defaults in existing hosts: without effect while the feature is off.
_DEFAULTS = {
    "--vnc-control-dir": "/var/lib/tart-vnc-control",
    "--vnc-relay-port": "0",
    "--cache-volume-cap-gib": "20",
    "--cache-volume-cas-gib": "0",
}


class Flags(msgspec.Struct, frozen=True, kw_only=True):
    """All flags, checked and with their defaults."""

    node_name: str
    provider_id: str
    node_ip: str
    node_ip_source: Literal["auto", "tailscale"]
    scrape_allowed_cidr: tuple[str, ...]
    node_labels: dict[str, str]
    host_cpu: int
    host_memory_mb: int
    max_pods: int
    metrics_bind_address: str
    health_probe_bind_address: str
    tart_binary: str
    disable_vm_gc: bool
    kubeconfig: str
    driver: Literal["auto", "tart", "process"]
    vm_slots: int
    insecure_registry: tuple[str, ...]
    poller: Literal["host", "guest"]
    server_ca_file: Path | None
    runner_directory: str
    runner_archive: str
    runner_sha256: str
    data: Path
    zap_devel: bool
    zap_encoder: str
    zap_log_level: str
    zap_stacktrace_level: str
    zap_time_encoding: ZapTime | Literal[""]


class GoBool(click.ParamType[bool]):
    """A truth value as Go reads it; an empty one, as of a template's missing variable, is none."""

    name = "true|false"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bool:
        """Convert the text."""
        if str(value) in ("1", "t", "T", "true", "TRUE", "True"):
            return True
        if str(value) in ("0", "f", "F", "false", "FALSE", "False"):
            return False
        raise click.BadParameter(f"{value!r} is neither true nor false", ctx, param)


class GoFlags(click.Command):
    """A command whose flags may be written as Go's: `-node-name=x` and `--node-name=x` are the same."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Write one dash as two, and let click parse."""
        return super().parse_args(ctx, [_two_dashes(arg) for arg in args])


def _two_dashes(arg: str) -> str:
    single = arg.startswith("-") and arg[1:2].isalpha() and arg != "-h"
    return f"-{arg}" if single else arg


def _node_labels(ctx: click.Context, param: click.Parameter, value: str) -> dict[str, str]:
    return dict(labels_of("--node-labels", value))


def _address(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Refuse what is no host's address: it is published in the Node and in the status of its Pods."""
    if not value:
        return ""
    try:
        found = ipaddress.ip_address(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not an IP address") from None
    if found.is_unspecified or found.is_multicast or "%" in value:
        raise click.BadParameter(f"{value!r} is no address at which other machines reach this host")
    return str(found)


def _networks(
    ctx: click.Context, param: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    try:
        return tuple(str(ipaddress.ip_network(item, strict=False)) for item in value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _bind_address(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if value == "0":  # as controllers written with controller-runtime switch a server off
        return value
    host, colon, port = value.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise click.BadParameter(f"{value!r} is not of the form host:port (or 0: do not serve)")
    return f"{host}:{port}"


def _refuse(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    flag = param.opts[0]
    variable, feature = REFUSED[flag]
    if (value or "") not in ("", _DEFAULTS.get(flag)):
        raise click.UsageError(
            f"{flag} (or {variable}) is set, but {feature} are not part of this version; remove it.",
            ctx=ctx,
        )


def _log_level(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """A level of zap as one of ours: a number is a verbosity, and higher numbers are more verbose."""
    if value.isascii() and value.isdigit() and int(value) > 0:
        return "debug"
    levels = {"panic": "error", "": ""}
    level = levels.get(value.lower(), value.lower())
    if level not in ("", "debug", "info", "warning", "error"):
        raise click.BadParameter(f"{value!r} is not debug, info, error, panic or a number from 1")
    return level


def _with_refused_flags(command: click.Command) -> click.Command:
    for flag, (variable, feature) in REFUSED.items():
        option = click.Option(
            [flag],
            envvar=variable,
            callback=_refuse,
            expose_value=False,
            help=f"Refused: {feature} are not part of this version.",
        )
        command.params.append(option)
    return command


@_with_refused_flags
@click.command(
    cls=GoFlags,
    context_settings={"max_content_width": 110, "help_option_names": ["-h", "--help"]},
)
@click.option(
    "--node-name",
    default="",
    envvar="TART_KUBELET_NODE_NAME",
    help="Name of the Node. [default: host name]",
)
@click.option(
    "--provider-id",
    envvar="TART_KUBELET_PROVIDER_ID",
    default="",
    help="The Node's providerID, set once.",
)
@click.option(
    "--node-ip",
    envvar="TART_KUBELET_NODE_IP",
    default="",
    callback=_address,
    help="Routable address of this host; overrides the source.",
)
@click.option(
    "--node-ip-source",
    envvar="TART_KUBELET_NODE_IP_SOURCE",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "tailscale"]),
    help="Where the address comes from.",
)
@click.option(
    "--scrape-allowed-cidr",
    multiple=True,
    callback=_networks,
    help="Network (CIDR) whose clients may read /metrics; repeatable.  [default: private networks and tailnets]",
)
@click.option(
    "--node-labels",
    envvar="TART_KUBELET_NODE_LABELS",
    default="",
    callback=_node_labels,
    help="Labels of the Node: key=value,key=value.",
)
@click.option(
    "--host-cpu",
    type=click.IntRange(0, 1024),
    default=8,
    show_default=True,
    help="Advertised cores; 0 is 8.",
)
@click.option(
    "--host-memory-mb",
    type=click.IntRange(0, 1 << 26),
    default=16384,
    show_default=True,
    help="Advertised memory; 0 is 16384.",
)
@click.option(
    "--max-pods",
    type=click.IntRange(0, 110),
    default=2,
    show_default=True,
    help="Advertised Pods; 0 is 2.",
)
@click.option(
    "--metrics-bind-address",
    default=":8080",
    show_default=True,
    callback=_bind_address,
    help="Where /metrics is served.",
)
@click.option(
    "--health-probe-bind-address",
    default=":8081",
    show_default=True,
    callback=_bind_address,
    help="Where /healthz and /readyz are served.",
)
@click.option(
    "--tart-binary",
    type=Program(),
    default="/usr/local/bin/tart",
    show_default=True,
    help="Path of tart.",
)
@click.option(
    "--disable-vm-gc",
    is_flag=False,
    flag_value="true",
    default="false",
    type=GoBool(),
    help="Never delete unused images or virtual machines on this host.",
)
@click.option(
    "--kubeconfig",
    default="",
    help="Kubeconfig of the cluster.  [default: KUBECONFIG, in-cluster, ~/.kube/config]",
)
@click.option(
    "--driver",
    envvar="RUNYARD_DRIVER",
    type=DRIVERS,
    default="tart",
    show_default=True,
    help="How Pods are run. tart: as macOS VMs. process: as groups of processes. auto: tart where it works.",
)
@VM_SLOTS
@INSECURE_REGISTRY
@click.option(
    "--poller",
    type=click.Choice(["host", "guest"]),
    default="guest",
    show_default=True,
    help="Who asks the server for a job: the guest's own script, or this host. A pool's annotation goes first.",
)
@with_options(POLLING)
@click.option(
    "--data",
    envvar="RUNYARD_AGENT_DATA",
    type=click.Path(file_okay=False, path_type=Path),
    default=lambda: Path.home() / ".local" / "share" / "runyard-agent",
    show_default="~/.local/share/runyard-agent",
    help="Directory of this agent's records and logs; kept across restarts.",
)
@click.option(
    "--zap-devel",
    is_flag=False,
    flag_value="true",
    default="false",
    type=GoBool(),
    help="Log as text, at level debug.",
)
@click.option(
    "--zap-encoder",
    type=click.Choice(["", "json", "console"], case_sensitive=False),
    default="",
    help="Log as JSON or as text.  [default: json]",
)
@click.option(
    "--zap-log-level",
    default="",
    callback=_log_level,
    help="debug, info, error, panic, or a number from 1, which is debug.  [default: info]",
)
@click.option(
    "--zap-stacktrace-level",
    type=click.Choice(["", "debug", "info", "warn", "error", "panic"], case_sensitive=False),
    default="",
    help="Has no effect here; named in a warning.",
)
@click.option(
    "--zap-time-encoding",
    type=click.Choice(["", *get_args(ZapTime)], case_sensitive=False),
    default="",
    help="How JSON lines write their time `ts`.  [default: epoch]",
)
@click.version_option(package_name="runyard", prog_name="tart-kubelet")
def tart_kubelet(**given: Any) -> None:
    """Register this host as a Kubernetes Node and run each Pod bound to it as one virtual machine.

    Jobs continue while the agent is restarted, upgraded or killed: the next agent with the same --data takes
    them over. The agent uses only this host's own account; create it with

    \b
    runyard manifests --component agent --host mini-1 | kubectl apply -f -
    """
    from runyard.cli.tartkubeletrun import run as run_agent

    given["data"] = given["data"].absolute()
    given["node_labels"] = dict(given["node_labels"])
    run_agent(msgspec.convert(given, Flags))


def main() -> None:
    """Entry point of the console command `tart-kubelet`."""
    sys.exit(run(tart_kubelet, name="tart-kubelet"))


if __name__ == "__main__":
    main()
