"""Asks the fleet on this machine, and GitHub, for `runyard doctor`.

Invariants:
- The token of the dashboard is sent to the server only while the machine of that directory runs.
- Nothing is written, and a port is only bound for a moment, without listening.
"""

import asyncio
import os
import socket
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import click
import msgspec

from runyard.cli.githubflags import INTAKE, OPTIONS, RUNNER_GROUP, GithubFlags, github_flags
from runyard.cli.local_machine import Unreachable, local_token
from runyard.cli.options import BadSetting, with_options
from runyard.clock import Clock
from runyard.embedded.lock import is_owned
from runyard.embedded.up.layout import BadDirectory, Layout, read_json
from runyard.hosts.doctor.plans.findings import (
    Component,
    Failing,
    Github,
    GithubLine,
    Machine,
    Verdict,
)
from runyard.http.addresses import is_loopback
from runyard.http.client import HttpTransport
from runyard.http.errors import TRANSPORT_ERRORS
from runyard.http.messages import Request, Response
from runyard.http.probes import HEALTHZ, READYZ, Readiness
from runyard.telemetry.health import Severity

_TIMEOUT = 5.0
_GITHUB_TIMEOUT = 60.0
_LOOPBACK = "127.0.0.1"
_VERDICTS = {"ok": Verdict.OK, "warn": Verdict.WARNING, "fail": Verdict.PROBLEM}


async def machine_of(root: Path) -> Machine:
    """The machine of this data directory."""
    layout = Layout(root)
    try:
        running = is_owned(root)
        ports = _numbers(read_json(layout.ports))
        urls = _texts(read_json(layout.urls)) if running else {}
        token = local_token(root) if running else ""
    except (BadDirectory, Unreachable, OSError) as error:
        return Machine(damaged=str(error))
    if not running:
        taken = tuple((name, port) for name, port in ports.items() if _is_taken(port))
        return Machine(taken=taken, ports=len(ports))
    own = {name: url for name, url in urls.items() if is_loopback(urlsplit(url).hostname or "")}
    alive = await asyncio.gather(*(_responds(url, layout) for url in own.values()))
    return Machine(
        running=True,
        components=tuple(
            Component(name=name, alive=each) for name, each in zip(own, alive, strict=True)
        ),
        conditions=await _conditions(own.get("server", ""), token),
        real_github="github" in urls and "github" not in own,
        ports=len(ports),
    )


def _numbers(found: object) -> dict[str, int]:
    pairs = found.items() if isinstance(found, dict) else ()
    return {str(name): port for name, port in pairs if isinstance(port, int) and 0 < port < 65536}


def _texts(found: object) -> dict[str, str]:
    pairs = found.items() if isinstance(found, dict) else ()
    return {str(name): url for name, url in pairs if isinstance(url, str)}


def _is_taken(port: int) -> bool:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((_LOOPBACK, port))
        except OSError:
            return True
    return False


async def _responds(url: str, layout: Layout) -> bool:
    """Whether something responds there, with whatever status."""
    return await _get(url, HEALTHZ, layout=layout) is not None


async def _conditions(url: str, token: str) -> tuple[Failing, ...] | None:
    answer = await _get(url, READYZ, token=token) if url and token else None
    if answer is None:
        return None
    try:
        found = msgspec.json.decode(answer.body, type=Readiness).conditions
    except msgspec.MsgspecError:
        return None
    if found is msgspec.UNSET:
        return None
    return tuple(
        Failing(
            code=each.code,
            title=each.title,
            fix=each.fix,
            error=each.severity is Severity.ERROR,
        )
        for each in found
    )


async def _get(
    url: str, path: str, *, token: str = "", layout: Layout | None = None
) -> Response | None:
    headers = (("authorization", f"Bearer {token}"),) if token else ()
    try:
        tls = None
        if layout is not None and url.startswith("https:"):
            tls = ssl.create_default_context(cafile=str(layout.tls / "ca.crt"))
        transport = HttpTransport(url, tls=tls, pool=1)
    except (OSError, ValueError):
        return None
    try:
        answer = await transport.send(
            Request(method="GET", path=path, headers=headers), timeout=_TIMEOUT
        )
    except TRANSPORT_ERRORS:
        return None
    finally:
        await transport.close()
    return answer if isinstance(answer, Response) else None


# ── GitHub ──────────────────────────────────────────────────────────────────────────────────────────


@click.command()
@with_options((*OPTIONS, INTAKE, RUNNER_GROUP))
def _settings() -> None:
    """Hold the options of `runyard github check`, which doctor takes from the environment only."""


async def github_of(clock: Clock, *, ask: bool) -> Github | None:
    """Whether a GitHub is configured here and, if `ask`, what its checks say; None if the packages are missing."""
    try:
        from runyard.cli.github_auth import github_identity
        from runyard.cli.githubcheck import Facts, examined
    except ModuleNotFoundError:
        return None
    try:
        given = _settings.make_context("doctor", []).params
        flags = github_flags(given)
        if not _is_configured(flags):
            return Github(configured=False)
        if not ask:
            return Github(configured=True)
        who = github_identity(flags, clock=clock)
    except (BadSetting, click.UsageError) as error:
        return Github(configured=True, unusable=error.format_message())
    facts = Facts(
        intake=given["github_intake"],
        runner_group=given["runner_group"],
        runner_version=None,
        url=who.url,
    )
    lines = await examined(who, facts, clock, within=_GITHUB_TIMEOUT)
    return Github(
        configured=True,
        lines=tuple(
            GithubLine(
                verdict=_VERDICTS[each.verdict], what=each.what, found=each.found, fix=each.fix
            )
            for each in lines
        ),
    )


def _is_configured(flags: GithubFlags) -> bool:
    from runyard.cli.githubfiles import AppDirectory, default_directory

    if flags.github_app_id or flags.github_key_file or flags.github_token_file:
        return True
    return AppDirectory(flags.github_dir or default_directory(os.environ)).load() is not None
