"""The node agent of one host as a process, with its probes.

Its VMs do not end with it: a killed agent finds them again by its records, and ending them when the whole
machine goes down is the machine's decision.
"""

import asyncio
import platform
import sys

from runyard.embedded.up.context import Context
from runyard.embedded.up.hosts import (
    DISK_MB,
    FLEET,
    PODS,
    SLOT_CPU_MILLI,
    SLOT_MEMORY_MB,
    driver_for,
)
from runyard.embedded.up.roles.doors import probed
from runyard.node.records import Records
from runyard.node.settings import Settings
from runyard.parts import agent
from runyard.parts.reporting import reporting_kube
from runyard.telemetry import conditions
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.meter import Meter
from runyard.wire import names

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


async def run(context: Context) -> None:
    """Serve one host until cancelled."""
    boot, pace = context.boot, context.boot.pace
    driver = await driver_for(
        boot.layout, boot.name, clock=context.clock, disk_mb=boot.disk_mb or DISK_MB
    )
    kube = context.kube()
    health, freshness = Health(context.clock, conditions.ALL), Freshness(context.clock)
    machine = platform.machine()
    settings = Settings(
        node_name=boot.name,
        node_ip="127.0.0.1",
        fleet=FLEET,
        labels=((names.NODE_ISOLATION, driver.isolation.kind),),
        os="darwin" if sys.platform == "darwin" else "linux",
        arch=_ARCHITECTURES.get(machine, machine),
        runtime=boot.runtime,
        cpu_milli=SLOT_CPU_MILLI * PODS,
        memory_mb=SLOT_MEMORY_MB * PODS,
        pods=PODS,
        vm_cpu_milli=SLOT_CPU_MILLI,
        vm_memory_mb=SLOT_MEMORY_MB,
        list_every=pace.list_every,
        heartbeat_every=pace.heartbeat_every,
        lease_every=pace.lease_every,
    )
    deps = agent.AgentDeps(
        clock=context.clock,
        rng=context.rng,
        kube=reporting_kube(kube, health, context.log()),
        driver=driver,
        records=Records(boot.layout.host(boot.name) / "records"),
        meter=Meter(),
        log=context.log(),
        settings=settings,
        token=context.token(boot.name),
        freshness=freshness,
    )
    try:
        async with (
            probed(context, health=health, freshness=freshness, meter=deps.meter),
            asyncio.TaskGroup() as group,
        ):
            group.create_task(agent.run(deps))
            context.ready()
    finally:
        await kube.close()
