"""The dispatch server as a process: its API, its dashboard and its probes.

On loopback it is open to this machine: guests, the operator and the practice GitHub speak to it there. When it is
to be reached from elsewhere too, a second socket serves the same over TLS, and there the dashboard asks for a token.
"""

import asyncio
import contextlib

from runyard.db import migrate
from runyard.db.pooled import open_pool
from runyard.dispatch.machine.table import Deadlines
from runyard.dispatch.settings import Settings
from runyard.embedded.up.context import Context, transport
from runyard.embedded.up.faults import with_faults
from runyard.embedded.up.roles.doors import looking, secrecy
from runyard.http.server import listen
from runyard.kube.client import Kube
from runyard.parts import server
from runyard.parts.front import front
from runyard.parts.reporting import ReportingDatabase, ReportingTransport, reporting_kube
from runyard.telemetry import conditions
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.meter import Meter
from runyard.web.dashboard import Dashboard


async def run(context: Context) -> None:
    """Serve until cancelled."""
    boot = context.boot
    await asyncio.to_thread(migrate.apply, boot.database)
    health, freshness = Health(context.clock, conditions.ALL), Freshness(context.clock)
    works = asyncio.Event()
    async with contextlib.AsyncExitStack() as stack:
        deps = await _deps(context, stack, health, freshness, works)
        async with asyncio.TaskGroup() as group:
            wired = server.wire(deps)
            group.create_task(server.run(deps, wired=wired))
            await works.wait()
            for address, sock in context.sockets():
                dashboard = _dashboard(context, deps, health, address)
                group.create_task(dashboard.run())
                listening = await listen(
                    front(
                        wired.api, dashboard, health=health, freshness=freshness, meter=deps.meter
                    ),
                    sock=sock,
                    tls=secrecy(context, address),
                    body_limit=deps.settings.body_limit,
                )
                stack.push_async_callback(listening.close)
            context.ready()


async def _deps(
    context: Context,
    stack: contextlib.AsyncExitStack,
    health: Health,
    freshness: Freshness,
    works: asyncio.Event,
) -> server.ServerDeps:
    boot = context.boot
    pool = open_pool(boot.database, clock=context.clock, rng=context.rng)
    kube, github = context.kube(), transport(boot.github_url)
    stack.push_async_callback(kube.close)
    stack.push_async_callback(github.close)
    return server.ServerDeps(
        name=boot.name,
        clock=context.clock,
        rng=context.rng,
        kube=reporting_kube(with_faults(kube, boot), health, context.log()),
        token=context.token(boot.name),
        github=ReportingTransport(
            github,
            health,
            unreachable=conditions.GITHUB_UNREACHABLE,
            refused=conditions.GITHUB_REFUSED,
        ),
        app_id=boot.app_id,
        app_key=context.app_key(),
        database=ReportingDatabase(
            await stack.enter_async_context(pool),
            health,
            unreachable=conditions.DATABASE_UNREACHABLE,
        ),
        meter=Meter(),
        log=context.log(),
        settings=_settings(context),
        listen=lambda _: works.set(),
        freshness=freshness,
        health=health,
    )


def _dashboard(
    context: Context, deps: server.ServerDeps, health: Health, address: str
) -> Dashboard:
    assert deps.freshness is not None
    return Dashboard(
        deps.database,
        kube=Kube(deps.kube, token=deps.token),
        health=health,
        freshness=deps.freshness,
        clock=context.clock,
        meter=deps.meter,
        log=deps.log,
        settings=looking(context, address),
    )


def _settings(context: Context) -> Settings:
    pace, secrets = context.boot.pace, context.secrets()
    return Settings(
        webhook_secrets=(secrets.webhook_secret,),
        seal_key=secrets.seal,
        deadlines=Deadlines(offered=pace.offered, armed=pace.armed, draining=pace.draining),
        poll_wait_max=pace.poll_wait,
        mint_within=min(6.0, pace.offered * 0.7),
        clear_within=min(1.5, pace.offered * 0.2),
        stamped_grace=pace.stamped_grace,
        silent_grace=pace.silent_grace,
        recover_every=pace.recover_every,
        sweep_every=pace.sweep_every,
        read_every=pace.read_every,
        pools_every=pace.pools_every,
        ghosts_every=pace.ghosts_every,
        ghost_age=pace.ghost_age,
        audit_every=pace.audit_every,
        audit_settle=pace.audit_settle,
    )
