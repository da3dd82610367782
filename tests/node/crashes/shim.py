"""The program of a shim that can be killed at each of its effects: the real shim behind an audit hook.

Imported by the shim, so it imports nothing but the standard library.
"""

import sys

from tests.node.crashes import effects
from tests.node.crashes.effects import REAPER, SHIM, switched_off


def install(folder: str) -> None:
    """Count this process's effects, with the guards off that the order names."""
    off = switched_off(folder)
    effects.install(REAPER if sys.argv[1] == "reap" else SHIM, folder)
    if "started" in off:
        _without_started()
    if "wipe" in off:
        _without_wiping()


def _without_started() -> None:
    """That a VM was started is not recorded."""
    from runyard.vm.shim import main  # noqa: PLC0415 only where the guard is off

    setattr(main, "write_started", lambda state, pid: None)  # noqa: B010 a checker refuses the plain form


def _without_wiping() -> None:
    """The token stays where it was staged."""
    from runyard.vm.shim import main, polling, reaping  # noqa: PLC0415 as above
    from runyard.vm.tart import guest  # noqa: PLC0415 as above

    for module in (main, polling, reaping):
        setattr(module, "wipe", lambda state: None)  # noqa: B010 as above
    setattr(guest.TartGuest, "_wipe", lambda self: None)  # noqa: B010 as above
