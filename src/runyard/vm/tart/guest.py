"""What a shim runs for the tart driver: `tart run`, with the guest's token wiped as soon as the guest has it.

The token is staged twice: in the read-only share `env`, where images made for tart-kubelet read it, and in the writable
share `token`, from which our guests remove it after reading. That removal is how the host learns that the other copy is
no longer needed. The shim watches for it, because the agent may be away.

Invariants:
- When the VM has ended, both copies are gone, also after the shim was killed: reaping it wipes them.
- This module and those that it imports import nothing but the standard library.
"""

import contextlib
import os
from typing import Any

from runyard.vm.shim import main as shim
from runyard.vm.shim.guest import Guest, Host

_EVERY = 0.5  # seconds


class TartGuest(Guest):
    """One `tart run`; the order's `token` has the paths of the copies, first the one that the guest removes."""

    def __init__(self, state: str, order: dict[str, Any]) -> None:
        super().__init__(state, order)
        self._copies: list[str] = order.get("token") or []

    def work(self, host: Host, now: float) -> float | None:
        """Wipes the second copy once the guest has removed the first."""
        if not self._copies:
            return None
        if os.path.lexists(self._copies[0]):
            return _EVERY
        self._wipe()
        return None

    def ended(self, status: int | None) -> str:
        """A guest that powers itself off ends `tart run` with 0: images made for tart-kubelet report nothing else."""
        return "" if status == 0 else super().ended(status)

    def cleared(self) -> None:
        """Wipes what the guest has not read."""
        super().cleared()
        self._wipe()

    def _wipe(self) -> None:
        for path in self._copies:
            with contextlib.suppress(OSError):
                os.unlink(path)  # noqa: PTH108 pathlib is slow to import
        self._copies = []


def main(argv: list[str]) -> int:
    """Runs a VM, or reaps one."""
    return shim.main(argv, TartGuest)
