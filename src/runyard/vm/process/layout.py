"""Where a host that runs VMs as processes keeps what, and what it says about a VM.

    home/images/<quoted reference>/        images, whole or not there
    home/vms/<name>/                       a VM, whole or not there; names with a dot are on their way in or out
        spec.json                          what it was created from, without secrets
        env/ status/ run/ work/ tmp/       the guest's: staged for it, reported by it, its poller's, its job's
        image/                             its own copy of the image
        state/                             the keeper's: order.json lock alive control started exit.json …

Everything that is known is on disk: an agent may be killed at any moment, and the next one sees the same.
A VM's state is read from three facts:

    exit.json   alive (somebody has it open for writing)   started
    yes         –                                          –         exited
    no          yes                                        no        booting
    no          yes                                        yes       running
    no          no                                         yes       its keeper was killed: to be buried
    no          no                                         no        stopped
"""

import os
import re
import urllib.parse
from enum import Enum
from pathlib import Path

import msgspec

from runyard.vm.contract import DriverFailed, VmState, VmView

ADDRESS = "127.0.0.1"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", re.ASCII)


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """spec.json: what a VM was created from."""

    name: str
    image: str
    cpu_milli: int
    memory_mb: int
    users: tuple[int, ...] = ()  # poller and job, of this VM alone


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """exit.json: how it ended."""

    exit_code: int | None
    exit_reason: str
    finished_at: float


class Pulse(Enum):
    """What the files say."""

    STOPPED = "stopped"
    BOOTING = "booting"
    RUNNING = "running"
    ORPHANED = "orphaned"
    EXITED = "exited"


_kept = msgspec.json.Decoder(Kept)
_exit = msgspec.json.Decoder(Exit)
_STATES = {
    Pulse.STOPPED: VmState.STOPPED,
    Pulse.BOOTING: VmState.BOOTING,
    Pulse.RUNNING: VmState.RUNNING,
    Pulse.ORPHANED: VmState.RUNNING,  # until it has been buried something of it may live
}


class Place:
    """The directory of one VM."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name
        self.state = path / "state"
        self.env = path / "env"
        self.status = path / "status"
        self.run = path / "run"
        self.work = path / "work"
        self.tmp = path / "tmp"
        self.image = path / "image"

    def exists(self) -> bool:
        """Whether there is such a VM."""
        return self.path.is_dir()

    def kept(self) -> Kept | None:
        """What it was created from; None if somebody has damaged that."""
        try:
            return _kept.decode((self.path / "spec.json").read_bytes())
        except (OSError, msgspec.MsgspecError):
            return None

    def ended(self) -> Exit | None:
        """Its exit record."""
        try:
            return _exit.decode((self.state / "exit.json").read_bytes())
        except (OSError, msgspec.MsgspecError):
            return None

    def has_ended(self) -> bool:
        """Whether there is an exit record; nothing of it runs any more, nor ever will."""
        return (self.state / "exit.json").exists()

    def alive(self) -> bool:
        """Whether somebody keeps it: a pipe that has a writer is empty, one that has none is at its end."""
        try:
            handle = self.listen()
        except OSError:
            return False
        try:
            return os.read(handle, 1) != b""
        except BlockingIOError:
            return True
        finally:
            os.close(handle)

    def listen(self) -> int:
        """The reading end of `alive`: it becomes readable when the keeper is gone."""
        return os.open(self.state / "alive", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def pulse(self) -> Pulse:
        """What the files say. The exit is looked at again last: it may have been written meanwhile."""
        if self.has_ended():
            return Pulse.EXITED
        started = (self.state / "started").exists()
        if self.alive():
            return Pulse.RUNNING if started else Pulse.BOOTING
        if self.has_ended():
            return Pulse.EXITED
        return Pulse.ORPHANED if (self.state / "started").exists() else Pulse.STOPPED

    def view(self) -> VmView:
        """What the contract wants to know."""
        pulse = self.pulse()
        if pulse is not Pulse.EXITED:
            state = _STATES[pulse]
            address = ADDRESS if state is VmState.RUNNING else ""
            return VmView(name=self.name, state=state, address=address)
        ended = self.ended() or Exit(
            exit_code=None, exit_reason="its exit record cannot be read", finished_at=0.0
        )
        return VmView(
            name=self.name,
            state=VmState.EXITED,
            exit_code=ended.exit_code,
            exit_reason=ended.exit_reason,
            finished_at=ended.finished_at or None,
        )

    def disk_bytes(self) -> int | None:
        """How much it has written, as of the keeper's last look."""
        try:
            return int((self.state / "disk").read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None


def vm_name(name: str) -> str:
    """A name that is safe as a file's name."""
    if not _NAME.fullmatch(name):
        raise DriverFailed(f"not a name for a VM: {name!r}")
    return name


def quoted(image: str) -> str:
    """An image's reference as a file's name."""
    name = urllib.parse.quote(image, safe="")
    if name.startswith("."):
        name = "%2E" + name[1:]
    if not name or len(name) > 240:
        raise DriverFailed(f"not a reference that a directory can be named after: {image[:80]!r}")
    return name


def unquoted(name: str) -> str:
    """The reference that a file was named after."""
    return urllib.parse.unquote(name)
