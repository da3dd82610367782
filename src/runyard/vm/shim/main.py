"""Runs one VM in a Python process of its own, with the standard library alone.

    agent ──starts──▶ shim ──▶ the guest's program and what it starts
            (may have died) ▲
                            one byte on state/control: T shut down, K power off

The shim is detached: it forks away from the agent, has its own session, and continues when the agent is killed.
`reap STATE LOCK READY` instead of `run STATE LOCK ALIVE READY` kills what is left of a VM whose shim was killed and
writes its exit record, as detached. `try STATE` runs a guest and waits for its end, for trials.

A driver gives the class of its guest (`guest.py`) to `main`, in a module of its own; for a plain command it is
`Guest`, and this module is the program.

Invariants:
- The process that starts a shim holds the VM's lock and the writing end of `state/alive` and passes both on: they are
  held without a gap, and are free exactly when no shim runs.
- `state/started` is on the disk before the guest starts, `state/exit.json` is written after *every* process of the
  guest has ended. On Linux orphans become the shim's children, and the shim stays until it has none.
- This module and those that it imports import nothing but the standard library.
"""

import contextlib
import ctypes
import errno
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from runyard.vm.shim.console import Console
from runyard.vm.shim.exits import ended_how, reserve, wipe, write_exit, write_started
from runyard.vm.shim.guest import Guest, Maker
from runyard.vm.shim.processes import Process, descendants, marked, table
from runyard.vm.shim.reaping import kill_until_gone, reap

if TYPE_CHECKING:
    from runyard.vm.shim.polling import Polling

_PR_SET_CHILD_SUBREAPER = 36
_JUDGED = 4096  # bytes of output at most from a program that has not run its guest


