"""Runs `runyard server`: reads and checks settings and builds dependencies; `components` is the server."""

import contextlib
import os
import random
import re
from pathlib import Path
from urllib.parse import urlsplit

from runyard.cli.github_auth import GithubIdentity, github_identity
from runyard.cli.lifecycle import announce, process_name, run_component, stop_on_signal
from runyard.cli.local_machine import machine_root
from runyard.cli.options import BadSetting
from runyard.cli.probesocket import metrics_token
from runyard.cli.resultflags import results_of
from runyard.cli.schema import Schema
from runyard.cli.serverfiles import database, listening_socket, seal_key, text_of, tls_context
from runyard.cli.serverflags import Flags
from runyard.clock import Clock, RealClock
from runyard.components import server as component
from runyard.components.server import ServerSocket
from runyard.db.notices import PostgresNotices
from runyard.db.pooled import open_pool
from runyard.dispatch import modes
from runyard.dispatch.deps import Deps
from runyard.dispatch.settings import Settings
from runyard.embedded.up.layout import BadDirectory, Layout
from runyard.embedded.up.token_files import ensure_token
from runyard.github.manifest import web_of
from runyard.http.addresses import is_loopback
from runyard.http.metrics_access import AccessError
from runyard.kube.auth import AuthTransport
from runyard.kube.client import Kube
from runyard.kube.config import ConfigError
from runyard.kube.connect import connect
from runyard.kube.kubeconfig import find_config
from runyard.telemetry import conditions
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.log import Logger, configure, get_logger
from runyard.telemetry.meter import Meter
from runyard.web.access import Access
from runyard.web.settings import Settings as DashboardSettings

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def run(flags: Flags) -> None:
    """Run the replica until a signal stops it; `BadSetting` says what is wrong with the flags."""
    configure(level=flags.log_level, json=flags.as_json)
    try:
        run_component(_live(flags))
    except ConfigError as error:
        raise BadSetting(str(error)) from None


async def _live(flags: Flags) -> None:
    ending, name = stop_on_signal(), process_name(flags.name)
    log = get_logger("server", server=name)
    async with contextlib.AsyncExitStack() as stack:
        conninfo = database(
            "--database-url",
            flags.database_url,
            flags.database_url_file,
            why="jobs and slots are stored in Postgres",
        )
        who = github_identity(flags.github, clock=RealClock())
        deps = await _deps(flags, who, conninfo, stack, log=log)
        results = results_of(
            flags.results,
            public_url=flags.public_url,
            seal_key=deps.settings.seal_key,
            clock=deps.clock,
        )
        server_socket = _server_socket(flags, who, deps.clock, stack, log=log)
        schema = Schema(conninfo, apply=flags.migrate, clock=deps.clock, log=log)

        def ready(urls: tuple[str, ...]) -> None:
            for url in urls:
                text = f"serving {url} as {name}"
                announce(text, as_json=flags.as_json, event="serving", url=url, name=name)

        await component.serve(
            deps, (server_socket,), prepare=schema.wait, ready=ready, results=results, ending=ending
        )


async def _deps(
    flags: Flags,
    who: GithubIdentity,
    conninfo: str,
    stack: contextlib.AsyncExitStack,
    *,
    log: Logger,
) -> Deps:
    """Read and check all settings first; connections are opened when they are needed."""
    clock, rng, meter = RealClock(), random.SystemRandom(), Meter()
    settings = settings_of(flags, who)
    kube = _kube(flags, clock)
    stack.push_async_callback(kube.close)
    github = who.transport()
    stack.push_async_callback(github.close)
    direct = _direct(flags)
    pool = open_pool(conninfo, clock=clock, rng=rng, max_size=flags.database_connections)
    return Deps(
        name=process_name(flags.name),
        kube=Kube(kube),
        github=github,
        auth=who.auth,
        database=await stack.enter_async_context(pool),
        clock=clock,
        rng=rng,
        meter=meter,
        log=log,
        settings=settings,
        health=Health(clock, conditions.ALL),
        freshness=Freshness(clock),
        notices=PostgresNotices(direct, clock=clock, rng=rng, meter=meter, log=log)
        if direct
        else None,
    )


