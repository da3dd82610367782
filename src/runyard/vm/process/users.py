"""Assigns users to VMs, where we are root: each VM has its own, unique on the whole machine.

Several agents may run on one machine, each with its own home, and a VM's processes are found and killed by its users.
So one registry for all of them records which users are taken: a file per number, which names the directories of the
VM that has it. A number is free when each directory is gone or holds a VM that has ended (and is sealed), and no
process runs as its users. So users need not be returned, and the next agent removes what a killed one has left.
"""

import contextlib
import fcntl
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from runyard.vm.contract import DriverFailed
from runyard.vm.process.folders import within
from runyard.vm.process.isolation import Isolation
from runyard.vm.process.layout import VmDirectory
from runyard.vm.shim.processes import table

_TRIES = 30_000  # stays below the next range of users


def claim(isolation: Isolation, *owners: Path) -> tuple[int, ...]:
    """Claims the users of a new VM (two, one or none) for as long as one of the directories `owners` exists."""
    if not isolation.users:
        return ()
    registry = Path(isolation.registry)
    try:
        registry.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = _open(registry)
    except OSError as error:
        raise DriverFailed(
            f"the registry of VM users {registry} cannot be used: {error}"
        ) from error
    with _locked(handle):
        number = _free_number(isolation, registry)
        text = "\n".join(str(owner) for owner in owners)
        (registry / str(number)).write_text(text, encoding="utf-8", errors="surrogateescape")
    first = isolation.uid_base + 2 * number
    return (first, first + 1) if isolation.users == "pair" else (first,)


def abandoned(registry: str, homes: tuple[Path, ...] = ()) -> tuple[Path, ...]:
    """The files of numbers whose owners are gone or have ended; with `homes`, only of VMs in one of them."""
    try:
        found = sorted(path for path in Path(registry).iterdir() if path.name.isdigit())
    except OSError:  # it does not exist, or we may not read it
        return ()
    return tuple(path for path in found if not _taken(path) and within(_owner(path), homes))


def tidy(registry: str) -> None:
    """Removes the files of free numbers. Whether processes run as their users is checked by the next claim."""
    if not abandoned(registry):
        return
    with contextlib.suppress(OSError), _locked(_open(Path(registry))):
        for path in abandoned(registry):  # again, now that no other process can claim
            path.unlink(missing_ok=True)


def _open(registry: Path) -> int:
    return os.open(registry, os.O_RDONLY | os.O_CLOEXEC)


@contextlib.contextmanager
def _locked(handle: int) -> Iterator[None]:
    """Holds the registry's lock, for a few reads."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _free_number(isolation: Isolation, registry: Path) -> int:
    busy = dict.fromkeys((p.uid - isolation.uid_base) // 2 for p in table().values())
    for number in itertools.count():
        if number >= _TRIES:
            raise DriverFailed(f"all {_TRIES} numbers for VM users are taken")
        if number not in busy and not _taken(registry / str(number)):
            break
    return number


def _owner(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8", errors="surrogateescape").partition("\n")[0]
    return ""


def _taken(path: Path) -> bool:
    try:
        owners = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return any(_in_use(Path(owner)) for owner in owners)


def _in_use(owner: Path) -> bool:
    try:
        return owner.exists() and not VmDirectory(owner).has_ended()
    except OSError:  # it cannot be read: assume that it is in use
        return True
