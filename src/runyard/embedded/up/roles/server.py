"""The dispatch server as a process: its API, its dashboard and its probes behind one socket."""

import asyncio
import contextlib

from runyard.db import migrate
from runyard.db.pooled import open_pool
from runyard.dispatch.settings import Settings
from runyard.embedded.up.context import Context, transport
from runyard.embedded.up.faults import with_faults
from runyard.http.messages import Handler
from runyard.http.server import listen
from runyard.kube.client import Kube
from runyard.parts import server
from runyard.parts.front import front
from runyard.telemetry.conditions import ALL
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.meter import Meter
from runyard.web.dashboard import Dashboard
from runyard.web.settings import Settings as WebSettings


async def run(context: Context) -> None:
    """Serve until cancelled."""
    boot, clock = context.boot, context.clock
    await asyncio.to_thread(migrate.apply, boot.database)
    handlers: asyncio.Queue[Handler] = asyncio.Queue()
    async with contextlib.AsyncExitStack() as stack:
        database = await stack.enter_async_context(
            open_pool(boot.database, clock=clock, rng=context.rng)
        )
        kube, github = context.kube(), transport(boot.github_url)
        stack.push_async_callback(kube.close)
        stack.push_async_callback(github.close)
        freshness = Freshness(clock)
        deps = server.ServerDeps(
            name=boot.name,
            clock=clock,
            rng=context.rng,
            kube=with_faults(kube, boot),
            token=context.token(boot.name),
            github=github,
            app_id=boot.app_id,
            app_key=context.secrets().app_key,
            database=database,
            meter=Meter(),
            log=context.log(),
            settings=_settings(context),
            listen=handlers.put_nowait,
            freshness=freshness,
        )
        dashboard, health = _dashboard(context, deps, freshness)
        async with asyncio.TaskGroup() as group:
            group.create_task(server.run(deps))
            group.create_task(dashboard.run())
            handler = front(
                await handlers.get(),
                dashboard,
                health=health,
                freshness=freshness,
                meter=deps.meter,
            )
            listening = await listen(handler, sock=context.socket())
            stack.push_async_callback(listening.close)
            context.ready()


def _dashboard(
    context: Context, deps: server.ServerDeps, freshness: Freshness
) -> tuple[Dashboard, Health]:
    health = Health(context.clock, ALL)
    dashboard = Dashboard(
        deps.database,
        kube=Kube(deps.kube, token=deps.token),
        health=health,
        freshness=freshness,
        clock=context.clock,
        meter=deps.meter,
        log=deps.log,
        settings=WebSettings(listen=context.boot.listen, token=context.secrets().dashboard_token),
    )
    return dashboard, health


def _settings(context: Context) -> Settings:
    pace, secrets = context.boot.pace, context.secrets()
    return Settings(
        webhook_secrets=(secrets.webhook_secret,),
        seal_key=secrets.seal,
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
