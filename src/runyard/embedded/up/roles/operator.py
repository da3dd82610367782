"""The pool operator as a process, with its probes."""

import asyncio

from runyard.embedded.up.context import Context, transport
from runyard.embedded.up.roles.doors import probed
from runyard.parts import operator
from runyard.parts.reporting import reporting_kube
from runyard.pools.settings import Settings
from runyard.telemetry import conditions
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.meter import Meter
from runyard.wire.paths import DISPATCH


async def run(context: Context) -> None:
    """Keep the pools as they ask to be, until cancelled."""
    boot, pace = context.boot, context.boot.pace
    kube, server = context.kube(), transport(boot.server_url)
    health, freshness = Health(context.clock, conditions.ALL), Freshness(context.clock)
    deps = operator.OperatorDeps(
        clock=context.clock,
        rng=context.rng,
        kube=reporting_kube(kube, health, context.log()),
        server=server,
        meter=Meter(),
        log=context.log(),
        settings=Settings(
            dispatch_url=boot.server_url + DISPATCH,
            orphan_grace_seconds=pace.orphan_grace,
            drain_seconds=pace.drain_seconds,
        ),
        token=context.token(boot.name),
        freshness=freshness,
    )
    try:
        async with (
            probed(context, health=health, freshness=freshness, meter=deps.meter),
            asyncio.TaskGroup() as group,
        ):
            group.create_task(operator.run(deps))
            context.ready()
    finally:
        await kube.close()
        await server.close()
