"""End a guest to its last process, with a living keeper or without one.

Imported by the keeper, so it imports nothing but the standard library. It goes on until nobody is left, whatever they
do to get away: who has been stopped cannot fork, and whom he has forked before the next round finds.
"""

import contextlib
import itertools
import json
import os
import time
from collections.abc import Callable
from typing import Any

from runyard.vm.process import leaf
from runyard.vm.process.exits import KEEPER_DIED, read_report, seal, write_exit
from runyard.vm.process.processes import Process, end, marked

_STEP, _PAUSE = 0.002, 0.1  # seconds between rounds: a little more each time, up to this


def to_the_last(find: Callable[[], list[Process] | None], *, users: list[int], group: str) -> None:
    """End whom `find` finds, and everybody in the control group, until it finds None and the group is empty."""
    leaf.end_all(group)
    for number in itertools.count(1):
        found = find()
        if found is None and not leaf.lives(group):
            break
        end(found or [], users)
        leaf.end_all(group)
        time.sleep(min(_STEP * number, _PAUSE))
    leaf.drop(group)


def bury(state: str) -> int:
    """End what is left of a VM without a keeper, then write its exit record. The caller holds the VM's lock."""
    order: dict[str, Any] = {"mark": os.path.dirname(state), "users": [], "cgroup": ""}  # noqa: PTH120 pathlib is slow to import
    with (
        contextlib.suppress(OSError, ValueError),
        open(f"{state}/order.json", "rb") as file,  # noqa: PTH123 as above
    ):
        order = json.load(file)
    mark, users = order["mark"], order["users"]
    to_the_last(lambda: marked(mark, users) or None, users=users, group=order["cgroup"])
    if users:
        seal(mark)
    write_exit(state, read_report(f"{mark}/status"), KEEPER_DIED, time.time())
    return 0
