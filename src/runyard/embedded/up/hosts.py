"""The hosts of one machine: several Nodes on one computer, each with its own directory and VM slots.

The best isolation that works is found by a probe. `RUNYARD_ISOLATION=none` in the environment disables the sandbox,
`RUNYARD_ISOLATION=host-network` only the networks of their own: for jobs that do not run in one, and to test what a
machine without one does.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from runyard.components.hosting import Size, machine_size, practice_relay
from runyard.embedded.up.layout import BadDirectory, Layout
from runyard.vm.registry import DriverName, Isolation, Wanted

FLEET = "local"
PODS = 2  # VM slots of a host
SLOT_CPU_MILLI = 500
SLOT_MEMORY_MB = 512
DISK_MB = 20_480  # that one VM may write


def host_names(count: int) -> tuple[str, ...]:
    """`host-1`, `host-2`, …"""
    return tuple(f"host-{number}" for number in range(1, count + 1))


def vm_home(layout: Layout, host: str) -> Path:
    """Where a host's VMs and images are stored."""
    return layout.host(host) / "vm"


def isolation_file(layout: Layout, host: str) -> Path:
    """Where a host's agent describes how its VMs are isolated."""
    return layout.host(host) / "isolation"


def isolation_line(layout: Layout, host: str) -> str:
    """The description that the agent of this host has written; empty if there is none."""
    try:
        return isolation_file(layout, host).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def wanted_isolation(environ: Mapping[str, str]) -> Isolation:
    """The isolation that the environment asks for; raises `BadDirectory` on an unknown value."""
    match environ.get("RUNYARD_ISOLATION", ""):
        case "" | "auto":
            return "auto"
        case "host-network":
            return "host-network"
        case "none":
            return "none"
        case other:
            raise BadDirectory(
                f"RUNYARD_ISOLATION is {other!r}. Set it to auto, host-network or none, or unset it"
            )


def wanted_driver(
    layout: Layout,
    host: str,
    *,
    driver: DriverName = "process",
    tart: str = "tart",
    slots: int = PODS,
    insecure: tuple[str, ...] = (),
    disk_mb: int = DISK_MB,
    github_url: str = "",
) -> Wanted:
    """The driver of one host, with the best isolation that works here."""
    return Wanted(
        home=vm_home(layout, host),
        driver=driver,
        tart=tart,
        slots=slots,
        insecure=insecure,
        images=layout.images,
        disk_mb=disk_mb or DISK_MB,
        isolation=wanted_isolation(os.environ),
        relays=practice_relay(github_url),
    )


def size(disk_mb: int = DISK_MB, *, driver: DriverName = "process", slots: int = PODS) -> Size:
    """What each host offers: with VMs the whole machine, divided between so many."""
    if driver == "tart":
        return machine_size(pods=slots)
    return Size(
        pods=PODS, cpu_milli=SLOT_CPU_MILLI, memory_mb=SLOT_MEMORY_MB, disk_mb=disk_mb or DISK_MB
    )
