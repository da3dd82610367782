"""The pool operator as a process."""

import asyncio

from runyard.embedded.up.context import Context, transport
from runyard.parts import operator
from runyard.pools.settings import Settings
from runyard.telemetry.meter import Meter
from runyard.wire.paths import DISPATCH


async def run(context: Context) -> None:
    """Keep the pools as they ask to be, until cancelled."""
    boot, pace = context.boot, context.boot.pace
    kube, server = context.kube(), transport(boot.server_url)
    deps = operator.OperatorDeps(
        clock=context.clock,
        rng=context.rng,
        kube=kube,
        server=server,
        meter=Meter(),
        log=context.log(),
        settings=Settings(
            dispatch_url=boot.server_url + DISPATCH,
            orphan_grace_seconds=pace.orphan_grace,
            drain_seconds=pace.drain_seconds,
        ),
        token=context.token(boot.name),
    )
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(operator.run(deps))
            context.ready()
    finally:
        await kube.close()
        await server.close()
