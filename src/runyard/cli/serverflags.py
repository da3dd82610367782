"""Options of `runyard server`, in groups, each with its environment variable.

Secrets are read from files: other users of a machine can read arguments.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from runyard.cli.githubflags import INTAKE, OPTIONS, RUNNER_GROUP, GithubFlags, github_flags
from runyard.cli.options import LOGGING, Option, listen_option, metrics_token_option, with_options
from runyard.cli.resultflags import RESULTS, ResultFlags
from runyard.wire import names

_FILE = click.Path(dir_okay=False, path_type=Path)


class Flags(msgspec.Struct, frozen=True, kw_only=True):
    """All options, from the command line or the environment."""

    database_url: str
    database_url_file: Path | None
    database_direct_url: str
    database_direct_url_file: Path | None
    database_connections: int
    migrate: bool
    kubeconfig: str
    namespace: str
    controller_namespace: str
    controller_account: str
    listen: str
    tls_cert_file: Path | None
    tls_key_file: Path | None
    public_url: str
    dashboard_token_file: Path | None
    metrics_token_file: Path | None
    github: GithubFlags
    github_intake: str
    runner_group: int
    webhook_secret_file: tuple[Path, ...]
    seal_key_file: Path | None
    results: ResultFlags
    reconciler: tuple[str, ...]
    name: str
    as_json: bool
    log_level: str


DATABASE: tuple[Option, ...] = (
    click.option(
        "--database-url",
        envvar="DATABASE_URL",
        default="",
        help="URL of Postgres, or of a PgBouncer in front of it. If it has a password, use --database-url-file.",
    ),
    click.option(
        "--database-url-file",
        envvar="RUNYARD_DATABASE_URL_FILE",
        type=_FILE,
        help="File with the URL of Postgres.",
    ),
    click.option(
        "--database-direct-url",
        envvar="RUNYARD_DATABASE_DIRECT_URL",
        default="",
        help="URL of the same Postgres without PgBouncer, so that replicas can notify each other at once.",
    ),
    click.option(
        "--database-direct-url-file",
        envvar="RUNYARD_DATABASE_DIRECT_URL_FILE",
        type=_FILE,
        help="File with the direct URL.",
    ),
    click.option(
        "--database-connections",
        envvar="RUNYARD_DATABASE_CONNECTIONS",
        type=click.IntRange(2, 200),
        default=8,
        show_default=True,
        help="Largest number of connections of this replica.",
    ),
    click.option(
        "--migrate/--no-migrate",
        envvar="RUNYARD_MIGRATE",
        default=True,
        show_default=True,
        help="Apply the schema's pre-migrations at the start; otherwise wait until `runyard migrate pre` was run.",
    ),
)
CLUSTER: tuple[Option, ...] = (
    click.option(
        "--kubeconfig",
        default="",
        help="Kubeconfig of the cluster.  [default: KUBECONFIG, in-cluster, ~/.kube/config]",
    ),
    click.option(
        "--namespace",
        envvar="TUIST_RUNNERS_NAMESPACE",
        default=names.RUNNERS_NAMESPACE,
        show_default=True,
        help="Namespace of the runners' Pods.",
    ),
    click.option(
        "--controller-namespace",
        envvar="TUIST_RUNNERS_CONTROLLER_NAMESPACE",
        default=names.CONTROLLER_NAMESPACE,
        show_default=True,
        help="Namespace of the pool operator's ServiceAccount.",
    ),
    click.option(
        "--controller-account",
        envvar="TUIST_RUNNERS_CONTROLLER_SA_NAME",
        default=names.CONTROLLER_ACCOUNT,
        show_default=True,
        help="Name of the pool operator's ServiceAccount.",
    ),
)
SOCKET: tuple[Option, ...] = (
    listen_option("127.0.0.1:8080", "the API, the dashboard and the probes"),
    click.option(
        "--tls-cert-file",
        envvar="RUNYARD_TLS_CERT_FILE",
        type=_FILE,
        help="Serve TLS with this certificate (PEM).",
    ),
    click.option(
        "--tls-key-file",
        envvar="RUNYARD_TLS_KEY_FILE",
        type=_FILE,
        help="The certificate's key (PEM).",
    ),
    click.option(
        "--public-url",
        envvar="RUNYARD_PUBLIC_URL",
        default="",
        help="URL of the dashboard for browsers, if it is behind a proxy: https://runners.example",
    ),
    click.option(
        "--dashboard-token-file",
        envvar="RUNYARD_DASHBOARD_TOKEN_FILE",
        type=_FILE,
        help="File with the token for dashboard and REST.  [default on loopback: dashboard.token in the data directory"
        " of 'runyard up', written if it is missing]",
    ),
    metrics_token_option("/metrics and nothing else"),
)
GITHUB: tuple[Option, ...] = (
    *OPTIONS,
    INTAKE,
    RUNNER_GROUP,
    click.option(
        "--webhook-secret-file",
        envvar="RUNYARD_WEBHOOK_SECRET_FILE",
        type=_FILE,
        multiple=True,
        help="File with the webhook's secret; repeatable, to rotate it without downtime.",
    ),
)
ITSELF: tuple[Option, ...] = (
    click.option(
        "--seal-key-file",
        envvar="RUNYARD_SEAL_KEY_FILE",
        type=_FILE,
        help="File with the key (32 bytes in base64) that encrypts JIT configurations; the same for all replicas.",
    ),
    click.option(
        "--reconciler",
        envvar="RUNYARD_RECONCILER",
        multiple=True,
        metavar="NAME=MODE",
        help="Switch one reconciler: enabled, dry_run (only logs what it would do) or off; repeatable.",
    ),
    click.option(
        "--name",
        envvar="RUNYARD_NAME",
        default="",
        help="Name of this replica in logs and in the audit trail.  [default: HOSTNAME-PID]",
    ),
    *LOGGING,
)


def flags_of(given: Mapping[str, Any]) -> Flags:
    """All options of a command as one value."""
    grouped = {*GithubFlags.__struct_fields__, *ResultFlags.__struct_fields__}
    own = {name: value for name, value in given.items() if name not in grouped}
    results = {name: given[name] for name in ResultFlags.__struct_fields__}
    return Flags(github=github_flags(given), results=ResultFlags(**results), **own)


with_flags = with_options((*DATABASE, *CLUSTER, *SOCKET, *GITHUB, *RESULTS, *ITSELF))
