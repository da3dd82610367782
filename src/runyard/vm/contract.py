"""The contract between the node agent and the drivers that run virtual machines.

Drivers (tart, QEMU, plain processes, the simulator's) all satisfy it and pass one test suite.

Invariants that every driver keeps:
- The agent chooses names, which carry the Pod's uid; a driver never invents one.
- `stop` and `delete` succeed when there is nothing to stop or delete: tearing down twice is normal.
- A VM that has ended stays listed, with its exit, until it is deleted: a crash loses no result.
- Nothing here waits longer than the driver's documented bound; the agent adds deadlines anyway.

    VmError
    ├── NoSpace        the host's disk is full: garbage collection may help
    ├── ImageMissing   the image cannot be found or pulled
    └── DriverFailed   anything else, with the driver's own message
"""

from enum import StrEnum
from typing import Protocol

import msgspec


class VmError(Exception):
    """An operation of a driver failed."""


class NoSpace(VmError):
    """The host's disk is full."""


class ImageMissing(VmError):
    """The image cannot be found or pulled."""


class DriverFailed(VmError):
    """The driver failed; the message is the driver's own."""


class VmState(StrEnum):
    """The state of a VM, from creation to exit."""

    STOPPED = "stopped"  # created, never started
    BOOTING = "booting"  # started, has no address yet
    RUNNING = "running"  # has an address
    EXITED = "exited"  # ended, by itself or by us; never starts again


class VmSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The VM to create."""

    name: str
    image: str  # reference with digest, already pulled
    cpu_milli: int
    memory_mb: int
    env: tuple[tuple[str, str], ...] = ()  # staged for the guest
    token: str = ""  # the guest's service account token, staged beside the environment


class VmView(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one VM according to its driver."""

    name: str
    state: VmState
    address: str = ""
    exit_code: int | None = None  # the guest's own report, if it made one
    exit_reason: str = ""
    finished_at: float | None = None


class VmDriver(Protocol):
    """Creates, starts, watches and ends virtual machines, and stores their images."""

    async def list(self) -> tuple[VmView, ...]:
        """List every VM on this host, also those that the agent did not create."""
        ...

    async def create(self, spec: VmSpec) -> None:
        """Clone the image and stage the guest's files. An existing VM of that name is kept as it is."""
        ...

    async def start(self, name: str) -> None:
        """Start it, detached from this process. Already running is success; exited is `DriverFailed`."""
        ...

    async def stop(self, name: str, *, grace: float) -> None:
        """Request a shutdown from the guest, wait at most `grace` seconds, then power off. Absent is success."""
        ...

    async def delete(self, name: str) -> None:
        """Remove it and what was staged for it. Absent is success; running is `DriverFailed`."""
        ...

    async def images(self) -> tuple[str, ...]:
        """References of the images that this host holds."""
        ...

    async def pull(self, image: str) -> None:
        """Fetch an image; present is success. May take many minutes; cancelling it is safe."""
        ...

    async def remove_image(self, image: str) -> None:
        """Drop an image. Absent is success."""
        ...

    async def disk_usage(self, name: str) -> float | None:
        """Percent used of a running guest's root volume, or None if it is unknown."""
        ...
