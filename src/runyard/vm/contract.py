"""The contract between the node agent and the drivers that run virtual machines.

Every driver (tart, plain processes, the simulator's; QEMU later) satisfies `VmDriver` and passes one test suite.

Invariants that every driver keeps:
- The agent chooses names, which carry the Pod's uid; a driver never invents one.
- A VM that was ever started is never started again, whatever was killed since: it is listed as exited.
- A VM that has ended stays listed, with its exit, until it is deleted: a crash loses no result.
- Tearing down what does not exist, or does not run, is success.
- A VM that this driver did not create is listed with `owned=False` and never changed.
- One VM that hangs delays no call about another one, and `list` least of all.
- Output is passed on as it is read: neither a slow reader nor a flood fills this process's memory.
- Calls end within their own deadlines; the agent adds deadlines anyway. Cancelling a call is safe.

    VmError
    ├── NoSpace        the host's disk is full: garbage collection may help
    ├── SlotsFull      as many VMs run as the host allows, those of others included: wait
    ├── ImageMissing   the image does not exist in its registry, or has not been pulled
    ├── Unauthorized   the registry refuses the credentials
    ├── Unreachable    a registry or a guest does not answer: retry later
    │   └── Stalled    a pull made no progress for so long that it was ended: retry later
    └── DriverFailed   anything else, with the driver's own message
        └── Hung       a command did not end within its deadline and was ended: retry later
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from typing import ClassVar, Protocol

import msgspec

from runyard.wire.kube_reasons import KubeCode

STOP_MARGIN = 45.0
"""Seconds after its grace period in which `stop` ends, with success or an error. Longer than any driver needs, so that
the caller's deadline never comes before the power-off."""


class Fault(KubeCode):
    """What kind of failure an operation of a driver had; also why a Pod's container waits."""

    NO_SPACE = "no-space", "the host's disk is full"
    SLOTS_FULL = "slots-full", "as many VMs run as the host allows"
    IMAGE_MISSING = "image-missing", "the image cannot be found"
    UNAUTHORIZED = "unauthorized", "the registry refuses the credentials"
    UNREACHABLE = "unreachable", "a registry or a guest does not answer"
    PULL_STALLED = "pull-stalled", "the pull made no progress"
    DRIVER_FAILED = "driver-failed", "the driver failed"
    DRIVER_HUNG = "driver-hung", "a command of the driver did not end in time"


class VmError(Exception):
    """An operation of a driver failed. The message names the object, the cause and the fix."""

    fault: ClassVar[Fault] = Fault.DRIVER_FAILED


class NoSpace(VmError):
    """The host's disk is full."""

    fault = Fault.NO_SPACE


class SlotsFull(VmError):
    """As many VMs run as the host allows, those of others included."""

    fault = Fault.SLOTS_FULL


class ImageMissing(VmError):
    """The image does not exist in its registry, or has not been pulled."""

    fault = Fault.IMAGE_MISSING


class Unauthorized(VmError):
    """The registry refuses the credentials."""

    fault = Fault.UNAUTHORIZED


class Unreachable(VmError):
    """A registry or a guest does not answer; trying again later may help."""

    fault = Fault.UNREACHABLE


class Busy(Unreachable):
    """The registry has asked to be left alone for a while: nothing else is to ask it meanwhile."""


class Stalled(Unreachable):
    """A pull made no progress for so long that it was ended."""

    fault = Fault.PULL_STALLED


class DriverFailed(VmError):
    """The driver failed; the message is the driver's own."""


class Hung(DriverFailed):
    """A command of the driver did not end within its deadline and was ended with all its processes."""

    fault = Fault.DRIVER_HUNG


class VmState(StrEnum):
    """The state of a VM, from creation to exit."""

    STOPPED = "stopped"  # created, never started
    BOOTING = "booting"  # started, has no address yet
    RUNNING = "running"  # has an address
    EXITED = "exited"  # ended, by itself or by us; never starts again


class HostPolling(msgspec.Struct, frozen=True, kw_only=True):
    """How the host asks for a job on behalf of a guest, which then holds no token and runs no script of ours."""

    url: str  # the dispatch endpoint
    ca: str = ""  # certificates (PEM) that the server is checked by; empty: the system's
    runner: str = ""  # directory of the Actions runner in the guest; empty: the usual places
    archive: str = ""  # a runner's archive on the host, copied into a guest without a runner


class VmSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The VM to create."""

    name: str
    image: str  # reference with digest, already pulled
    cpu_milli: int  # 0: the image's own
    memory_mb: int  # 0: the image's own
    env: tuple[tuple[str, str], ...] = ()  # staged for the guest
    token: str = ""  # the Pod's service account token: staged for the guest, or kept by the shim if the host polls
    polling: HostPolling | None = None  # None: the guest's own script polls


class VmView(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one VM according to its driver."""

    name: str
    state: VmState
    owned: bool = True  # whether this driver has created it
    address: str = ""
    exit_code: int | None = None  # the guest's own report, if it made one
    exit_reason: str = ""
    exit_status: int | None = None  # of the program that ran it; negative: the signal that ended it
    finished_at: float | None = None


class ResolvedImage(msgspec.Struct, frozen=True, kw_only=True):
    """What a reference means now, according to its registry."""

    reference: str  # with digest: what VMs are created from and what is shown as the Pod's imageID
    bytes: int = 0  # to be downloaded; 0 if unknown
    pinned: bool = True
    """False: the registry answers the driver's own tools only. The reference is the one that was asked for; it is
    pulled, and then `remembered` is what it means."""


class ImageView(msgspec.Struct, frozen=True, kw_only=True):
    """One image on this host."""

    reference: str  # with digest
    bytes: int = 0  # on disk; 0 if unknown
    last_used: float | None = None  # when a VM was last made from it, if the driver knows


class PullProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a pull has come."""

    percent: float
    bytes_done: int = 0  # 0 if unknown
    bytes_total: int = 0  # 0 if unknown


def ignore_progress(_: PullProgress) -> None:
    """Drops the progress of a pull, for callers that do not show it."""


class HostCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """What the host has, and what is left of it."""

    disk_total: int  # bytes of the file system that holds VMs and images
    disk_free: int
    slots: int = 0  # VMs that may run at once; 0: no limit of the driver
    slots_used: int = 0  # running VMs, those of others included


class TerminalSize(msgspec.Struct, frozen=True):
    """Size of a terminal in characters."""

    columns: int
    rows: int


class Stream(StrEnum):
    """The output stream of a command; with a terminal everything is `stdout`."""

    STDOUT = "stdout"
    STDERR = "stderr"


class ExecSession(Protocol):
    """A command that runs in a guest. Left early, the context ends the command."""

    async def read(self) -> tuple[Stream, bytes] | None:
        """The next output; None when both streams are closed. The command waits until its output is read."""
        ...

    async def write(self, data: bytes) -> None:
        """Pass input to the command; returns when most of it was taken. Input of an ended command is dropped."""
        ...

    async def close_input(self) -> None:
        """End the command's input. Twice is success."""
        ...

    async def resize(self, size: TerminalSize) -> None:
        """Change the size of the command's terminal; without a terminal nothing happens."""
        ...

    async def wait(self) -> int:
        """Wait for the command's end, its output read meanwhile; returns its exit code, 128 + n after signal n."""
        ...


class Connection(Protocol):
    """A TCP connection to a port of a guest."""

    async def read(self, limit: int) -> bytes:
        """At most `limit` bytes; empty at the end."""
        ...

    async def write(self, data: bytes) -> None:
        """Send; returns when most of it was taken."""
        ...

    async def close_write(self) -> None:
        """Send the end; the other direction stays open."""
        ...


class Vms(Protocol):
    """Creates, starts, lists and ends virtual machines."""

    async def list(self) -> tuple[VmView, ...]:
        """List every VM on this host, also those that the agent did not create."""
        ...

    async def create(self, spec: VmSpec) -> None:
        """Clone the image and stage the guest's files. An existing VM of ours of that name is kept as it is.

        A VM of another tool of that name is `DriverFailed` and is left alone.
        """
        ...

    async def start(self, name: str) -> None:
        """Start it, detached from this process. Already running is success; exited is `DriverFailed`."""
        ...

    async def stop(self, name: str, *, grace: float) -> None:
        """Request a shutdown from the guest, wait at most `grace` seconds, then power off.

        Absent is success, and so is a VM of another tool of that name, which is left alone.
        """
        ...

    async def delete(self, name: str) -> None:
        """Remove it and what was staged for it; its log stays. Running is `DriverFailed`.

        Absent is success, and so is a VM of another tool of that name, which is left alone.
        """
        ...

    async def forget(self, name: str) -> None:
        """Remove what is kept of a deleted VM, its log above all. Absent is success."""
        ...


class Images(Protocol):
    """Stores images on this host."""

    pulls_tags: bool = False
    """Whether `pull` takes a tag too and asks the registry itself, for when `resolve` could not; see `remembered`."""

    async def resolve(self, image: str) -> ResolvedImage:
        """Ask the registry what a reference means now. One with a digest is answered without a request."""
        ...

    async def remembered(self, image: str) -> str:
        """What a tag meant when it was last pulled on this host, by any program; empty if that is not known.

        For times in which its registry does not answer. The image may be gone.
        """
        return ""

    async def images(self) -> tuple[ImageView, ...]:
        """The images that this host holds, each once, also those that the agent did not pull."""
        ...

    async def pull(
        self, image: str, *, progress: Callable[[PullProgress], None] = ignore_progress
    ) -> None:
        """Fetch an image by digest; present is success. Ends when no progress is made, not after a fixed time.

        Cancelling it is safe, and calls for the same image share one pull.
        """
        ...

    async def remove_image(self, image: str) -> None:
        """Drop an image by digest. Absent is success."""
        ...

    async def collect(self, *, used: frozenset[str], idle: float) -> tuple[str, ...]:
        """Remove what the driver itself has made from images, to create VMs faster; returns the images' references.

        It goes when its image is no longer here, or when it was not used for `idle` seconds; never if its image is in
        `used`, or while a VM is being created from it.
        """
        return ()


class Guests(Protocol):
    """Reaches into running guests."""

    def exec(
        self, name: str, argv: tuple[str, ...], *, tty: TerminalSize | None = None
    ) -> AbstractAsyncContextManager[ExecSession]:
        """Run a command in the guest, as its job's user. `Unreachable` if the guest does not answer."""
        ...

    def logs(self, name: str, *, follow: bool = False) -> AsyncIterator[bytes]:
        """The console log from the oldest byte that is kept. `follow` goes on until the VM has ended.

        It can be read after the VM was deleted, until it is forgotten; then it is empty.
        """
        ...

    def dial(self, name: str, port: int) -> AbstractAsyncContextManager[Connection]:
        """Connect to a port of the guest, by the interface that leads to it. `Unreachable` if it does not answer."""
        ...

    async def disk_usage(self, name: str) -> float | None:
        """Percent used of a running guest's root volume, or None if the driver cannot know it."""
        ...


class VmDriver(Vms, Images, Guests, Protocol):
    """Everything that the agent needs of one host."""

    async def capacity(self) -> HostCapacity:
        """Disk and slots of the host."""
        ...
