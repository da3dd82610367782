"""What a shim runs for the tart driver: `tart run`, with the guest's token wiped as soon as the guest has it.

The token is staged twice: in the read-only share `env`, where images made for tart-kubelet read it, and in the writable
share `token`, from which our guests remove it after reading. That removal is how the host learns that the other copy is
no longer needed. The shim watches for it, because the agent may be away.

    order.json   list  the command that lists the VMs of this host as JSON
                 stop  the command that powers this one off

Invariants:
- The password of tart's VNC server, which `tart run` prints, is in no log.
- When the VM has ended, both copies are gone, also after the shim was killed: reaping it wipes them. They stay after a
  run that tart has refused: the VM is started again, with them.
- A VM whose shim was killed counts as ended when tart no longer lists it as running. On macOS its processes are found
  by their environment, which the system may hide.
- This module and those that it imports import nothing but the standard library.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from typing import Any

from runyard.vm.shim import main as shim
from runyard.vm.shim.guest import Guest, Host
from runyard.vm.tart.refusal import refuses_more_vms

_EVERY = 0.5  # seconds
_REFUSES_WITHIN = 10.0  # seconds; a macOS guest has no job so soon
_COMMAND = 15.0  # seconds for one command of tart
_STOP = 3.0  # seconds that `tart stop` gets before `tart run` is interrupted directly
_NO_LIST = (ValueError, LookupError, TypeError, AttributeError)  # what it printed is something else
_VNC, _PASSWORD = b"vnc://", re.compile(rb"vnc://:[^@\s]*@")
_OUTPUT_END = 500  # bytes of tart's output of which the last line is the reason of a failure
_LONGEST = 200  # bytes of an address with its password


class TartGuest(Guest):
    """One `tart run`."""

    def __init__(self, state: str, order: dict[str, Any]) -> None:
        super().__init__(state, order)
        vm = os.path.dirname(state)  # noqa: PTH120 pathlib is slow to import
        # First the one that the guest removes. They do not depend on the order, which may be damaged.
        self._copies = [f"{vm}/token/sa_token", f"{vm}/env/sa_token"]
        self._held = b""  # the end of the output, if it may be the beginning of a password
        self._printed = b""  # the end of what may be kept of the output

    def visible(self, data: bytes) -> bytes:
        """Hides the password of tart's VNC server."""
        text = self._held + data
        end = _end_of_what_is_known(text) if data else len(text)
        self._held = text[end:]
        shown = _PASSWORD.sub(b"vnc://:REDACTED@", text[:end])
        self._printed = (self._printed + shown)[-_OUTPUT_END:]
        return shown

    def last_calls(self) -> list[tuple[Callable[[], None], float]]:
        """`tart stop` first; if that hangs, `tart run` is interrupted with all its processes."""
        seconds = self.order["end"][1]
        return [(self._stop, _STOP), (self._interrupt, max(0.0, seconds - _STOP))]

    def _stop(self) -> None:
        quiet = subprocess.DEVNULL
        self.spawn(self.order["stop"], stdout=quiet, stderr=quiet)

    def _interrupt(self) -> None:
        os.killpg(self.pid, signal.SIGINT)

    def work(self, host: Host, now: float) -> float | None:
        """Wipes the second copy once the guest has removed the first."""
        if not self._copies:
            return None
        if os.path.lexists(self._copies[0]):
            return _EVERY
        self._wipe()
        return None

    def was_refused(self, status: int, seconds: float, output: bytes | None) -> bool:
        """Whether tart has refused to run one more VM, and printed nothing else."""
        if status != 1 or seconds >= _REFUSES_WITHIN or output is None:
            return False
        return self.report() is None and refuses_more_vms(output.decode(errors="replace"))

    def ended(self, status: int | None) -> str:
        """A guest that powers itself off ends `tart run` with 0: images made for tart-kubelet report nothing else.

        If the host polls, the runner's end comes first: a guest that is gone before has lost its job, or got none.
        """
        why = super().ended(status)
        lines = self._printed.decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        if last and status is not None and status > 0:
            why = f"{why}; tart run: {last}"
        if self.order.get("polling"):
            return f"the VM ended before its runner did: {why}"
        return "" if status == 0 else why

    def is_gone(self) -> bool:
        """Whether tart no longer lists it as running; otherwise it is powered off, and the question is asked again."""
        if not self.order.get("list"):
            return True
        with contextlib.suppress(OSError, subprocess.SubprocessError, *_NO_LIST):
            name, entries = self.order["name"], json.loads(self._tart(self.order["list"]))
            for entry in entries:
                if entry["Name"] == name and entry["Source"].lower() == "local" and _runs(entry):
                    self._tart(self.order["stop"])
                    return False
            return isinstance(entries, list)  # anything else proves nothing
        return False

    def _tart(self, argv: list[str]) -> bytes:
        """What a command of tart prints; it is ended with its children when it takes too long."""
        with subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=self.environment(),
            start_new_session=True,
        ) as child:
            try:
                output, _ = child.communicate(timeout=_COMMAND)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, 9)
                raise
        if child.returncode != 0:
            raise subprocess.SubprocessError(f"{argv[1]} ended with {child.returncode}")
        return output

    def cleared(self) -> None:
        """Wipes what the guest has not read, unless it never ran."""
        super().cleared()
        if not self.refused:
            self._wipe()

    def _wipe(self) -> None:
        for path in self._copies:
            with contextlib.suppress(OSError):
                os.unlink(path)  # noqa: PTH108 pathlib is slow to import
        self._copies = []


def _end_of_what_is_known(text: bytes) -> int:
    """How much of the output cannot be the beginning of an address whose rest has not arrived yet."""
    last = text.rfind(_VNC)
    if last >= 0 and len(text) - last < _LONGEST and not re.search(rb"[@\s]", text[last:]):
        return last
    sizes = range(len(_VNC) - 1, 0, -1)
    return len(text) - next((size for size in sizes if text.endswith(_VNC[:size])), 0)


def _runs(entry: dict[str, Any]) -> bool:
    """Whether this element of `tart list` runs; before tart 2.31 there was no `State`."""
    state = entry.get("State")
    return bool(entry["Running"]) if not state else state == "running"


def main(argv: list[str]) -> int:
    """Runs a VM, or reaps one."""
    return shim.main(argv, TartGuest)
