"""The hosts of one machine: several Nodes on one computer, each with its own directory and seats.

How far VMs are kept apart is found out by trying. `RUNYARD_ISOLATION=none` in the environment asks for no sandbox,
where one would work: for hosts on which a sandbox is in a job's way, and to see what a machine without one does.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from runyard.clock import Clock
from runyard.embedded.up.layout import BadDirectory, Layout
from runyard.telemetry.log import get_logger
from runyard.vm.process.driver import ProcessDriver
from runyard.vm.process.limits import Limits
from runyard.vm.process.probe import probe_isolation

FLEET = "local"
PODS = 2
SLOT_CPU_MILLI = 500
SLOT_MEMORY_MB = 512
DISK_MB = 20_480  # that one VM may write


def host_names(count: int) -> tuple[str, ...]:
    """`host-1`, `host-2`, …"""
    return tuple(f"host-{number}" for number in range(1, count + 1))


def vm_home(layout: Layout, host: str) -> Path:
    """Where a host's VMs and images lie."""
    return layout.host(host) / "vm"


def wanted_isolation(environ: Mapping[str, str]) -> Literal["auto", "none"]:
    """What the environment asks for; raises `BadDirectory` on a word that means nothing."""
    match environ.get("RUNYARD_ISOLATION", ""):
        case "" | "auto":
            return "auto"
        case "none":
            return "none"
        case other:
            raise BadDirectory(
                f"RUNYARD_ISOLATION is {other!r}. Set it to auto or none, or unset it"
            )


async def driver_for(
    layout: Layout, host: str, *, clock: Clock, disk_mb: int = DISK_MB
) -> ProcessDriver:
    """The driver of one host, with the best isolation that works here."""
    home = vm_home(layout, host)
    isolation = await probe_isolation(home, want=wanted_isolation(os.environ))
    get_logger("vm", host=host).info(
        "isolation", kind=isolation.kind, detail=isolation.detail, limits=isolation.limits
    )
    return ProcessDriver(
        home,
        image_source=layout.images,
        clock=clock,
        limits=Limits(disk_mb=disk_mb),
        isolation=isolation,
    )
