"""Kills a guest to its last process, with a live shim or without one.

Imported by the shim, so it imports nothing but the standard library. It repeats until no process is left: a stopped
process cannot fork, and the next round finds what it forked before.
"""

import contextlib
import itertools
import json
import time
from collections.abc import Callable
from typing import Any

from runyard.vm.shim.exits import SHIM_DIED, wipe, write_exit
from runyard.vm.shim.guest import Guest, Maker
from runyard.vm.shim.processes import Process, has_not_ended, marked

_STEP, _PAUSE = 0.002, 0.1  # seconds between rounds: a little more each time, up to this
_AGAIN = 0.5  # seconds before the question is asked again whether the guest is gone


def kill_until_gone(guest: Guest, find: Callable[[], list[Process] | None]) -> None:
    """Kills what `find` returns and what else the guest has, until `find` returns None and nothing else is left.

    A killed process loses its environment, by which it was found, before it has ended: so each that was found is
    followed to its end.
    """
    guest.kill([])
    seen: dict[int, Process] = {}
    for number in itertools.count(1):
        found = find()
        seen = {pid: process for pid, process in seen.items() if has_not_ended(process)}
        seen.update((process.pid, process) for process in found or ())
        if found is None and not seen and not guest.others_left():
            break
        guest.kill(found or [])
        time.sleep(min(_STEP * number, _PAUSE))
    guest.cleared()


def reap(state: str, make: Maker) -> None:
    """Kills what is left of a VM without a shim, then writes its exit record. The caller holds the VM's lock."""
    order: dict[str, Any] = {}
    with (
        contextlib.suppress(OSError, ValueError),
        open(f"{state}/order.json", "rb") as file,  # noqa: PTH123 pathlib is slow to import
    ):
        order = json.load(file)
    guest = make(state, order)
    while True:
        kill_until_gone(guest, lambda: marked(guest.mark, guest.users) or None)
        if guest.is_gone():
            break
        time.sleep(_AGAIN)
    wipe(state)
    guest.seal()
    write_exit(state, guest.report(), SHIM_DIED, time.time())
