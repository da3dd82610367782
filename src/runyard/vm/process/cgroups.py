"""Manages control groups (version 2) on the host: finds ours, splits it, creates a leaf per VM, removes leftovers.

    our group                    split: its children may have limits
    ├── runyard-inside           the processes that were in it and were moved, ours among them
    ├── runyard-1f0c…            a leaf: the processes of one VM and no others
    └── runyard-77ab…

A leaf is named after its VM's directory and carries the directory's path as an extended attribute. When the
directory is gone, the next driver that starts kills the leaf's processes and removes it.
"""

import contextlib
import errno
import hashlib
import os
import sys
from pathlib import Path

from runyard.clock import Clock
from runyard.vm.contract import DriverFailed
from runyard.vm.process import cgroup
from runyard.vm.process.folders import within
from runyard.vm.process.limits import CONTROLLERS, CgroupFacts, SplitPlan, split_plan

PREFIX = "runyard-"
INSIDE = "runyard-inside"
_MARK = "user.runyard.vm"
_DELEGATED = ("trusted.delegate", "user.delegate")  # set by systemd on groups that it delegates
_BUSY = (errno.EBUSY, errno.EAGAIN)
_ROUNDS = 50
_TIMEOUT = 5.0


# ── our group ───────────────────────────────────────────────────────────────────────────────────


def own() -> Path | None:
    """The group of this process, or the one that it was moved out of; None where there is no version 2."""
    with contextlib.suppress(OSError):
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
        points = [line.split()[4] for line in mounts if " - cgroup2 " in line]
        groups = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
        inside = [line[3:] for line in groups if line.startswith("0::")]
        if points and inside and ".." not in inside[0].split("/"):
            found = Path(points[0] + inside[0].rstrip("/"))
            return found.parent if found.name == INSIDE else found
    return None


def inspect(group: Path) -> CgroupFacts:
    """Reads what `split_plan` needs to know about the group."""
    pids = _words(group / "cgroup.procs")
    return CgroupFacts(
        true_root=not (group / "cgroup.type").exists(),
        top=not (group.parent / "cgroup.procs").exists(),
        owned=os.geteuid() != 0 and group.stat().st_uid == os.geteuid(),
        delegated=any(_mark(group, name) == "1" for name in _DELEGATED),
        processes=len(pids),
        hidden="0" in pids,
        offered=_words(group / "cgroup.controllers"),
        enabled=_words(group / "cgroup.subtree_control"),
    )


def split(group: Path, wanted: tuple[str, ...] = CONTROLLERS) -> tuple[tuple[str, ...], str]:
    """Enables controllers for the groups below: returns which they have now, and why not more."""
    try:
        plan = split_plan(inspect(group), wanted)
        why = _apply(group, plan)
    except OSError as error:
        return (), f"{group}: {error.strerror}"
    enabled = _words(group / "cgroup.subtree_control")
    return tuple(name for name in wanted if name in enabled), why


def _apply(group: Path, plan: SplitPlan) -> str:
    why = plan.why
    for controller in plan.enable:
        try:
            _enable(group, controller, move_processes=plan.move_processes)
        except OSError as error:
            why = f"{controller} cannot be enabled: {error.strerror}"
    return why


def _enable(group: Path, controller: str, *, move_processes: bool) -> None:
    """A process may start between moving the others and the write: then both are done again."""
    for again in range(_ROUNDS, -1, -1):
        if move_processes:
            _move_processes(group)
        try:
            _write(group / "cgroup.subtree_control", f"+{controller}")
        except OSError as error:
            if not move_processes or not again or error.errno not in _BUSY:
                raise
        else:
            return


def _move_processes(group: Path) -> None:
    inside = group / INSIDE
    inside.mkdir(exist_ok=True)
    for pid in cgroup.members(str(group)):
        with contextlib.suppress(ProcessLookupError):  # it has exited
            _write(inside / "cgroup.procs", str(pid))


# ── leaves ──────────────────────────────────────────────────────────────────────────────────────


def leaf_path(group: Path, vm: Path) -> Path:
    """The path of the leaf for the VM with this directory."""
    digest = hashlib.sha256(os.fsencode(vm)).hexdigest()[:16]
    return group / f"{PREFIX}{digest}"


def make(group: Path, vm: Path, limits: tuple[tuple[str, str], ...]) -> Path:
    """Creates an empty leaf with its limits. Raises `DriverFailed` if a limit cannot be set."""
    path = leaf_path(group, vm)
    try:
        path.mkdir(exist_ok=True)
        _set_mark(path, str(vm))
        for name, value in limits:
            if name != "memory.swap.max" or (path / name).exists():  # not where there is no swap
                _write(path / name, value)
    except OSError as error:
        raise DriverFailed(f"cannot create the control group of {vm.name}: {error}") from error
    return path


def abandoned(group: Path, homes: tuple[Path, ...] = ()) -> tuple[Path, ...]:
    """Leaves whose VM's directory is gone; with `homes`, only those of VMs in one of them."""
    found = sorted(path for path in group.glob(f"{PREFIX}*") if path.name != INSIDE)
    return tuple(
        path
        for path in found
        if path.is_dir() and _owner_is_gone(path) and within(_mark(path, _MARK), homes)
    )


async def sweep(group: Path, clock: Clock) -> None:
    """Kills the processes in abandoned leaves and removes the leaves."""
    for path in abandoned(group):
        await clear(path, clock)


async def clear(path: Path, clock: Clock) -> None:
    """Kills the processes in a leaf and removes it, within a bounded time."""
    cgroup.kill_all(str(path))
    with contextlib.suppress(TimeoutError):
        async with clock.timeout(_TIMEOUT):
            while cgroup.is_populated(str(path)):
                await clock.sleep(0.005)
                cgroup.kill_all(str(path))
    cgroup.remove(str(path))


def _owner_is_gone(path: Path) -> bool:
    owner = _mark(path, _MARK)
    try:
        return owner.startswith("/") and not Path(owner).exists()
    except OSError:  # not visible to us, so not ours
        return False


# ── files ───────────────────────────────────────────────────────────────────────────────────────


def _words(path: Path) -> tuple[str, ...]:
    try:
        return tuple(path.read_text(encoding="ascii").split())
    except FileNotFoundError:
        return ()


def _write(path: Path, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)  # never creates the file
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)


def _mark(path: Path, name: str) -> str:
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            return os.fsdecode(os.getxattr(path, name))
    return ""


def _set_mark(path: Path, value: str) -> None:
    """Without extended attributes, a leaf is removed only when its own VM ends."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setxattr(path, _MARK, os.fsencode(value))
