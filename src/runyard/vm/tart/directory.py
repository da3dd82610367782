"""The files of a host that runs VMs with tart.

    home/vms/<name>/         VMs of ours; a name with a dot is incomplete or being removed
        spec.json            what it is created from: the record that it is ours
        created              made when the clone is complete
        env/                 shared read-only: tuist.env, and sa_token until the guest has read it
        token/               shared for writing: sa_token, which the guest removes after reading it
        status/              shared for writing: the guest's report
        state/               the shim's; with the token, if the host polls: then nothing is shared with the guest
    home/logs/<name>/        the console log of a deleted VM, until it is forgotten
    home/goldens/<name>.json the golden VMs that were made here

Invariants:
- The record exists before tart is asked to make the VM, so a VM of ours is always known as one.
- No other user can read any of it. The token is in `env` and `token`, or in `state`, only.
- What a guest has made in the shares `token` and `status` does not keep its VM from being removed.
"""

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from runyard.files import sync_directory, write_whole
from runyard.vm.contract import DriverFailed, HostPolling, VmSpec
from runyard.vm.guest import envfile
from runyard.vm.shim import logs
from runyard.vm.shim.directory import ShimDirectory, private
from runyard.vm.shim.locks import flock
from runyard.vm.shim.orders import stage_polling

TOKEN = "sa_token"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", re.ASCII)


class StoredSpec(msgspec.Struct, frozen=True, kw_only=True):
    """spec.json: what a VM is created from."""

    image: str
    cpu_milli: int
    memory_mb: int
    polling: HostPolling | None = None  # if the host asks on its behalf
    env: tuple[tuple[str, str], ...] = ()  # for the runner, then


_spec = msgspec.json.Decoder(StoredSpec)


class TartDirectory(ShimDirectory):
    """The directory of one VM."""

    def __init__(self, path: Path) -> None:
        super().__init__(path.name, path / "state")
        self.path = path
        self.env = path / "env"
        self.token = path / "token"
        self.status = path / "status"

    def exists(self) -> bool:
        """Whether this is a VM of ours, complete or not."""
        return (self.path / "spec.json").is_file()

    def spec(self) -> StoredSpec:
        """What it is created from; raises `DriverFailed`."""
        try:
            return _spec.decode((self.path / "spec.json").read_bytes())
        except (OSError, msgspec.MsgspecError) as error:
            raise DriverFailed(
                f"the record of {self.name} cannot be read ({error}): delete the VM"
            ) from error

    def created(self) -> bool:
        """Whether its clone is complete."""
        return (self.path / "created").exists()

    def mark_created(self) -> None:
        """Records that its clone is complete; raises OSError."""
        write_whole(self.path / "created", "")

    def stage(self, spec: VmSpec) -> None:
        """Makes it, with the files for the guest; it appears whole. Raises OSError and `BadEnvironment`."""
        stored = StoredSpec(
            image=spec.image,
            cpu_milli=spec.cpu_milli,
            memory_mb=spec.memory_mb,
            polling=spec.polling,
            env=spec.env if spec.polling else (),
        )
        fresh = TartDirectory(self.path.with_name(f".new-{os.getpid()}-{self.name}"))
        shutil.rmtree(fresh.path, ignore_errors=True)
        fresh.path.mkdir(mode=0o700)
        with _held(fresh.path):
            try:
                fresh._fill(spec)
                write_whole(fresh.path / "spec.json", msgspec.json.encode(stored))
                fresh.path.rename(self.path)
            except BaseException:
                shutil.rmtree(fresh.path, ignore_errors=True)
                raise
        sync_directory(self.path.parent)

    def _fill(self, spec: VmSpec) -> None:
        for folder in (self.env, self.token, self.status):
            folder.mkdir(mode=0o700)
        self.prepare()
        if spec.polling:  # nothing is staged for the guest
            stage_polling(self, spec)
        else:
            self.stage_for_guest(spec)

    def stage_for_guest(self, spec: VmSpec) -> None:
        """Writes what the guest's own script reads."""
        private(self.env / "tuist.env", envfile.encode(spec.env))
        if spec.token:
            private(self.env / TOKEN, spec.token.encode())
            private(self.token / TOKEN, spec.token.encode())

    def was_refused(self) -> bool:
        """Whether tart has refused its run because too many VMs run, as its shim has recorded."""
        ended = self.ended()
        return ended is not None and ended.refused

    def secrets(self) -> tuple[Path, Path]:
        """Where the token is while the guest has not read it: first the one that the guest removes."""
        return self.token / TOKEN, self.env / TOKEN

    def remove(self) -> None:
        """Removes all of it, secrets first; raises OSError."""
        _open_up(self.path)
        for path in self.secrets():
            if path.is_symlink() or not path.is_dir():  # a guest may have made a directory of it
                path.unlink(missing_ok=True)
        gone = self.path.with_name(f".gone-{os.getpid()}-{self.name}")
        shutil.rmtree(gone, ignore_errors=True)
        self.path.rename(gone)
        with _held(gone):
            shutil.rmtree(gone)

    def forget_start(self) -> None:
        """Takes a start back that tart has refused, before anything of the VM ran. The caller holds its lock.

        Its token is where it was: the shim has kept it for the next start.
        """
        # The exit record is last: killed in between, the start is taken back again.
        for name in (logs.CURRENT, logs.OLDER, "started", "exit.json"):
            (self.state / name).unlink(missing_ok=True)
        sync_directory(self.state)


def vm_name(name: str) -> str:
    """Checks that a name is one of a local VM and safe as a file's name."""
    if not _NAME.fullmatch(name):
        raise DriverFailed(
            f"invalid VM name {name[:80]!r}: at most 200 letters, digits, '.', '_' and '-' are allowed"
        )
    return name


def visible(vms: Path) -> tuple[TartDirectory, ...]:
    """The VMs of ours, by name."""
    try:
        found = sorted(path for path in vms.iterdir() if not path.name.startswith("."))
    except FileNotFoundError:
        return ()
    return tuple(each for each in map(TartDirectory, found) if each.exists())


def sweep(vms: Path) -> None:
    """Removes what a killed agent has left half made or half removed, and no live one works on."""
    for path in sorted(vms.glob(".*")):
        with contextlib.suppress(OSError), _held(path) as ours:
            if ours:
                _open_up(path)
                shutil.rmtree(path, ignore_errors=True)


def _open_up(path: Path) -> None:
    """Makes all its directories removable: a guest chooses the modes of those in its shares. No link is followed."""
    for folder, names, _ in os.walk(path):
        for name in names:
            inner = Path(folder, name)
            if not inner.is_symlink():
                inner.chmod(0o700)


@contextlib.contextmanager
def _held(path: Path) -> Iterator[bool]:
    """Locks a directory that is being made or removed, against the sweep of another agent; yields whether it did."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield flock(handle)
    finally:
        os.close(handle)
