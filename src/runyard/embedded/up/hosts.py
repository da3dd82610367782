"""The hosts of one machine: several Nodes on one computer, each with its own directory and seats."""

from pathlib import Path

from runyard.clock import Clock
from runyard.embedded.up.layout import Layout
from runyard.vm.process.driver import ProcessDriver
from runyard.vm.process.isolation import Limits
from runyard.vm.process.probe import probe_isolation

FLEET = "local"
PODS = 2
SLOT_CPU_MILLI = 500
SLOT_MEMORY_MB = 512
DISK_MB = 64


def host_names(count: int) -> tuple[str, ...]:
    """`host-1`, `host-2`, …"""
    return tuple(f"host-{number}" for number in range(1, count + 1))


def vm_home(layout: Layout, host: str) -> Path:
    """Where a host's VMs and images lie."""
    return layout.host(host) / "vm"


async def driver_for(layout: Layout, host: str, *, clock: Clock) -> ProcessDriver:
    """The driver of one host, with the best isolation that works here."""
    home = vm_home(layout, host)
    return ProcessDriver(
        home,
        image_source=layout.images,
        clock=clock,
        limits=Limits(disk_mb=DISK_MB),
        isolation=await probe_isolation(home),
    )
