"""The hosts of one machine: several Nodes on one computer, each with its own directory and VM slots.

The best isolation that works is found by a probe. `RUNYARD_ISOLATION=none` in the environment disables the sandbox:
for jobs that do not run in one, and to test what a machine without one does.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from runyard.clock import Clock
from runyard.components.hosting import Size, process_driver
from runyard.embedded.up.layout import BadDirectory, Layout
from runyard.vm.process.driver import ProcessDriver

FLEET = "local"
PODS = 2
SLOT_CPU_MILLI = 500
SLOT_MEMORY_MB = 512
DISK_MB = 20_480  # that one VM may write


def host_names(count: int) -> tuple[str, ...]:
    """`host-1`, `host-2`, …"""
    return tuple(f"host-{number}" for number in range(1, count + 1))


def vm_home(layout: Layout, host: str) -> Path:
    """Where a host's VMs and images are stored."""
    return layout.host(host) / "vm"


def wanted_isolation(environ: Mapping[str, str]) -> Literal["auto", "none"]:
    """The isolation that the environment asks for; raises `BadDirectory` on an unknown value."""
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
    return await process_driver(
        vm_home(layout, host),
        images=layout.images,
        clock=clock,
        size=size(disk_mb),
        isolation=wanted_isolation(os.environ),
    )


def size(disk_mb: int = DISK_MB) -> Size:
    """What each host offers."""
    return Size(
        pods=PODS, cpu_milli=SLOT_CPU_MILLI, memory_mb=SLOT_MEMORY_MB, disk_mb=disk_mb or DISK_MB
    )
