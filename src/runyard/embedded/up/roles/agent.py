"""Runs the node agent of one host as a process of `runyard up`, with its probes.

Its VMs keep running when it stops: the next agent finds them by its records. The supervisor stops them when the whole
machine shuts down.
"""

import msgspec

from runyard.components import agent
from runyard.components.hosting import process_settings
from runyard.embedded.up.context import Context
from runyard.embedded.up.hosts import DISK_MB, FLEET, driver_for, size
from runyard.embedded.up.roles.access import probe_sockets
from runyard.kube.client import Kube
from runyard.node.deps import Deps
from runyard.node.records import Records
from runyard.telemetry import conditions
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.meter import Meter
from runyard.wire import names


async def run(context: Context) -> None:
    """Serve one host until cancelled."""
    boot, pace = context.boot, context.boot.pace
    driver = await driver_for(
        boot.layout, boot.name, clock=context.clock, disk_mb=boot.disk_mb or DISK_MB
    )
    kube = context.kube()
    settings = msgspec.structs.replace(
        process_settings(boot.name, driver, size=size(boot.disk_mb), fleet=FLEET, labels=()),
        runtime=boot.runtime,
        list_every=pace.list_every,
        heartbeat_every=pace.heartbeat_every,
        lease_every=pace.lease_every,
    )
    deps = Deps(
        kube=Kube(kube, agent=names.NODE_AGENT, token=context.token(boot.name)),
        driver=driver,
        records=Records(boot.layout.host(boot.name) / "records"),
        clock=context.clock,
        rng=context.rng,
        meter=Meter(),
        log=context.log(),
        settings=settings,
        health=Health(context.clock, conditions.ALL),
        freshness=Freshness(context.clock),
    )
    try:
        await agent.serve(deps, probe_sockets(context), ready=lambda _: context.ready())
    finally:
        await kube.close()
