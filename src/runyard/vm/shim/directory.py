"""The state directory of a shim, and how a VM's state is read from it.

    state/  order.json lock alive control      made before the start
            started exit.json                  durable facts, written by the shim
            console.log console.log.1          the newest output of the guest
            shim.log                           what the shim itself had to say

All state is on disk: an agent may be killed at any moment, and the next one reads the same. A VM is found again by
these records, never by the id or the arguments of a process. Its state is read from three facts:

    exit.json   alive (a process has it open for writing)  started
    yes         –                                          –         exited
    no          yes                                        no        booting
    no          yes                                        yes       running
    no          no                                         yes       its shim was killed: to be reaped
    no          no                                         no        stopped
"""

import json
import os
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

from runyard.files import write_whole
from runyard.vm.contract import VmState, VmView


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """exit.json: how it ended."""

    exit_code: int | None
    exit_reason: str
    finished_at: float
    status: int | None = (
        None  # of the program, negative after a signal; None: it was not seen to end
    )
    refused: bool = False  # the program has refused to run the guest, so it may be started again


class ShimState(Enum):
    """The state of a VM according to its files."""

    STOPPED = "stopped"
    BOOTING = "booting"
    RUNNING = "running"
    ORPHANED = "orphaned"
    EXITED = "exited"


_exit = msgspec.json.Decoder(Exit)
_STATES = {
    ShimState.STOPPED: VmState.STOPPED,
    ShimState.BOOTING: VmState.BOOTING,
    ShimState.RUNNING: VmState.RUNNING,
    ShimState.ORPHANED: VmState.RUNNING,  # until it is reaped, processes of it may run
}
_PIPES = ("alive", "control")


class ShimDirectory:
    """The state directory of one VM."""

    def __init__(self, name: str, state: Path) -> None:
        self.name = name
        self.state = state

    def prepare(self) -> None:
        """Makes the directory, its lock and its pipes, once; raises OSError."""
        self.state.mkdir(mode=0o700)
        for pipe in _PIPES:
            os.mkfifo(self.state / pipe, 0o600)
        (self.state / "lock").touch(mode=0o600)

    def prepared(self) -> bool:
        """Whether it is such a directory."""
        return (self.state / "lock").is_file()

    def write_order(self, order: dict[str, Any]) -> None:
        """Writes what the shim is to run, durably: reaping reads it, also after a power cut. Raises OSError."""
        write_whole(self.state / "order.json", msgspec.json.encode(order))

    def order(self) -> dict[str, Any]:
        """What the shim runs; empty if that was not written."""
        try:
            found: dict[str, Any] = json.loads((self.state / "order.json").read_bytes())
        except (OSError, ValueError):
            return {}
        return found

    def ended(self) -> Exit | None:
        """Its exit record."""
        try:
            return _exit.decode((self.state / "exit.json").read_bytes())
        except (OSError, msgspec.MsgspecError):
            return None

    def has_ended(self) -> bool:
        """Whether there is an exit record: then nothing of it runs, nor ever will."""
        return (self.state / "exit.json").exists()

    def alive(self) -> bool:
        """Whether a shim runs: reading a pipe without a writer gives end of file, with a writer it would block."""
        try:
            handle = self.listen()
        except OSError:
            return False
        try:
            return os.read(handle, 1) != b""
        except BlockingIOError:
            return True
        finally:
            os.close(handle)

    def listen(self) -> int:
        """The reading end of `alive`; it becomes readable when the shim is gone."""
        return os.open(self.state / "alive", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def shim_state(self) -> ShimState:
        """Reads the state. The exit record is checked again last, because it may have been written meanwhile."""
        if self.has_ended():
            return ShimState.EXITED
        started = (self.state / "started").exists()
        if self.alive():
            return ShimState.RUNNING if started else ShimState.BOOTING
        if self.has_ended():
            return ShimState.EXITED
        return ShimState.ORPHANED if (self.state / "started").exists() else ShimState.STOPPED

    def view(self, *, address: str = "") -> VmView:
        """The VM as the driver contract shows it; `address`: what it has if it runs, empty while it boots."""
        shim_state = self.shim_state()
        if shim_state is not ShimState.EXITED:
            state = _STATES[shim_state]
            if state is VmState.RUNNING and not address:
                state = VmState.BOOTING
            return VmView(
                name=self.name, state=state, address=address if state is VmState.RUNNING else ""
            )
        ended = self.ended() or Exit(
            exit_code=None, exit_reason="its exit record cannot be read", finished_at=0.0
        )
        return VmView(
            name=self.name,
            state=VmState.EXITED,
            exit_code=ended.exit_code,
            exit_reason=ended.exit_reason,
            exit_status=ended.status,
            finished_at=ended.finished_at or None,
        )


def private(path: Path, data: bytes) -> None:
    """Writes a file that only its owner can read, from its creation on; durably, as the record of its VM."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(handle)
