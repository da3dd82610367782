"""The `tart-kubelet` command: the node agent's command line, flag for flag.

Hosts that are already provisioned start the agent with these flags, so this command parses and checks them
exactly as the agent will: a fleet's launch configuration can be validated in advance.

Invariants:
- This version has no driver for a real host, so after it has checked the flags the command prints that and
  exits with code 2; it never registers a Node.
- Flags of features that are not built (cache volumes, VNC relays) are refused by name, also when they
  come from the environment, because ignoring them would suggest that the feature works.
"""

import ipaddress
import sys

import click

from runyard.cli.main import run

NO_DRIVER = (
    "this version has no driver for a real host yet, so no Node was registered and no virtual machine"
    " was started. The flags are valid. The agent itself runs under simulation: try"
    " 'runyard sim --seed 1 --hours 2 --demo'."
)

# Flag → the environment variable beside it, and what it would need.
REFUSED = {
    "--vnc-control-dir": ("TART_KUBELET_VNC_CONTROL_DIR", "VNC relays"),
    "--vnc-relay-host": ("TART_KUBELET_VNC_RELAY_HOST", "VNC relays"),
    "--vnc-relay-port": ("TART_KUBELET_VNC_RELAY_PORT", "VNC relays"),
    "--runner-cache-root": ("TART_KUBELET_RUNNER_CACHE_ROOT", "per-account cache volumes"),
    "--cache-volume-cap-gib": ("TART_KUBELET_CACHE_VOLUME_CAP_GIB", "per-account cache volumes"),
    "--cache-volume-cas-gib": ("TART_KUBELET_CACHE_VOLUME_CAS_GIB", "per-account cache volumes"),
}


class NotInThisVersion(click.ClickException):
    """The feature is not implemented yet."""

    exit_code = 2


def _node_labels(ctx: click.Context, param: click.Parameter, value: str) -> dict[str, str]:
    labels: dict[str, str] = {}
    for pair in value.split(",") if value else ():
        key, equals, label = pair.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{pair!r} is not of the form key=value")
        labels[key.strip()] = label.strip()
    return labels


def _address(ctx: click.Context, param: click.Parameter, value: str) -> str:
    try:
        return str(ipaddress.ip_address(value)) if value else ""
    except ValueError:
        raise click.BadParameter(f"{value!r} is not an IP address") from None


def _networks(
    ctx: click.Context, param: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    try:
        return tuple(str(ipaddress.ip_network(item)) for item in value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _bind_address(ctx: click.Context, param: click.Parameter, value: str) -> str:
    host, colon, port = value.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise click.BadParameter(f"{value!r} is not of the form host:port")
    return f"{host}:{port}"


def _refuse(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    flag = param.opts[0]
    variable, feature = REFUSED[flag]
    if value:
        raise click.UsageError(
            f"{flag} (or {variable}) is set, but {feature} are not part of this version; remove it.",
            ctx=ctx,
        )


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
@click.command(context_settings={"max_content_width": 110})
@click.option(
    "--node-name", envvar="TART_KUBELET_NODE_NAME", help="Name of the Node. [default: host name]"
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
    help="Network (CIDR) that may scrape the host's metric forwarders; repeatable.",
)
@click.option(
    "--node-labels",
    envvar="TART_KUBELET_NODE_LABELS",
    default="",
    callback=_node_labels,
    help="Labels of the Node: key=value,key=value.",
)
@click.option(
    "--host-cpu", type=click.IntRange(min=0), default=8, show_default=True, help="Advertised cores."
)
@click.option(
    "--host-memory-mb",
    type=click.IntRange(min=0),
    default=16384,
    show_default=True,
    help="Advertised memory.",
)
@click.option(
    "--max-pods", type=click.IntRange(min=0), default=2, show_default=True, help="Advertised Pods."
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
    "--tart-binary", default="/usr/local/bin/tart", show_default=True, help="Path of tart."
)
@click.option(
    "--disable-vm-gc",
    is_flag=False,
    flag_value="true",
    default="false",
    type=bool,
    help="Never delete unused images or virtual machines on this host.",
)
@click.option(
    "--kubeconfig",
    envvar="KUBECONFIG",
    help="Kubeconfig of the cluster. [default: in-cluster, then ~/.kube/config]",
)
@click.version_option(package_name="runyard", prog_name="tart-kubelet")
def tart_kubelet(**flags: object) -> None:
    """Register this host as a Kubernetes Node and run each Pod bound to it as one Tart virtual machine.

    This version checks the flags and then stops: it has no driver for a real host yet.
    """
    raise NotInThisVersion(NO_DRIVER)


def main() -> None:
    """Entry point of the console command `tart-kubelet`."""
    sys.exit(run(tart_kubelet, name="tart-kubelet"))


if __name__ == "__main__":
    main()