class Shim:
    """Runs one guest from its start to its exit record."""

    def __init__(self, state: str, guest: Guest) -> None:
        self.state = state
        self.guest = guest
        self.console = Console(state)
        self.why = ""  # why the shim ended the guest; empty: it did not
        self.code: int | None = None  # the exit code that goes with it
        self.status: int | None = None  # of the guest's first process
        self._polling: Polling | None = None
        self._ending = False  # the shim kills what is left
        self._started = 0.0
        self._inputs: dict[int, Callable[[bytes], None]] = {}

    def run(self, ready: int) -> int:
        """Runs the guest from start to exit record; returns 0, or 1 if nothing was started."""
        try:
            reserve(self.state)
            control = os.open(f"{self.state}/control", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            self.guest.prepare()
            write_started(self.state, os.getpid())
        except OSError as error:
            os.write(ready, f"{error.errno or errno.EIO} {error}".encode()[:500])
            return 1
        self._inputs[control] = self._on_control
        self._listen_to_signals()
        self.console.clear()
        self._started = time.monotonic()
        try:
            self._start()
        except (OSError, subprocess.SubprocessError) as error:
            self.end(f"the guest could not be started: {error}")
            self.status = 1
        os.close(ready)  # the starter waits for this close
        while self.status is None and not self.why:
            self._wait()
        finished_at = time.time()
        self._end_all()
        self._drain()
        self._close(finished_at)
        return 0

    def _start(self) -> None:
        output, output_writer = os.pipe()
        os.set_blocking(output, False)
        self._inputs[output] = self._on_guest_output
        try:
            self.guest.start(self, output_writer)
        finally:
            os.close(output_writer)
        if self.guest.order.get("polling"):
            from runyard.vm.shim.polling import Polling  # noqa: PLC0415 only where the host polls

            self._polling = Polling(self, self.guest, self._on_output)

    # ── what the guest may ask of its shim ──────────────────────────────────────────────────────

    def listen(self, handle: int, act: Callable[[bytes], None]) -> None:
        """Calls `act` with what arrives at this open file, with nothing at its end."""
        os.set_blocking(handle, False)
        self._inputs[handle] = act

    def forget(self, handle: int) -> None:
        """Listens to this open file no longer."""
        self._inputs.pop(handle, None)

    def end(self, why: str, code: int | None = None) -> None:
        """Ends the VM; the first reason counts."""
        if not self.why:
            self.why, self.code = why, code

    # ── the loop ────────────────────────────────────────────────────────────────────────────────

    def _listen_to_signals(self) -> None:
        wake, waker = os.pipe()
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        self.listen(wake, self._on_signal)

    def _wait(self, longest: float | None = None) -> None:
        waits = [longest, self.guest.work(self, time.monotonic()), self._poll()]
        timeout = min((each for each in waits if each is not None), default=None)
        for handle in select.select(list(self._inputs), [], [], timeout)[0]:
            act = self._inputs.get(handle)
            if act is None:  # forgotten in this round
                continue
            try:
                data = os.read(handle, 65536)
            except BlockingIOError:
                continue
            if not data:
                del self._inputs[handle]
                os.close(handle)
            act(data)

    def _poll(self) -> float | None:
        if self._polling is None or self._ending:
            return None
        return self._polling.work(time.monotonic())

    # Each handler gets the bytes that arrived; empty bytes mean that the other end was closed.

    def _on_control(self, data: bytes) -> None:
        if b"K" in data:
            self.end("powered off")
        elif b"T" in data:
            self._shut_down()

    def _on_signal(self, data: bytes) -> None:
        if signal.SIGTERM in data:  # the host shuts down
            self._shut_down()
        self._reap_children()

    def _on_guest_output(self, data: bytes) -> None:
        self._on_output(self.guest.visible(data))

    def _on_output(self, data: bytes) -> None:
        self.console.write(data)

    def _shut_down(self) -> None:
        if self._polling is not None and self._polling.shut_down():
            return
        if self.status is None:  # else the number of its process may be another one's
            with contextlib.suppress(ProcessLookupError, PermissionError):
                self.guest.shut_down()

    def _reap_children(self) -> bool:
        """Reaps children that have ended; returns whether children are left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.guest.pid:
                self.status = os.waitstatus_to_exitcode(status)
            elif not self._ending:
                self._child_ended(pid, os.waitstatus_to_exitcode(status))

    def _child_ended(self, pid: int, status: int) -> None:
        if self._polling is None or not self._polling.child_ended(pid, status, time.monotonic()):
            self.guest.child_ended(self, pid, status)

    # ── the end ─────────────────────────────────────────────────────────────────────────────────

    def _end_all(self) -> None:
        """Kills every process of the guest; none is left when this returns."""
        self._ending = True
        self.guest.refused = self._was_refused()
        if not self.guest.refused:
            wipe(self.state)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            self._last_call()
            if self.status is None:
                self.guest.power_off()
        kill_until_gone(self.guest, self._remaining)

    def _was_refused(self) -> bool:
        """Whether the guest's program has ended by itself without having run the guest."""
        if self.why or self.status is None or (self._polling and self._polling.reached):
            return False
        self._drain()
        seconds = time.monotonic() - self._started
        return self.guest.was_refused(self.status, seconds, self.console.read(_JUDGED))

    def _last_call(self) -> None:
        """Lets the guest's program end in order, if it is one that should."""
        for end, seconds in self.guest.last_calls():
            if self.guest.pid and self.status is None:
                with contextlib.suppress(OSError, subprocess.SubprocessError):
                    end()
                    self._wait_for_end(time.monotonic() + seconds)

    def _wait_for_end(self, until: float) -> None:
        while self.status is None and (left := until - time.monotonic()) > 0:
            self._wait(left)

    def _remaining(self) -> list[Process] | None:
        """Our descendants and, where orphans go to process 1, every process with the mark; None if there is none."""
        orphans: list[Process] = []
        if sys.platform != "linux":
            orphans = marked(self.guest.mark, self.guest.users)
        if not self._reap_children() and not orphans:
            return None
        return descendants(os.getpid(), table()) + orphans

    def _drain(self) -> None:
        """Writes the guest's last output to the console log."""
        shown = [self._on_guest_output, self._on_output]
        shown += [self._polling.show_runner] if self._polling else []
        for handle, act in list(self._inputs.items()):
            while act in shown:
                try:
                    data = os.read(handle, 65536)
                except BlockingIOError:
                    break
                if not data:
                    break
                act(data)
        self._on_guest_output(b"")

    def _close(self, finished_at: float) -> None:
        code = self.guest.report() if self.code is None else self.code
        reason = self.why
        if not reason:
            reason = self.guest.ended(self.status) if code is None else ended_how(code, self.status)
        reason += self.guest.remark(code)
        for _ in range(100):
            try:
                self.guest.seal()
                write_exit(
                    self.state,
                    code,
                    reason,
                    finished_at,
                    status=self.status,
                    refused=self.guest.refused and code is None,
                )
            except OSError:
                time.sleep(0.1)
            else:
                return


def run_shim(state: str, make: Maker, *, lock: int, alive: int, ready: int) -> int:
    """Forks away from the agent, then runs the VM."""
    if not _detached(lock, alive, ready):
        return 0  # the starter waits only for this process
    _become_subreaper()
    return Shim(state, make(state, _order(state))).run(ready)


def run_reaping(state: str, make: Maker, *, lock: int, ready: int) -> int:
    """Forks away from the agent, then reaps the VM: one that is hard to kill delays only those who wait for it."""
    if _detached(lock, ready):
        reap(state, make)
    return 0


def try_guest(state: str, make: Maker) -> int:
    """Runs the guest of a trial as a VM's, but stays with the caller and holds no lock."""
    ready, starting = os.pipe()
    _become_subreaper()
    failed = Shim(state, make(state, _order(state))).run(starting)
    if failed:
        sys.stderr.write(os.read(ready, 4096).decode(errors="replace"))
    return failed


def _detached(*handles: int) -> bool:
    """Forks: whether this is the new process, which has left the agent's session and keeps these open files."""
    if os.fork():
        return False
    os.setsid()
    os.chdir("/")
    os.umask(0o077)
    for handle in handles:
        os.set_inheritable(handle, False)  # or a guest could keep the lock and `alive` open
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, lambda *_: None)  # not ignored: that would pass on to the guest
    return True


def _order(state: str) -> dict[str, Any]:
    with open(f"{state}/order.json", "rb") as file:  # noqa: PTH123 pathlib is slow to import
        found: dict[str, Any] = json.load(file)
    return found


def _become_subreaper() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def main(argv: list[str], make: Maker = Guest) -> int:
    """Runs a VM, reaps one, or tries a guest."""
    command, state = argv[:2]
    handles = [int(word) for word in argv[2:]]
    if command == "reap":
        return run_reaping(state, make, lock=handles[0], ready=handles[1])
    if command == "try":
        return try_guest(state, make)
    return run_shim(state, make, lock=handles[0], alive=handles[1], ready=handles[2])
