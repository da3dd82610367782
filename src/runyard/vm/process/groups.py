"""Control groups (version 2) on the host's side: find ours, divide it, give each VM a leaf, clear what is left.

    our group                    divided: its children may have limits
    ├── runyard-inside           whoever lived in it and had to step aside, ourselves among them
    ├── runyard-1f0c…            a leaf: one VM and nobody else
    └── runyard-77ab…

A leaf is named after its VM's directory, and bears the directory as a mark. One whose directory is gone belongs to
nobody: whichever driver starts next ends who is in it and removes it.
"""

import contextlib
import errno
import hashlib
import os
import sys
from pathlib import Path

from runyard.clock import Clock
from runyard.vm.contract import DriverFailed
from runyard.vm.process import leaf
from runyard.vm.process.folders import within
from runyard.vm.process.limits import CONTROLLERS, Division, Ground, division

PREFIX = "runyard-"
INSIDE = "runyard-inside"
_MARK = "user.runyard.vm"
_DELEGATED = ("trusted.delegate", "user.delegate")  # as systemd marks what it has given away
_BUSY = (errno.EBUSY, errno.EAGAIN)
_ROUNDS = 50
_PATIENCE = 5.0


# ── our group ───────────────────────────────────────────────────────────────────────────────────


def own() -> Path | None:
    """The group that we live in, or that we stepped aside from; None where there is no version 2."""
    with contextlib.suppress(OSError):
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
        points = [line.split()[4] for line in mounts if " - cgroup2 " in line]
        groups = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
        inside = [line[3:] for line in groups if line.startswith("0::")]
        if points and inside and ".." not in inside[0].split("/"):
            found = Path(points[0] + inside[0].rstrip("/"))
            return found.parent if found.name == INSIDE else found
    return None


def look(group: Path) -> Ground:
    """What there is to know before it is divided."""
    pids = _words(group / "cgroup.procs")
    return Ground(
        true_root=not (group / "cgroup.type").exists(),
        top=not (group.parent / "cgroup.procs").exists(),
        owned=os.geteuid() != 0 and group.stat().st_uid == os.geteuid(),
        delegated=any(_mark(group, name) == "1" for name in _DELEGATED),
        inhabitants=len(pids),
        hidden="0" in pids,
        offered=_words(group / "cgroup.controllers"),
        enabled=_words(group / "cgroup.subtree_control"),
    )


def divide(group: Path, wanted: tuple[str, ...] = CONTROLLERS) -> tuple[tuple[str, ...], str]:
    """Let groups below it have these controllers, as far as that goes: which they have now, and why not more."""
    try:
        plan = division(look(group), wanted)
        why = _carry_out(group, plan)
    except OSError as error:
        return (), f"{group}: {error.strerror}"
    enabled = _words(group / "cgroup.subtree_control")
    return tuple(name for name in wanted if name in enabled), why


def _carry_out(group: Path, plan: Division) -> str:
    why = plan.why
    for controller in plan.enable:
        try:
            _enable(group, controller, step_aside=plan.step_aside)
        except OSError as error:
            why = f"{controller} cannot be handed out: {error.strerror}"
    return why


def _enable(group: Path, controller: str, *, step_aside: bool) -> None:
    """Somebody may be born between the stepping aside and the writing: then both are done again."""
    for again in range(_ROUNDS, -1, -1):
        if step_aside:
            _step_aside(group)
        try:
            _write(group / "cgroup.subtree_control", f"+{controller}")
        except OSError as error:
            if not step_aside or not again or error.errno not in _BUSY:
                raise
        else:
            return


def _step_aside(group: Path) -> None:
    inside = group / INSIDE
    inside.mkdir(exist_ok=True)
    for pid in leaf.members(str(group)):
        with contextlib.suppress(ProcessLookupError):  # it has ended
            _write(inside / "cgroup.procs", str(pid))


# ── leaves ──────────────────────────────────────────────────────────────────────────────────────


def leaf_of(group: Path, vm: Path) -> Path:
    """Where the VM of this directory has its leaf."""
    digest = hashlib.sha256(os.fsencode(vm)).hexdigest()[:16]
    return group / f"{PREFIX}{digest}"


def make(group: Path, vm: Path, limits: tuple[tuple[str, str], ...]) -> Path:
    """A leaf with its limits, before anybody is in it. Raises `DriverFailed`: what was promised is held."""
    path = leaf_of(group, vm)
    try:
        path.mkdir(exist_ok=True)
        _set_mark(path, str(vm))
        for name, value in limits:
            if name != "memory.swap.max" or (path / name).exists():  # not where there is no swap
                _write(path / name, value)
    except OSError as error:
        raise DriverFailed(f"no control group for {vm.name}: {error}") from error
    return path


def abandoned(group: Path, homes: tuple[Path, ...] = ()) -> tuple[Path, ...]:
    """Leaves whose VM's directory is gone; with `homes`, only of VMs that lived in one of them."""
    found = sorted(path for path in group.glob(f"{PREFIX}*") if path.name != INSIDE)
    return tuple(
        path
        for path in found
        if path.is_dir() and _owner_is_gone(path) and within(_mark(path, _MARK), homes)
    )


async def sweep(group: Path, clock: Clock) -> None:
    """End who is in an abandoned leaf, and remove it."""
    for path in abandoned(group):
        await clear(path, clock)


async def clear(path: Path, clock: Clock) -> None:
    """End everybody in a leaf and remove it, as far as that works within a bounded time."""
    leaf.end_all(str(path))
    with contextlib.suppress(TimeoutError):
        async with clock.timeout(_PATIENCE):
            while leaf.lives(str(path)):
                await clock.sleep(0.005)
                leaf.end_all(str(path))
    leaf.drop(str(path))


def _owner_is_gone(path: Path) -> bool:
    owner = _mark(path, _MARK)
    try:
        return owner.startswith("/") and not Path(owner).exists()
    except OSError:  # hidden from us, hence not ours
        return False


# ── files ───────────────────────────────────────────────────────────────────────────────────────


def _words(path: Path) -> tuple[str, ...]:
    try:
        return tuple(path.read_text(encoding="ascii").split())
    except FileNotFoundError:
        return ()


def _write(path: Path, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)  # never makes the file
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
    """Where marks cannot be set a leaf is removed by its own VM's end alone."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setxattr(path, _MARK, os.fsencode(value))
