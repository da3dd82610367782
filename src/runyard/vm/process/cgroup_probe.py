"""Probes what control groups can do for VMs on this machine, by using one.

A leaf is created as a VM's would be, its limits are written and read back, a process is put into it and killed
through it. Only what worked is reported as available, with the reason why not more.
"""

import contextlib
import os
import subprocess
from pathlib import Path

import msgspec

from runyard.vm.contract import VmError
from runyard.vm.process import cgroup, cgroups
from runyard.vm.process.limits import CONTROLLERS, leaf_limits

_TIMEOUT = 10.0
_GUEST = 'echo 0 >"$1/cgroup.procs" && echo inside && exec cat'


class CgroupSupport(msgspec.Struct, frozen=True, kw_only=True):
    """What control groups can do here, as far as it worked."""

    group: str = ""  # under which VMs get their leaves; empty: there is none
    controllers: tuple[str, ...] = ()  # those whose limits can be set in a leaf
    why: str = ""  # why not more


def probe_cgroups(
    given: Path | None = None, wanted: tuple[str, ...] = CONTROLLERS
) -> CgroupSupport:
    """Probes the given group, else our own. It blocks: call it in a thread, not on the event loop."""
    group = given or cgroups.own()
    if group is None:
        return CgroupSupport(why="control groups of version 2 are not mounted")
    controllers, why = cgroups.split(group, wanted)
    limits = leaf_limits(controllers, cpu_milli=500, memory_mb=64, pids=64)
    mark = Path(f"/proc/{os.getpid()}")  # so the trial is not abandoned while we run
    try:
        path = cgroups.make(group, mark, ())
    except VmError as error:
        return CgroupSupport(why=str(error))
    try:
        failure = _try_leaf(path)
        if failure:
            return CgroupSupport(why=failure)
        refused = [name for name, value in limits if not _accepts(path / name, value)]
    finally:
        cgroup.kill_all(str(path))
        cgroup.remove(str(path))
    if refused:
        why = f"{' and '.join(refused)} cannot be set"
    words = [name.partition(".")[0] for name in refused]
    return CgroupSupport(
        group=str(group), controllers=tuple(c for c in controllers if c not in words), why=why
    )


def _accepts(path: Path, value: str) -> bool:
    if path.name == "memory.swap.max" and not path.exists():
        return True  # the machine has no swap
    try:
        path.write_text(value, encoding="ascii")
        return path.read_text(encoding="ascii").strip() == value
    except OSError:
        return False


def _try_leaf(path: Path) -> str:
    """Puts a process into the leaf and kills it through the leaf; returns what failed, empty if nothing."""
    argv = ["/bin/sh", "-c", _GUEST, "sh", str(path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        argv, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env={}
    ) as child:
        assert child.stdout is not None
        try:
            inside = child.stdout.readline() == b"inside\n"
            if not inside or child.pid not in cgroup.members(str(path)):
                return "no process can be put into a control group"
            cgroup.kill_all(str(path))
            child.wait(_TIMEOUT)
        except subprocess.TimeoutExpired:
            return "the processes of a control group cannot be killed"
        finally:
            with contextlib.suppress(OSError):
                child.kill()
    return "" if not cgroup.is_populated(str(path)) else "a control group cannot be emptied"
