"""`runyard server`: one replica of the dispatch server, on a real Postgres and a real cluster.

The command line only reads what it is told and brings the pieces; `parts.serving` is the server. Exit code 0 when it
was told to end, 1 when it failed, 2 when it could not begin: a bad setting is one line with its cause and what to do.
"""

import asyncio
import contextlib
import os
import random
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from runyard.cli.living import ending_by_signal, live, name_of, say
from runyard.cli.resultflags import results_of
from runyard.cli.serverfiles import (
    BadSetting,
    bound,
    database,
    seal_key,
    secrecy,
    text_of,
)
from runyard.cli.serverflags import Flags, flags_of, with_flags
from runyard.cli.speaking import Speaker, speaker
from runyard.clock import Clock, RealClock
from runyard.db import migrate
from runyard.db.contract import DatabaseError, Unavailable
from runyard.db.owner import owner_of
from runyard.db.pooled import open_pool
from runyard.dispatch.recovery import modes
from runyard.dispatch.settings import Settings
from runyard.http.addresses import is_loopback
from runyard.kube.auth import AuthTransport
from runyard.kube.config import ConfigError
from runyard.kube.connect import connect
from runyard.kube.kubeconfig import find_config
from runyard.parts.serving import Door, Replica, Setup, Tell
from runyard.telemetry.log import Logger, configure, get_logger
from runyard.web.access import Access, AccessError
from runyard.web.settings import Settings as Looking

_LOOK_AGAIN = 1.0
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


@click.command(context_settings={"max_content_width": 110})
@with_flags
def server(**given: Any) -> None:
    """Run one replica of the dispatch server; any number may share one Postgres.

    It takes GitHub's webhooks (or fetches deliveries), hands jobs to waiting runners, heals what leaks, and serves the
    dashboard, /healthz, /readyz, /metrics and /openapi.json. SIGTERM ends it in order, within ten seconds.

    \b
    runyard server --database-url-file db.url --kubeconfig kube.yaml \\
      --github-app-id 7 --github-key-file app.pem --webhook-secret-file hook.secret --seal-key-file seal.key
    head -c 32 /dev/urandom | base64 > seal.key      a key to seal with, the same for every replica
    """
    flags = flags_of(given)
    configure(level=flags.log_level, json=flags.as_json)
    try:
        live(_live(flags))
    except ConfigError as error:
        raise BadSetting(str(error)) from None


async def _live(flags: Flags) -> None:
    clock, rng, ending = RealClock(), random.SystemRandom(), ending_by_signal()
    name = name_of(flags.name)
    log = get_logger("server", server=name)
    async with contextlib.AsyncExitStack() as stack:
        conninfo = database(
            "--database-url",
            flags.database_url,
            flags.database_url_file,
            why="jobs and slots are kept in Postgres",
        )
        setup = await _setup(flags, conninfo, stack, clock=clock, rng=rng, log=log)
        replica = Replica(setup)
        schema = Schema(conninfo, apply=flags.migrate, clock=clock, log=log)

        def ready(urls: tuple[str, ...]) -> None:
            for url in urls:
                text = f"serving {url} as {name}"
                say(text, as_json=flags.as_json, event="serving", url=url, name=name)

        await replica.run(prepare=schema.there, ready=ready, ending=ending)


async def _setup(
    flags: Flags,
    conninfo: str,
    stack: contextlib.AsyncExitStack,
    *,
    clock: Clock,
    rng: random.Random,
    log: Logger,
) -> Setup:
    """Read and check everything first; connections are made when they are needed."""
    who = speaker(flags.github, clock=clock)
    settings = settings_of(flags, who)
    kube = _kube(flags, clock)
    stack.push_async_callback(kube.close)
    github = who.way()
    stack.push_async_callback(github.close)
    results = results_of(
        flags.results, public_url=flags.public_url, seal_key=settings.seal_key, clock=clock
    )
    door = _door(flags, clock, stack)
    pool = open_pool(conninfo, clock=clock, rng=rng, max_size=flags.database_connections)
    return Setup(
        name=name_of(flags.name),
        clock=clock,
        rng=rng,
        log=log,
        settings=settings,
        kube=kube,
        token=lambda: "",
        github=github,
        auth=who.auth,
        database=await stack.enter_async_context(pool),
        doors=(door,),
        direct_url=_direct(flags),
        results=results,
    )


