"""`runyard operator`: one replica of the pool operator, on any Kubernetes cluster.

This module declares the options; `operatorrun` runs the command. Exit codes: 0 stopped by a signal, 1 it failed, 2 it
could not start: a bad setting is one line with its cause and its fix.
"""

from pathlib import Path
from typing import Any

import click
import msgspec

from runyard.cli.clusterflags import KUBECONFIG, NAMESPACE, name_option, probes_options
from runyard.cli.options import LOGGING, Option, with_options
from runyard.wire import names
from runyard.wire.paths import DISPATCH


class Flags(msgspec.Struct, frozen=True, kw_only=True):
    """All options, from the command line or the environment."""

    kubeconfig: str
    namespace: str
    controller_namespace: str
    server_url: str
    server_ca_file: Path | None
    dispatch_url: str
    dispatch_internal_url: str
    leader_elect: bool
    listen: str
    metrics_token_file: Path | None
    name: str
    as_json: bool
    log_level: str


SERVER: tuple[Option, ...] = (
    click.option(
        "--server-url",
        envvar="RUNYARD_SERVER_URL",
        default="",
        help="Base URL of the dispatch server: the operator reports stopped Pods to it, and runners poll it for jobs.",
    ),
    click.option(
        "--server-ca-file",
        envvar="RUNYARD_SERVER_CA_FILE",
        type=click.Path(dir_okay=False, path_type=Path),
        help="The only certificate authority trusted for --server-url (PEM).",
    ),
    click.option(
        "--dispatch-url",
        envvar="TUIST_RUNNER_DISPATCH_URL",
        default="",
        help=f"URL that runners poll for jobs, if they need another address.  [default: SERVER_URL{DISPATCH}]",
    ),
    click.option(
        "--dispatch-internal-url",
        envvar="TUIST_RUNNER_DISPATCH_INTERNAL_URL",
        default="",
        help="URL that Linux runners inside the cluster poll for jobs.  [default: --dispatch-url]",
    ),
)
ELECTION: tuple[Option, ...] = (
    click.option(
        "--leader-elect/--no-leader-elect",
        envvar="RUNYARD_LEADER_ELECT",
        default=True,
        show_default=True,
        help=f"Write only while this replica holds the Lease {names.CONTROLLER_LEASE}.",
    ),
    click.option(
        "--controller-namespace",
        envvar="TUIST_RUNNERS_CONTROLLER_NAMESPACE",
        default=names.CONTROLLER_NAMESPACE,
        show_default=True,
        help="Namespace of that Lease.",
    ),
)


@click.command(context_settings={"max_content_width": 110})
@with_options(
    (
        KUBECONFIG,
        NAMESPACE,
        *SERVER,
        *ELECTION,
        *probes_options(9092),
        name_option("replica"),
        *LOGGING,
    )
)
def operator(**given: Any) -> None:
    """Run one replica of the pool operator: it creates and deletes the runner Pods of each RunnerPool.

    Any number of replicas may run; one leads and writes, the others wait. When the leader shuts down, another one
    leads within 3 s; when it is killed or loses the network, within about 18 s. A leader that loses the network or is
    paused stops writing before another one starts. Running jobs are not affected.

    First create the RunnerPool definition, namespaces, roles and the operator's account in the cluster:

    \b
    runyard manifests --component crd --component operator | kubectl apply -f -

    Then start the operator and check it:

    \b
    runyard operator --kubeconfig operator.kubeconfig --server-url https://runners.example
    kubectl -n tuist get lease runners-controller.tuist.dev       which replica leads
    curl localhost:9092/readyz                                    lists problems
    """
    from runyard.cli.operatorrun import run

    run(msgspec.convert(given, Flags))
