"""Users for VMs, where we are root: each VM has its own, on the whole machine.

Several agents may live on one machine, each with a home of its own, and a VM's user is how its processes are told from
all others and ended. So which users are taken is written in one place for all of them: a file per slot, which names the
directories of the VM that has it. A slot is free when none of them exists (any more) and nothing runs as its users:
there is nothing to give back, and a killed agent leaves nothing behind.
"""

import fcntl
import itertools
import os
from pathlib import Path

from runyard.vm.contract import DriverFailed
from runyard.vm.process.isolation import Isolation
from runyard.vm.process.processes import table

_TRIES = 30_000  # below the next range of users, whoever has that


def claim(isolation: Isolation, *owners: Path) -> tuple[int, ...]:
    """The users of a new VM (poller and job, one for both, or none), as long as one of `owners` exists."""
    if not isolation.users:
        return ()
    registry = Path(isolation.registry)
    try:
        registry.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(registry, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise DriverFailed(
            f"the users of this machine's VMs cannot be told apart: {error}"
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)  # held for a few reads, by whoever has it
        slot = _free_slot(isolation, registry)
        text = "\n".join(str(owner) for owner in owners)
        (registry / str(slot)).write_text(text, encoding="utf-8", errors="surrogateescape")
    finally:
        os.close(handle)
    first = isolation.uid_base + 2 * slot
    return (first, first + 1) if isolation.users == "pair" else (first,)


def _free_slot(isolation: Isolation, registry: Path) -> int:
    busy = dict.fromkeys((p.uid - isolation.uid_base) // 2 for p in table().values())
    for slot in itertools.count():
        if slot >= _TRIES:
            raise DriverFailed("every user that VMs may have is taken")
        if slot not in busy and not _taken(registry / str(slot)):
            break
    return slot


def _taken(path: Path) -> bool:
    try:
        owners = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except FileNotFoundError:
        return False
    return any(Path(owner).exists() for owner in owners)
