"""Runs the node agent of one host as a process of `runyard up`, with its probes.

Its VMs keep running when it stops: the next agent finds them by its records. The supervisor stops them when the whole
machine shuts down.
"""

import msgspec

from runyard.components import agent
from runyard.components.hosting import host_settings, open_host
from runyard.embedded.up.context import Context
from runyard.embedded.up.hosts import FLEET, isolation_file, size, wanted_driver
from runyard.embedded.up.pullrecord import pull_file, recorded
from runyard.embedded.up.roles.access import probe_sockets
from runyard.files import write_whole
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
    wanted = wanted_driver(
        boot.layout,
        boot.name,
        driver=boot.driver,
        tart=boot.tart,
        slots=boot.vm_slots,
        insecure=boot.insecure,
        disk_mb=boot.disk_mb,
        github_url=boot.github_url,
    )
    opened = await open_host(wanted, clock=context.clock)
    write_whole(isolation_file(boot.layout, boot.name), f"{opened.detail}\n")
    driver = opened.driver
    if opened.name == "tart":
        driver = recorded(driver, pull_file(boot.layout, boot.name))
    kube = context.kube()
    settings = msgspec.structs.replace(
        host_settings(
            boot.name,
            opened,
            size=size(boot.disk_mb, driver=boot.driver, slots=boot.vm_slots),
            fleet=FLEET,
        ),
        # Stock images have no script of ours, and no route to a server on this machine's loopback.
        poller="host" if boot.driver == "tart" else "guest",
        runner_directory=boot.runner_directory,
        runner_archive=boot.runner_archive,
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
