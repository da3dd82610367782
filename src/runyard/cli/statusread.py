"""Reads what `runyard status` shows: the server's overview and explanation, and the probes of a machine's components.

Invariants: every read has a deadline and fails alone, as a line in `unread` or as a component that is down; a token is
sent only to the server that it belongs to and to the components of the machine whose file it is.
"""

import asyncio
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import click
import msgspec

from runyard.cli.local_machine import Unreachable, local_token, runs_at
from runyard.cli.server_client import Refused, ServerClient
from runyard.cli.statusview import (
    Component,
    Ended,
    Problem,
    Readings,
    oldest_waiting,
    starting_pools,
)
from runyard.clock import Clock
from runyard.embedded.up.layout import BadDirectory, Layout, read_json
from runyard.embedded.up.ports import HOSTS
from runyard.embedded.up.restarts import RestartReader
from runyard.hosts.joining.client import transport_to
from runyard.http.addresses import is_loopback
from runyard.http.client import HttpTransport
from runyard.http.errors import TransportError
from runyard.http.messages import Request, Response
from runyard.http.probes import READYZ, Readiness, installed_version
from runyard.http.tls import TlsError
from runyard.text import harmless
from runyard.web.dashboard import OVERVIEW
from runyard.web.durations import format_duration
from runyard.web.explain.views import ExplanationView
from runyard.web.recoveries import render_restarts
from runyard.web.values import Overview
from runyard.wire.joining import HEALTH

_WITHIN = 10.0
_PROBE_WITHIN = 5.0
_POOLS = 5  # that are explained


async def read_status(client: ServerClient, root: Path, *, clock: Clock) -> Readings:
    """Read everything concurrently; `root` is the data directory whose machine may be meant."""
    local = runs_at(root, client.server)
    where = f"the machine of {root}" if local else _without_login(client.server)
    client = msgspec.structs.replace(client, within=_WITHIN)
    layout = Layout(root)
    async with asyncio.TaskGroup() as group:
        seen = group.create_task(_overview(client))
        probes = group.create_task(_probes(layout, client) if local else _server(client))
    overview, failure = seen.result()
    components, unread = probes.result()
    oldest, starting = None, list[ExplanationView]()
    if overview is not None:
        oldest, why = await _explained(client, overview)
        unread += why
        for name in starting_pools(overview)[:_POOLS]:
            found, why = await _explanation(client, f"pool {name}")
            starting += [found] if found is not None else []
            unread += why
    return Readings(
        at=clock.now(),
        where=where,
        version=installed_version(),
        overview=overview,
        failure=failure,
        fix=_fix(layout, local=local) if failure else "",
        local=local,
        oldest=oldest,
        starting=tuple(starting),
        components=components,
        restarts=_restarts(layout) if local else None,
        unread=unread,
    )


def not_running(error: Unreachable, root: Path, *, clock: Clock) -> Readings:
    """What is known without a server: that there is none."""
    cause, _, fix = harmless(error.message).partition(". ")
    return Readings(
        at=clock.now(), where=str(root), version=installed_version(), failure=cause, fix=fix
    )


def _without_login(url: str) -> str:
    """The address without a name and a password in it."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


async def _overview(client: ServerClient) -> tuple[Overview | None, str]:
    """The overview, or why there is none."""
    try:
        return await asyncio.to_thread(client.read, Overview, "GET", OVERVIEW), ""
    except Refused as error:
        return None, f"The server refuses to show the fleet: {error.message}"
    except click.ClickException as error:
        message = error.message.replace(client.server, _without_login(client.server))
        return None, f"The server cannot be read: {message}"


def _fix(layout: Layout, *, local: bool) -> str:
    if not local:
        return "Check --server and --token-file"
    return f"A server that starts or was killed responds within seconds. Its log: {layout.log('server')}"


async def _explained(
    client: ServerClient, overview: Overview
) -> tuple[ExplanationView | None, tuple[str, ...]]:
    job = oldest_waiting(overview)
    if job is None:
        return None, ()
    return await _explanation(client, f"job {job}")


async def _explanation(
    client: ServerClient, what: str
) -> tuple[ExplanationView | None, tuple[str, ...]]:
    """Why a job or a pool waits, or why that cannot be read."""
    try:
        path = f"/api/v1/explain/{what.replace(' ', '/')}"
        return await asyncio.to_thread(client.read, ExplanationView, "GET", path), ()
    except click.ClickException as error:
        return None, (f"why {what} waits, step by step: {error.message}",)


# ── probes ──────────────────────────────────────────────────────────────────────────────────────────


async def _server(client: ServerClient) -> tuple[tuple[Component, ...], tuple[str, ...]]:
    """The one component of a fleet elsewhere that has an address here."""
    others = "components other than the server: only on their machines, at /readyz of each"
    try:
        tls = client.tls_context()
        server = await _probe("server", client.server, token=client.token, tls=tls)
    except (click.ClickException, ValueError):
        return (), ("components: the address or the certificate cannot be used",)
    return (server,), (others, *_reasons_hidden((server,)))


async def _probes(
    layout: Layout, client: ServerClient
) -> tuple[tuple[Component, ...], tuple[str, ...]]:
    try:
        urls = read_json(layout.urls)
        ca = layout.tls / "ca.crt"
        tls = ssl.create_default_context(cafile=str(ca)) if ca.exists() else None
    except (BadDirectory, OSError) as error:
        return (), (f"components: {error}",)
    wanted = {
        name: str(url)
        for name, url in (urls if isinstance(urls, dict) else {}).items()
        if name not in ("public", HOSTS) and is_loopback(urlsplit(str(url)).hostname or "")
    }
    hosts = str(urls.get(HOSTS) or "") if isinstance(urls, dict) else ""
    token = client.token or local_token(layout.root)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(
                # The embedded API speaks TLS, and the token is not meant for it.
                _probe(name, url, token="", tls=tls)
                if url.startswith("https:")
                else _probe(name, url, token=token, tls=None)
            )
            for name, url in wanted.items()
        ]
        tasks += [group.create_task(_listener(hosts, ca))] if hosts else []
    found = tuple(task.result() for task in tasks)
    return found, _reasons_hidden(found)


async def _listener(url: str, authority: Path) -> Component:
    """Ask the listener for hosts, as hosts do: by the machine's authority, and at whatever address it listens."""
    try:
        transport = transport_to(url, authority.read_text(encoding="ascii"), pool=1)
    except (OSError, ValueError, TlsError) as error:
        return Component(name=HOSTS, state="unknown", text=f"{authority}: {error}")
    return await _asked(HOSTS, transport, Request(method="GET", path=HEALTH))


