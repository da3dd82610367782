"""Flags shared by the commands that run a component on a Kubernetes cluster."""

import click

from runyard.cli.options import Option, listen_option, metrics_token_option
from runyard.wire import names

KUBECONFIG: Option = click.option(
    "--kubeconfig",
    default="",
    help="Kubeconfig of the cluster.  [default: KUBECONFIG, in-cluster, ~/.kube/config]",
)
NAMESPACE: Option = click.option(
    "--namespace",
    envvar="TUIST_RUNNERS_NAMESPACE",
    default=names.RUNNERS_NAMESPACE,
    show_default=True,
    help="Namespace of the RunnerPools and the runner Pods.",
)


def name_option(component: str) -> Option:
    """`--name` of a component."""
    return click.option(
        "--name",
        envvar="RUNYARD_NAME",
        default="",
        help=f"Name of this {component} in logs.  [default: HOSTNAME-PID]",
    )


def probes_options(port: int) -> tuple[Option, Option]:
    """Options of a component that serves probes and metrics only."""
    return (
        listen_option(f"127.0.0.1:{port}", "/healthz, /readyz and /metrics"),
        metrics_token_option("/metrics and what /readyz lists, and nothing else"),
    )