def _direct(flags: Flags) -> str:
    """The URL of the database without a pooler; empty if it is not given."""
    given = flags.database_direct_url, flags.database_direct_url_file
    if not any(given):
        return ""
    return database("--database-direct-url", *given, why="the flag is empty")


def _kube(flags: Flags, clock: Clock) -> AuthTransport:
    environ = dict(os.environ)
    found = find_config(flags.kubeconfig, environ=environ, home=Path.home())
    return connect(found, clock=clock, environ=environ)


def settings_of(flags: Flags, who: GithubIdentity) -> Settings:
    """Settings of the server from the options; raises `BadSetting`."""
    for flag, name in (
        ("--namespace", flags.namespace),
        ("--controller-namespace", flags.controller_namespace),
        ("--controller-account", flags.controller_account),
    ):
        if not _NAME.fullmatch(name):
            raise BadSetting(
                f"{flag}: {name!r} is not a valid Kubernetes name. Use letters, digits and '-'"
            )
    secrets = tuple(text_of("--webhook-secret-file", path) for path in flags.webhook_secret_file)
    if not secrets and who.secret:
        secrets = (who.secret,)
    if not secrets and flags.github_intake == "webhook":
        raise BadSetting(
            "--webhook-secret-file is missing: it authenticates GitHub's webhooks. Give the file with the secret,"
            " or --github-intake pull"
        )
    return Settings(
        webhook_secrets=secrets,
        seal_key=seal_key(flags.seal_key_file),
        namespace=flags.namespace,
        controller=(flags.controller_namespace, flags.controller_account),
        modes=_modes(flags),
        intake="pull" if flags.github_intake == "pull" else "webhook",
        runner_group=flags.runner_group,
    )


def _modes(flags: Flags) -> modes.Modes:
    try:
        return modes.parse(flags.reconciler)
    except ValueError as error:
        raise BadSetting(f"--reconciler: {error}") from None


def _server_socket(
    flags: Flags,
    who: GithubIdentity,
    clock: Clock,
    stack: contextlib.AsyncExitStack,
    *,
    log: Logger,
) -> ServerSocket:
    tls = tls_context(flags.tls_cert_file, flags.tls_key_file)
    public = urlsplit(flags.public_url)
    if flags.public_url and (public.scheme not in ("http", "https") or not public.hostname):
        raise BadSetting("--public-url is not a URL. Write it as https://HOST")
    sock = listening_socket(flags.listen)
    stack.callback(sock.close)
    settings = DashboardSettings(
        listen=sock.getsockname()[0],
        token=_dashboard_token(flags.dashboard_token_file, sock.getsockname()[0], log=log),
        metrics_token=metrics_token(flags.metrics_token_file),
        names=(public.hostname,) if public.hostname else (),
        secure=tls is not None or public.scheme == "https",
        namespace=flags.namespace,
        github=web_of(who.url),
    )
    try:
        Access(settings, clock=clock)
    except AccessError as error:
        raise BadSetting(
            f"--dashboard-token-file, --metrics-token-file: {error}. Use another token"
        ) from None
    return ServerSocket(sock=sock, access=settings, tls=tls)


def _dashboard_token(given: Path | None, address: str, *, log: Logger) -> str:
    """The token of the file; on loopback by default that of the data directory, generated once."""
    give = "Give a file with a token of at least 16 characters"
    if given is not None:
        return text_of("--dashboard-token-file", given)
    if not is_loopback(address):
        raise BadSetting(f"--dashboard-token-file is missing: --listen is not loopback. {give}")
    path = Layout(machine_root(None)).dashboard_token
    try:
        token = ensure_token(path, random.SystemRandom())
    except BadDirectory as error:
        raise BadSetting(f"--dashboard-token-file is missing, and {error}. {give}") from None
    log.info("token of the dashboard", file=str(path))
    return token
