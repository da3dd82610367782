"""Users for VMs, where we are root: each VM has its own, on the whole machine.

Several agents may live on one machine, each with a home of its own, and a VM's user is how its processes are told from
all others and ended. So which users are taken is written in one place for all of them: a file per slot, which names the
directories of the VM that has it. A slot is free when each of them is gone or holds a VM that has ended, which is
sealed, and nothing runs as its users: there is nothing to give back, and what a killed agent has left is tidied away by
the next one.
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
from runyard.vm.process.layout import Place
from runyard.vm.process.processes import table

_TRIES = 30_000  # below the next range of users, whoever has that


def claim(isolation: Isolation, *owners: Path) -> tuple[int, ...]:
    """The users of a new VM (poller and job, one for both, or none), as long as one of `owners` exists."""
    if not isolation.users:
        return ()
    registry = Path(isolation.registry)
    try:
        registry.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = _open(registry)
    except OSError as error:
        raise DriverFailed(
            f"the users of this machine's VMs cannot be told apart: {error}"
        ) from error
    with _locked(handle):
        slot = _free_slot(isolation, registry)
        text = "\n".join(str(owner) for owner in owners)
        (registry / str(slot)).write_text(text, encoding="utf-8", errors="surrogateescape")
    first = isolation.uid_base + 2 * slot
    return (first, first + 1) if isolation.users == "pair" else (first,)


def abandoned(registry: str, homes: tuple[Path, ...] = ()) -> tuple[Path, ...]:
    """Slots whose owners are gone, or have ended; with `homes`, only of VMs that lived in one of them."""
    try:
        found = sorted(path for path in Path(registry).iterdir() if path.name.isdigit())
    except OSError:  # there is none, or it is not ours to look at
        return ()
    return tuple(path for path in found if not _taken(path) and within(_owner(path), homes))


def tidy(registry: str) -> None:
    """Remove the files of slots that nobody has. Whether somebody runs as such a user, a claim looks itself."""
    if not abandoned(registry):
        return
    with contextlib.suppress(OSError), _locked(_open(Path(registry))):
        for path in abandoned(registry):  # again, now that nobody is claiming
            path.unlink(missing_ok=True)


def _open(registry: Path) -> int:
    return os.open(registry, os.O_RDONLY | os.O_CLOEXEC)


@contextlib.contextmanager
def _locked(handle: int) -> Iterator[None]:
    """Held for a few reads, by whoever has it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _free_slot(isolation: Isolation, registry: Path) -> int:
    busy = dict.fromkeys((p.uid - isolation.uid_base) // 2 for p in table().values())
    for slot in itertools.count():
        if slot >= _TRIES:
            raise DriverFailed("every user that VMs may have is taken")
        if slot not in busy and not _taken(registry / str(slot)):
            break
    return slot


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
    return any(_needs_them(Path(owner)) for owner in owners)


def _needs_them(owner: Path) -> bool:
    try:
        return owner.exists() and not Place(owner).has_ended()
    except OSError:  # it cannot be looked at: then it is somebody's
        return True
