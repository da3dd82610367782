"""The files of a host that runs VMs as processes, and how a VM's state is read from them.

    home/images/<quoted reference>/        images, complete or absent
    home/vms/<name>/                       VMs, complete or absent; a name with a dot is incomplete
        spec.json                          what it was created from, without secrets
        env/ status/ run/ work/ tmp/       the guest's: staged files, its report, its poller's, its job's
        image/                             its own copy of the image
        state/                             the shim's: order.json lock alive control started exit.json …

All state is on disk: an agent may be killed at any moment, and the next one reads the same.
A VM's state is read from three facts:

    exit.json   alive (a process has it open for writing)  started
    yes         –                                          –         exited
    no          yes                                        no        booting
    no          yes                                        yes       running
    no          no                                         yes       its shim was killed: to be reaped
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


class StoredSpec(msgspec.Struct, frozen=True, kw_only=True):
    """spec.json: the specification that a VM was created from."""

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


class ShimState(Enum):
    """The state of a VM according to its files."""

    STOPPED = "stopped"
    BOOTING = "booting"
    RUNNING = "running"
    ORPHANED = "orphaned"
    EXITED = "exited"


_stored_spec = msgspec.json.Decoder(StoredSpec)
_exit = msgspec.json.Decoder(Exit)
_STATES = {
    ShimState.STOPPED: VmState.STOPPED,
    ShimState.BOOTING: VmState.BOOTING,
    ShimState.RUNNING: VmState.RUNNING,
    ShimState.ORPHANED: VmState.RUNNING,  # until it is reaped, processes of it may run
}


class VmDirectory:
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
        """Whether this VM exists."""
        return self.path.is_dir()

    def stored_spec(self) -> StoredSpec | None:
        """What it was created from; None if the file is missing or damaged."""
        try:
            return _stored_spec.decode((self.path / "spec.json").read_bytes())
        except (OSError, msgspec.MsgspecError):
            return None

    def ended(self) -> Exit | None:
        """Its exit record."""
        try:
            return _exit.decode((self.state / "exit.json").read_bytes())
        except (OSError, msgspec.MsgspecError):
            return None

    def has_ended(self) -> bool:
        """Whether there is an exit record: then nothing of it runs, nor ever will."""
        return (self.state / "exit.json").exists()

    def alive(self) -> bool:
        """Whether a shim runs: reading a pipe without a writer gives end of file, with a writer it would block."""
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
        """The reading end of `alive`; it becomes readable when the shim is gone."""
        return os.open(self.state / "alive", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def shim_state(self) -> ShimState:
        """Reads the state. The exit record is checked again last, because it may have been written meanwhile."""
        if self.has_ended():
            return ShimState.EXITED
        started = (self.state / "started").exists()
        if self.alive():
            return ShimState.RUNNING if started else ShimState.BOOTING
        if self.has_ended():
            return ShimState.EXITED
        return ShimState.ORPHANED if (self.state / "started").exists() else ShimState.STOPPED

    def view(self) -> VmView:
        """The VM as the driver contract shows it."""
        shim_state = self.shim_state()
        if shim_state is not ShimState.EXITED:
            state = _STATES[shim_state]
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
        """How much it has written, as of the shim's last measurement."""
        try:
            return int((self.state / "disk").read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None


def vm_name(name: str) -> str:
    """Checks that a name is safe as a file's name."""
    if not _NAME.fullmatch(name):
        raise DriverFailed(
            f"invalid VM name {name!r}: at most 200 letters, digits, '.', '_' and '-' are allowed"
        )
    return name


def quoted(image: str) -> str:
    """An image's reference, quoted as a file's name."""
    name = urllib.parse.quote(image, safe="")
    if name.startswith("."):
        name = "%2E" + name[1:]
    if not name or len(name) > 240:
        raise DriverFailed(
            f"image reference {image[:80]!r} is empty or too long for a directory name"
        )
    return name


def unquoted(name: str) -> str:
    """The reference that `quoted` was given."""
    return urllib.parse.unquote(name)
