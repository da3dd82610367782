"""Builds the driver and the agent's settings for a host that runs Pods as groups of processes.

`runyard agent --driver process` and `runyard up` both use it, so their hosts are equal Nodes.
"""

import platform
import sys
from pathlib import Path
from typing import Literal

import msgspec

from runyard.clock import Clock
from runyard.node.settings import Settings
from runyard.telemetry.log import get_logger
from runyard.vm.process.driver import ProcessDriver
from runyard.vm.process.limits import Limits
from runyard.vm.process.probe import probe_isolation
from runyard.wire import names

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """A host's capacity: the number of Pods, and the size of each."""

    pods: int = 2
    cpu_milli: int = 500
    memory_mb: int = 512
    disk_mb: int = 20_480  # that one VM may write


async def process_driver(
    home: Path, *, images: Path, clock: Clock, size: Size, isolation: Literal["auto", "none"]
) -> ProcessDriver:
    """The driver of one host, with the best isolation that works here."""
    found = await probe_isolation(home, want=isolation)
    get_logger("vm", home=str(home)).info(
        "isolation", kind=found.kind, detail=found.detail, limits=found.limits
    )
    return ProcessDriver(
        home,
        image_source=images,
        clock=clock,
        limits=Limits(disk_mb=size.disk_mb),
        isolation=found,
    )


def process_settings(
    node: str, driver: ProcessDriver, *, size: Size, fleet: str, labels: tuple[tuple[str, str], ...]
) -> Settings:
    """The agent's settings for a host that runs processes; the Node shows how far Pods are isolated."""
    machine = platform.machine()
    return Settings(
        node_name=node,
        node_ip="127.0.0.1",
        fleet=fleet,
        labels=((names.NODE_ISOLATION, driver.isolation.kind), *labels),
        os="darwin" if sys.platform == "darwin" else "linux",
        arch=_ARCHITECTURES.get(machine, machine),
        runtime=names.NODE_RUNTIME_PROCESS,
        cpu_milli=size.cpu_milli * size.pods,
        memory_mb=size.memory_mb * size.pods,
        pods=size.pods,
        vm_cpu_milli=size.cpu_milli,
        vm_memory_mb=size.memory_mb,
    )
