"""Opens the driver of a host and makes the agent's settings for it.

`runyard agent`, `tart-kubelet` and `runyard up` all use it, so their hosts are equal Nodes.
"""

import os

import msgspec

from runyard.clock import Clock
from runyard.node.settings import Settings
from runyard.telemetry.log import get_logger
from runyard.vm.registry import Opened, Wanted, open_driver
from runyard.vm.relays import Relay
from runyard.wire import names
from runyard.wire.reasons import render

_SESSION = "/practice/runner/session"
# What a practice runner requests from the practice GitHub, each with its registration's or its session's key.
RUNNER_REQUESTS = (
    ("POST", _SESSION),
    ("DELETE", _SESSION),
    ("GET", f"{_SESSION}/job"),
    ("GET", f"{_SESSION}/cancelled"),
    ("POST", f"{_SESSION}/log"),
    ("PUT", f"{_SESSION}/conclusion"),
)
_HOST_MEMORY_MB = 4096  # left to macOS and the agent where VMs share a whole machine
_LEAST_CORES, _LEAST_MEMORY_MB = 4, 4096  # of a macOS VM; tart refuses less


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """A host's capacity: the number of Pods, and the size of each."""

    pods: int = 2
    cpu_milli: int = 500
    memory_mb: int = 512
    disk_mb: int = 20_480  # that one VM may write


def machine_size(*, pods: int) -> Size:
    """A whole machine, divided between so many VMs; none is smaller than macOS needs."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    return Size(
        pods=pods,
        cpu_milli=max(_LEAST_CORES, (os.cpu_count() or 1) // pods) * 1000,
        memory_mb=max(_LEAST_MEMORY_MB, (memory - _HOST_MEMORY_MB) // pods),
    )


async def open_host(wanted: Wanted, *, clock: Clock) -> Opened:
    """Open the host's driver, and log which one it is and why."""
    opened = await open_driver(wanted, clock=clock)
    get_logger("vm", home=str(wanted.home)).info(
        "driver opened",
        driver=opened.name,
        reason=opened.why.slug,
        detail="; ".join(filter(None, (render(opened.why), opened.detail))),
    )
    return opened


def practice_relay(url: str) -> tuple[Relay, ...]:
    """How runners with a network of their own reach a practice GitHub on this machine; not used if it is elsewhere."""
    if not url:
        return ()
    relay = Relay(
        name="practice",
        variable="RUNYARD_PRACTICE_SOCKET",
        url=url,
        allow=RUNNER_REQUESTS,
        for_job=True,
    )
    return (relay,)


def host_settings(
    node: str,
    opened: Opened,
    *,
    size: Size,
    fleet: str,
    labels: tuple[tuple[str, str], ...] = (),
    address: str = "127.0.0.1",
) -> Settings:
    """The agent's settings for a host with this driver; the Node's labels say what the driver found."""
    traits = opened.traits
    by_image = traits.runtime == names.NODE_RUNTIME_TART  # a VM image has a size of its own
    return Settings(
        node_name=node,
        node_ip=address,
        fleet=fleet,
        labels=(*traits.labels, *labels),
        os=traits.os,
        arch=traits.arch,
        runtime=traits.runtime,
        cpu_milli=size.cpu_milli * size.pods,
        memory_mb=size.memory_mb * size.pods,
        pods=size.pods,
        vm_cpu_milli=0 if by_image else size.cpu_milli,
        vm_memory_mb=0 if by_image else size.memory_mb,
    )
