"""Runs one VM in a Python process of its own, with the standard library alone.

    agent ──starts──▶ shim ──▶ (bwrap) ──▶ guest_init.py ──▶ boot.sh ──▶ …
            (may have died) ▲ one byte on state/control: T shut down, K power off

The shim is detached: it forks away from the agent, has its own session, and continues when the agent is killed.
`reap STATE` instead of `run STATE LOCK ALIVE READY` kills what is left of a VM whose shim was killed and writes its
exit record; its caller holds the lock.

Invariants:
- The process that starts a shim holds the VM's lock and the writing end of `state/alive` and passes both on: they are
  held without a gap, and are free exactly when no shim runs.
- `state/started` is written before the guest starts, `state/exit.json` after *every* process of the guest has ended.
  On Linux orphans become the shim's children, and the shim stays until it has none.
- This module and those that it imports import nothing but the standard library.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import Any

from runyard.vm.process import cgroup
from runyard.vm.process.console import Console
from runyard.vm.process.diskwatch import DiskWatch
from runyard.vm.process.exits import ended_how, read_report, reserve, seal, write_exit
from runyard.vm.process.processes import Process, descendants, marked, table
from runyard.vm.process.reaping import kill_until_gone, reap

_PR_SET_CHILD_SUBREAPER = 36


class Shim:
    """Runs one guest from its start to its exit record."""

    def __init__(self, state: str, order: dict[str, Any]) -> None:
        self.state = state
        self.order = order
        self.console = Console(state)
        self.disk = DiskWatch(
            state, order["disk_dirs"], allowed=order["disk_bytes"], every=order["watch_every"]
        )
        self.why = ""  # why the shim ended the guest; empty: it did not
        self.status: int | None = None  # of the guest's first process
        self.main = 0  # the child process: guest_init.py, or bwrap around it
        self.first = 0  # the pid of guest_init.py in the shim's namespace
        self._inputs: dict[int, Any] = {}
        self._info = b""
        self._end_requested = False
        self._oom_kills = 0  # processes that the kernel killed when memory was used up

    def run(self, ready: int) -> None:
        """Runs the guest from start to exit record."""
        reserve(self.state)
        control = os.open(f"{self.state}/control", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._inputs[control] = self._on_control
        self._listen_to_signals()
        with open(f"{self.state}/started", "w", encoding="ascii") as file:  # noqa: PTH123 as above
            file.write(f"{os.getpid()}\n")
        try:
            # Children start with TERM blocked until the guest's init process can pass it on: no TERM is lost.
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
            self._start()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        except (OSError, subprocess.SubprocessError) as error:
            self.why, self.status = f"the guest could not be started: {error}", 1
        os.close(ready)  # the starter waits for this close
        while self.status is None and not self.why:
            self._wait()
        finished_at = time.time()
        self._end_all()
        self._drain()
        self._close(finished_at)

    def _start(self) -> None:
        output, output_writer = os.pipe2(os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()
        info, info_writer = os.pipe()
        knobs = os.open(self.order["knobs"], os.O_RDONLY) if self.order["knobs"] else -1
        handles = {"{info}": info_writer if self.order["info"] else -1, "{knobs}": knobs}
        argv = [_filled(word, handles) for word in self.order["argv"]]
        group = self.order["cgroup"]
        try:
            # This object does not wait for it: all children are reaped in `_reap_children`.
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output_writer,
                stderr=output_writer,
                env=self.order["env"],
                cwd="/",
                pass_fds=[handle for handle in handles.values() if handle >= 0],
                preexec_fn=(lambda: cgroup.enter(group)) if group else None,  # noqa: PLW1509 no threads here
                start_new_session=True,
            )
        finally:
            for handle in (output_writer, info_writer, knobs):
                if handle >= 0:
                    os.close(handle)
        child.returncode = 0  # or Popen warns about a process that was not waited for
        self.main = child.pid
        self.first = 0 if self.order["info"] else child.pid
        os.set_blocking(output, False)
        os.set_blocking(info, False)
        self._inputs[output] = self._on_output
        self._inputs[info] = self._on_bwrap_info

    def _listen_to_signals(self) -> None:
        wake, waker = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        self._inputs[wake] = self._on_signal

    def _wait(self) -> None:
        now = time.monotonic()
        self.disk.start(now, self._watch_disk_answer)
        timeout = self.disk.seconds_until_due(now)
        for handle in select.select(list(self._inputs), [], [], timeout)[0]:
            try:
                data = os.read(handle, 65536)
            except BlockingIOError:
                continue
            act = self._inputs[handle]
            if not data:
                del self._inputs[handle]
                os.close(handle)
            act(data)

    # Each handler gets the bytes that arrived; empty bytes mean that the other end was closed.

    def _on_control(self, data: bytes) -> None:
        if b"K" in data:
            self.why = "powered off"
        elif b"T" in data:
            self._request_end()

    def _on_signal(self, data: bytes) -> None:
        if signal.SIGTERM in data:  # the host shuts down
            self._request_end()
        self._reap_children()

    def _on_output(self, data: bytes) -> None:
        self.console.write(data)

    def _on_bwrap_info(self, data: bytes) -> None:
        """Reads from bwrap the process id of the sandbox's init process."""
        self._info += data[:4096]
        with contextlib.suppress(ValueError):
            self.first = int(json.loads(self._info)["child-pid"])
            if self._end_requested:
                self._request_end()

    def _watch_disk_answer(self, handle: int) -> None:
        self._inputs[handle] = self._on_disk_usage

    def _on_disk_usage(self, data: bytes) -> None:
        self.why = self.disk.feed(data) or self.why

    def _request_end(self) -> None:
        """Sends TERM to the guest's init process."""
        self._end_requested = True
        if self.first and self.status is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.first, signal.SIGTERM)  # ours, or bwrap's: not reaped yet

    def _reap_children(self) -> bool:
        """Reaps children that have ended; returns whether children are left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.main:
                self.status = os.waitstatus_to_exitcode(status)

    def _end_all(self) -> None:
        """Kills every process of the guest; none is left when this returns."""
        if self.first and self.status is None:
            with contextlib.suppress(ProcessLookupError):
                # Of a sandbox it is the init process: the kernel then ends the rest of it.
                os.kill(self.first, signal.SIGKILL)
        self._oom_kills = cgroup.oom_kills(self.order["cgroup"])
        kill_until_gone(self._remaining, users=self.order["users"], group=self.order["cgroup"])

    def _remaining(self) -> list[Process] | None:
        """Our descendants and, where orphans go to process 1, every process with the mark; None if there is none."""
        orphans: list[Process] = []
        if sys.platform != "linux":
            orphans = marked(self.order["mark"], self.order["users"])
        if not self._reap_children() and not orphans:
            return None
        return descendants(os.getpid(), table()) + orphans

    def _drain(self) -> None:
        """Writes the guest's last output to the console log."""
        for handle, act in list(self._inputs.items()):
            while act == self._on_output:
                try:
                    data = os.read(handle, 65536)
                except BlockingIOError:
                    break
                if not data:
                    break
                act(data)

    def _close(self, finished_at: float) -> None:
        code = read_report(self.order["status"])
        reason = self.why or ended_how(code, self.status)
        if self._oom_kills and code != 0:
            reason += (
                f"; the kernel killed {self._oom_kills} of its processes because memory was used up"
            )
        for _ in range(100):
            try:
                if self.order["users"]:
                    seal(self.order["mark"])
                write_exit(self.state, code, reason, finished_at)
            except OSError:
                time.sleep(0.1)
            else:
                return


def _filled(word: str, handles: dict[str, int]) -> str:
    """Replaces names of open files in an argument by their numbers."""
    for name, handle in handles.items():
        word = word.replace(name, str(handle))
    return word


def run_shim(state: str, lock: int, alive: int, ready: int) -> int:
    """Forks away from the agent, then runs the VM."""
    if os.fork():
        return 0  # the starter waits only for this process
    os.setsid()
    os.chdir("/")
    os.umask(0o077)
    for handle in (lock, alive, ready):
        os.set_inheritable(handle, False)  # or a guest could keep the lock and `alive` open
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with open(f"{state}/order.json", "rb") as file:  # noqa: PTH123 as above
        order = json.load(file)
    Shim(state, order).run(ready)
    return 0


def main(argv: list[str]) -> int:
    """Runs a VM, or reaps one."""
    if argv[0] == "reap":
        return reap(argv[1])
    return run_shim(argv[1], *(int(word) for word in argv[2:5]))
