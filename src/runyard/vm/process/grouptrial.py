"""Find out what control groups can do for VMs here, by doing it.

A leaf is made as a VM's would be, its limits are written and read back, a process is put into it and ended through
it. Only what worked is claimed; for the rest there is a reason in words.
"""

import contextlib
import os
import subprocess
from pathlib import Path

import msgspec

from runyard.vm.contract import VmError
from runyard.vm.process import groups, leaf
from runyard.vm.process.limits import CONTROLLERS, leaf_limits

_PATIENCE = 10.0
_GUEST = 'echo 0 >"$1/cgroup.procs" && echo inside && exec cat'


class Groups(msgspec.Struct, frozen=True, kw_only=True):
    """What worked."""

    group: str = ""  # in which VMs can have leaves of their own; empty: nowhere
    controllers: tuple[str, ...] = ()  # whose limits such a leaf takes
    why: str = ""  # not more


def try_groups(given: Path | None = None, wanted: tuple[str, ...] = CONTROLLERS) -> Groups:
    """What works in the group that was given to us, or else in our own. It blocks: not for a loop's thread."""
    group = given or groups.own()
    if group is None:
        return Groups(why="there are no control groups of version 2")
    controllers, why = groups.divide(group, wanted)
    limits = leaf_limits(controllers, cpu_milli=500, memory_mb=64, pids=64)
    mark = Path(f"/proc/{os.getpid()}")  # as long as we live the trial is not abandoned
    try:
        path = groups.make(group, mark, ())
    except VmError as error:
        return Groups(why=str(error))
    try:
        trouble = _try_leaf(path)
        if trouble:
            return Groups(why=trouble)
        refused = [name for name, value in limits if not _takes(path / name, value)]
    finally:
        leaf.end_all(str(path))
        leaf.drop(str(path))
    if refused:
        why = f"{' and '.join(refused)} cannot be set"
    words = [name.partition(".")[0] for name in refused]
    return Groups(
        group=str(group), controllers=tuple(c for c in controllers if c not in words), why=why
    )


def _takes(path: Path, value: str) -> bool:
    if path.name == "memory.swap.max" and not path.exists():
        return True  # there is no swap
    try:
        path.write_text(value, encoding="ascii")
        return path.read_text(encoding="ascii").strip() == value
    except OSError:
        return False


def _try_leaf(path: Path) -> str:
    """Put a process into it, and end that through it; empty if all was well."""
    argv = ["/bin/sh", "-c", _GUEST, "sh", str(path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        argv, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env={}
    ) as child:
        assert child.stdout is not None
        try:
            told = child.stdout.readline() == b"inside\n"
            if not told or child.pid not in leaf.members(str(path)):
                return "no process can be put into a control group"
            leaf.end_all(str(path))
            child.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            return "a control group cannot be ended"
        finally:
            with contextlib.suppress(OSError):
                child.kill()
    return "" if not leaf.lives(str(path)) else "a control group cannot be emptied"