def _direct(flags: Flags) -> str:
    """The database past any pooler; nothing, if nobody gave it."""
    given = flags.database_direct_url, flags.database_direct_url_file
    if not any(given):
        return ""
    return database("--database-direct-url", *given, why="it was asked for")


def _kube(flags: Flags, clock: Clock) -> AuthTransport:
    environ = dict(os.environ)
    found = find_config(flags.kubeconfig, environ=environ, home=Path.home())
    return connect(found, clock=clock, environ=environ)


def settings_of(flags: Flags, who: Speaker) -> Settings:
    """How the server is set up by these flags; `BadSetting` says what is wrong with them."""
    for flag, name in (
        ("--namespace", flags.namespace),
        ("--controller-namespace", flags.controller_namespace),
        ("--controller-account", flags.controller_account),
    ):
        if not _NAME.fullmatch(name):
            raise BadSetting(f"{flag}: {name!r} is not a name that Kubernetes allows. Correct it")
    secrets = tuple(text_of("--webhook-secret-file", path) for path in flags.webhook_secret_file)
    if not secrets and who.secret:
        secrets = (who.secret,)
    if not secrets and flags.github_intake == "webhook":
        raise BadSetting(
            "--webhook-secret-file is missing: GitHub's calls are known by it. Give the file with the webhook's secret,"
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


def _door(flags: Flags, clock: Clock, stack: contextlib.AsyncExitStack) -> Door:
    token = flags.dashboard_token_file
    tls = secrecy(flags.tls_cert_file, flags.tls_key_file)
    public = urlsplit(flags.public_url)
    if flags.public_url and (public.scheme not in ("http", "https") or not public.hostname):
        raise BadSetting("--public-url is not an address. Write it as https://HOST")
    sock = bound(flags.listen)
    stack.callback(sock.close)
    looking = Looking(
        listen=sock.getsockname()[0],
        token="" if token is None else text_of("--dashboard-token-file", token),
        names=(public.hostname,) if public.hostname else (),
        secure=tls is not None or public.scheme == "https",
        namespace=flags.namespace,
    )
    if not looking.token and not is_loopback(looking.listen):
        raise BadSetting(
            "--dashboard-token-file is missing: --listen is not loopback, and whoever reaches it would see the fleet."
            " Give a file with a token of 16 characters or more"
        )
    try:
        Access(looking, clock=clock)
    except AccessError as error:
        raise BadSetting(f"--dashboard-token-file: {error}. Write a longer one into it") from None
    return Door(sock=sock, looking=looking, tls=tls)


class Schema:
    """The tables that this release works on: brought about, or waited for."""

    def __init__(self, conninfo: str, *, apply: bool, clock: Clock, log: Logger) -> None:
        self._conninfo = conninfo
        self._apply = apply
        self._clock = clock
        self._log = log
        self._told = ""

    async def there(self, tell: Tell) -> None:
        """Return once the tables are there; say what is missing until then."""
        while missing := await asyncio.to_thread(self._missing):
            tell(missing)
            if missing != self._told:
                self._log.warning("waiting", reason=missing)
            self._told = missing
            await self._clock.sleep(_LOOK_AGAIN)

    def _missing(self) -> str:
        try:
            if migrate.foreign(self._conninfo):
                raise DatabaseError(
                    "it holds tables that are not runyard's. Name an empty database, or runyard's own"
                )
            if self._apply:
                for name in migrate.apply(self._conninfo, phase="pre"):
                    self._log.info("migrated", migration=name)
            pending = migrate.pending(self._conninfo, phase="pre")
            if not pending and (machine := owner_of(self._conninfo)) is not None:
                raise DatabaseError(
                    f"it belongs to the machine of `runyard up` whose state is in {machine.place}."
                    " Name another database"
                )
        except Unavailable as error:
            return f"Postgres does not answer: {' '.join(str(error).split())}"
        if not pending:
            return ""
        return f"the schema lacks {', '.join(pending)}: run `runyard migrate pre`, or start with --migrate"
