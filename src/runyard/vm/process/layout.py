"""The files of a host that runs VMs as processes, and how a VM's state is read from them.

home/images/<quoted reference>/        images, complete or absent
home/vms/<name>/                       VMs, complete or absent; a name with a dot is incomplete
    spec.json                          what it was created from, without secrets
    env/ status/ run/ work/ tmp/       the guest's: staged files, its report, its poller's, its job's
    net/                               what its own network needs: sockets of relays, resolv.conf
    image/                             its own copy of the image
    state/                             the shim's (`vm/shim/directory.py`), and the size of its disk
"""

import re
import urllib.parse
from pathlib import Path

import msgspec

from runyard.vm.contract import DriverFailed, HostPolling, VmView
from runyard.vm.shim.directory import ShimDirectory

ADDRESS = "127.0.0.1"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", re.ASCII)


class StoredSpec(msgspec.Struct, frozen=True, kw_only=True):
    """spec.json: the specification that a VM was created from."""

    name: str
    image: str
    cpu_milli: int
    memory_mb: int
    users: tuple[int, ...] = ()  # poller and job, of this VM alone
    dispatch_url: str = ""  # where its poller asks for work
    dispatch_direct: bool = False  # whether its environment has a proxy or certificates for that
    polling: HostPolling | None = None  # if the host asks on its behalf
    env: tuple[tuple[str, str], ...] = ()  # for the runner, then


_stored_spec = msgspec.json.Decoder(StoredSpec)


class VmDirectory(ShimDirectory):
    """The directory of one VM."""

    def __init__(self, path: Path) -> None:
        super().__init__(path.name, path / "state")
        self.path = path
        self.env = path / "env"
        self.status = path / "status"
        self.run = path / "run"
        self.work = path / "work"
        self.tmp = path / "tmp"
        self.image = path / "image"
        self.net = path / "net"

    def exists(self) -> bool:
        """Whether this VM exists."""
        return self.path.is_dir()

    def stored_spec(self) -> StoredSpec | None:
        """What it was created from; None if the file is missing or damaged."""
        try:
            return _stored_spec.decode((self.path / "spec.json").read_bytes())
        except (OSError, msgspec.MsgspecError):
            return None

    def view(self, *, address: str = ADDRESS) -> VmView:
        """The VM as the driver contract shows it."""
        return super().view(address=address)

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
