"""The flags of `runyard server`, group by group, each with the variable that may stand for it.

Secrets come from files: arguments can be read by others.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from runyard.cli.living import LOGGING
from runyard.cli.resultflags import RESULTS, ResultFlags
from runyard.cli.speaking import OPTIONS, RUNNER_GROUP, Option, Said, intake, said, with_options
from runyard.wire import names

_FILE = click.Path(dir_okay=False, path_type=Path)


class Flags(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was said on the command line or in the environment."""

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
    github: Said
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
        help="Postgres, also through PgBouncer. With a password in it better in a file.",
    ),
    click.option(
        "--database-url-file",
        envvar="RUNYARD_DATABASE_URL_FILE",
        type=_FILE,
        help="File that holds the URL.",
    ),
    click.option(
        "--database-direct-url",
        envvar="RUNYARD_DATABASE_DIRECT_URL",
        default="",
        help="The same database past PgBouncer: replicas then wake each other at once.",
    ),
    click.option(
        "--database-direct-url-file",
        envvar="RUNYARD_DATABASE_DIRECT_URL_FILE",
        type=_FILE,
        help="File that holds the direct URL.",
    ),
    click.option(
        "--database-connections",
        envvar="RUNYARD_DATABASE_CONNECTIONS",
        type=click.IntRange(2, 200),
        default=8,
        show_default=True,
        help="At most so many connections of this replica.",
    ),
    click.option(
        "--migrate/--no-migrate",
        envvar="RUNYARD_MIGRATE",
        default=True,
        show_default=True,
        help="Apply what this release adds to the schema, or wait until somebody has (runyard migrate pre).",
    ),
)
CLUSTER: tuple[Option, ...] = (
    click.option(
        "--kubeconfig",
        default="",
        help="How to reach the cluster.  [default: KUBECONFIG, in-cluster, ~/.kube/config]",
    ),
    click.option(
        "--namespace",
        envvar="TUIST_RUNNERS_NAMESPACE",
        default=names.RUNNERS_NAMESPACE,
        show_default=True,
        help="Where the runners' Pods are.",
    ),
    click.option(
        "--controller-namespace",
        envvar="TUIST_RUNNERS_CONTROLLER_NAMESPACE",
        default=names.CONTROLLER_NAMESPACE,
        show_default=True,
        help="Where the pool operator's ServiceAccount is.",
    ),
    click.option(
        "--controller-account",
        envvar="TUIST_RUNNERS_CONTROLLER_SA_NAME",
        default=names.CONTROLLER_ACCOUNT,
        show_default=True,
        help="The pool operator's ServiceAccount.",
    ),
)
SOCKET: tuple[Option, ...] = (
    click.option(
        "--listen",
        envvar="RUNYARD_LISTEN",
        default="127.0.0.1:8080",
        show_default=True,
        help="HOST:PORT of the API, the dashboard and the probes; port 0 is any free one.",
    ),
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
        help="Where people open the dashboard, if a proxy is in between: https://runners.example",
    ),
    click.option(
        "--dashboard-token-file",
        envvar="RUNYARD_DASHBOARD_TOKEN_FILE",
        type=_FILE,
        help="File with the token that opens dashboard and REST; needed as soon as --listen is not loopback.",
    ),
)
GITHUB: tuple[Option, ...] = (
    *OPTIONS,
    intake("webhook"),
    RUNNER_GROUP,
    click.option(
        "--webhook-secret-file",
        envvar="RUNYARD_WEBHOOK_SECRET_FILE",
        type=_FILE,
        multiple=True,
        help="File with the webhook's secret; repeatable, so that it can be changed without a gap.",
    ),
)
ITSELF: tuple[Option, ...] = (
    click.option(
        "--seal-key-file",
        envvar="RUNYARD_SEAL_KEY_FILE",
        type=_FILE,
        help="File with 32 bytes in base64: JITs at rest are sealed with it. All replicas have the same.",
    ),
    click.option(
        "--reconciler",
        envvar="RUNYARD_RECONCILER",
        multiple=True,
        metavar="NAME=MODE",
        help="Switch one reconciler: enabled, dry_run (only says what it would do) or off; repeatable.",
    ),
    click.option(
        "--name",
        envvar="RUNYARD_NAME",
        default="",
        help="This replica's name in the audit trail.  [default: host name and process]",
    ),
    *LOGGING,
)


def flags_of(given: Mapping[str, Any]) -> Flags:
    """What a command was given, as one value."""
    grouped = {*Said.__struct_fields__, *ResultFlags.__struct_fields__}
    own = {name: value for name, value in given.items() if name not in grouped}
    results = {name: given[name] for name in ResultFlags.__struct_fields__}
    return Flags(github=said(given), results=ResultFlags(**results), **own)


with_flags = with_options((*DATABASE, *CLUSTER, *SOCKET, *GITHUB, *RESULTS, *ITSELF))