def _reasons_hidden(components: tuple[Component, ...]) -> tuple[str, ...]:
    hidden = [each.name for each in components if each.state == "unknown"]
    return (
        (f"what is wrong in {', '.join(hidden)}: it does not say, or refuses the token",)
        if hidden
        else ()
    )


async def _probe(name: str, url: str, *, token: str, tls: ssl.SSLContext | None) -> Component:
    """Ask one component whether it does its work."""
    headers = (("authorization", f"Bearer {token}"),) if token else ()
    transport = HttpTransport(url, tls=tls, pool=1)
    return await _asked(name, transport, Request(method="GET", path=READYZ, headers=headers))


async def _asked(name: str, transport: HttpTransport, request: Request) -> Component:
    """Send one request, and close the transport."""
    try:
        answer = await transport.send(request, timeout=_PROBE_WITHIN)
    except TransportError as error:
        why = str(error).partition(f"{request.path}: ")[2] or "does not respond"
        return Component(name=name, state="down", text=harmless(why))
    finally:
        await transport.close()
    if not isinstance(answer, Response):
        return Component(name=name, state="unknown", text="responded with a stream")
    try:
        return of_readiness(name, msgspec.json.decode(answer.body, type=Readiness))
    except msgspec.MsgspecError:
        return _of_status(name, answer.status)


def _of_status(name: str, status: int) -> Component:
    """A component that says no more than a status; one that wants a credential for more responds."""
    if status in (200, 401, 403):
        return Component(name=name, state="works")
    if status >= 500:
        return Component(name=name, state="degraded", text=f"not ready ({status})")
    return Component(name=name, state="unknown", text=f"has no {READYZ} ({status})")


def of_readiness(name: str, found: Readiness) -> Component:
    """A component from its `/readyz`."""
    version = "" if found.version is msgspec.UNSET else found.version
    if found.works is msgspec.UNSET:
        if found.ready:
            return Component(name=name, state="unknown", text="says no reasons", version=version)
        return Component(name=name, state="degraded", text="not ready", version=version)
    conditions = () if found.conditions is msgspec.UNSET else found.conditions
    stale = () if found.stale is msgspec.UNSET else found.stale
    problems = [
        Problem(
            where=name,
            code=each.code,
            severity=each.severity.value,
            title=each.title,
            message=each.message,
            fix=each.fix,
            since=each.since,
        )
        for each in conditions
    ]
    problems += [
        Problem(
            where=name,
            code=f"loop-stalled/{each.loop}",
            severity="warning",
            title="A loop has not succeeded in time",
            message=f"{each.loop}: should succeed every {format_duration(each.within)}",
            fix="Read the component's log: it says why the loop's steps fail",
        )
        for each in stale
    ]
    text = problems[0].title if problems else ""
    works = found.works and found.ready
    return Component(
        name=name,
        state="works" if works else "degraded",
        text=text,
        version=version,
        problems=tuple(problems),
    )


def _restarts(layout: Layout) -> tuple[Ended, ...]:
    found = render_restarts(RestartReader(layout.restarts)())
    return tuple(Ended(component=each.component, at=each.at, what=each.what) for each in found)
