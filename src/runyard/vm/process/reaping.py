"""Kills a guest to its last process, with a live shim or without one.

Imported by the shim, so it imports nothing but the standard library. It repeats until no process is left: a stopped
process cannot fork, and the next round finds what it forked before.
"""

import contextlib
import itertools
import json
import os
import time
from collections.abc import Callable
from typing import Any

from runyard.vm.process import cgroup
from runyard.vm.process.exits import SHIM_DIED, read_report, seal, write_exit
from runyard.vm.process.processes import Process, kill, marked

_STEP, _PAUSE = 0.002, 0.1  # seconds between rounds: a little more each time, up to this


def kill_until_gone(
    find: Callable[[], list[Process] | None], *, users: list[int], group: str
) -> None:
    """Kills what `find` returns and the control group, until `find` returns None and the group is empty."""
    cgroup.kill_all(group)
    for number in itertools.count(1):
        found = find()
        if found is None and not cgroup.is_populated(group):
            break
        kill(found or [], users)
        cgroup.kill_all(group)
        time.sleep(min(_STEP * number, _PAUSE))
    cgroup.remove(group)


def reap(state: str) -> int:
    """Kills what is left of a VM without a shim, then writes its exit record. The caller holds the VM's lock."""
    order: dict[str, Any] = {"mark": os.path.dirname(state), "users": [], "cgroup": ""}  # noqa: PTH120 pathlib is slow to import
    with (
        contextlib.suppress(OSError, ValueError),
        open(f"{state}/order.json", "rb") as file,  # noqa: PTH123 as above
    ):
        order = json.load(file)
    mark, users = order["mark"], order["users"]
    kill_until_gone(lambda: marked(mark, users) or None, users=users, group=order["cgroup"])
    if users:
        seal(mark)
    write_exit(state, read_report(f"{mark}/status"), SHIM_DIED, time.time())
    return 0
