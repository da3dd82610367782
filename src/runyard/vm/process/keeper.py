"""The process that keeps one VM, run in a Python of its own with the standard library alone.

    agent ──starts──▶ keeper ──▶ (bwrap) ──▶ first.py ──▶ boot.sh ──▶ …
            (gone or not)  ▲ one byte on state/control: T ask to end, K power off

It belongs to nobody: it forks away from the agent, has a session of its own, and goes on when the agent is killed.
`bury STATE` instead of `keep STATE LOCK ALIVE READY` ends what is left of a VM whose keeper was killed and writes its
exit record; whoever calls that holds the lock.

Invariants:
- Whoever starts us holds the VM's lock and the writing end of `state/alive`, and hands both on: so from the first
  moment to the last somebody holds them, and they are free exactly when no keeper lives.
- `state/started` is written before the guest starts, `state/exit.json` after *every* process of the guest has ended,
  whatever it did to get away: on Linux orphans become our children, and we stay until we have none.
- This module and those that it imports from here import nothing but the standard library.
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

from runyard.vm.process import leaf
from runyard.vm.process.console import Console
from runyard.vm.process.diskwatch import DiskWatch
from runyard.vm.process.ending import bury, to_the_last
from runyard.vm.process.exits import ended_how, read_report, reserve, seal, write_exit
from runyard.vm.process.processes import Process, descendants, marked, table

_PR_SET_CHILD_SUBREAPER = 36


class Keeper:
    """Runs one guest from its start to its exit record."""

    def __init__(self, state: str, order: dict[str, Any]) -> None:
        self.state = state
        self.order = order
        self.console = Console(state)
        self.disk = DiskWatch(
            state, order["disk_dirs"], allowed=order["disk_bytes"], every=order["watch_every"]
        )
        self.why = ""  # we ended it, for this reason
        self.status: int | None = None  # of the guest's first process
        self.main = 0  # the process that we started: first.py, or bwrap around it
        self.first = 0  # first.py, as seen from here
        self._inputs: dict[int, Any] = {}
        self._info = b""
        self._asked = False
        self._starved = 0  # processes that the kernel ended for want of memory

    def run(self, ready: int) -> None:
        """The whole life."""
        reserve(self.state)
        control = os.open(f"{self.state}/control", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._inputs[control] = self._ordered
        self._listen_to_signals()
        with open(f"{self.state}/started", "w", encoding="ascii") as file:  # noqa: PTH123 as above
            file.write(f"{os.getpid()}\n")
        try:
            # Our children are born deaf to TERM, until the guest's first process can pass it on: none is lost.
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
            self._start()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        except (OSError, subprocess.SubprocessError) as error:
            self.why, self.status = f"the guest could not be started: {error}", 1
        os.close(ready)  # closing is the message
        while self.status is None and not self.why:
            self._wait()
        finished_at = time.time()
        self._end_all()
        self._drain()
        self._close(finished_at)

    def _start(self) -> None:
        output, talk = os.pipe2(os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()
        info, tell = os.pipe()
        knobs = os.open(self.order["knobs"], os.O_RDONLY) if self.order["knobs"] else -1
        handles = {"{info}": tell if self.order["info"] else -1, "{knobs}": knobs}
        argv = [_filled(word, handles) for word in self.order["argv"]]
        group = self.order["cgroup"]
        try:
            # Not waited for by this object: every child is reaped in one place, `_reap`.
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=talk,
                stderr=talk,
                env=self.order["env"],
                cwd="/",
                pass_fds=[handle for handle in handles.values() if handle >= 0],
                preexec_fn=(lambda: leaf.enter(group)) if group else None,  # noqa: PLW1509 no threads here
                start_new_session=True,
            )
        finally:
            for handle in (talk, tell, knobs):
                if handle >= 0:
                    os.close(handle)
        child.returncode = 0  # or it would complain about a process that nobody waited for
        self.main = child.pid
        self.first = 0 if self.order["info"] else child.pid
        os.set_blocking(output, False)
        os.set_blocking(info, False)
        self._inputs[output] = self._talked
        self._inputs[info] = self._informed

    def _listen_to_signals(self) -> None:
        wake, waker = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        self._inputs[wake] = self._woken

    def _wait(self) -> None:
        now = time.monotonic()
        self.disk.begin(now, self._listen_to_disk)
        timeout = self.disk.wait(now)
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

    # Each of these is told what arrived; nothing at all means that the other end was closed.

    def _ordered(self, data: bytes) -> None:
        if b"K" in data:
            self.why = "powered off"
        elif b"T" in data:
            self._ask()

    def _woken(self, data: bytes) -> None:
        if signal.SIGTERM in data:  # the host shuts down
            self._ask()
        self._reap()

    def _talked(self, data: bytes) -> None:
        self.console.write(data)

    def _informed(self, data: bytes) -> None:
        """Bwrap tells the number of the process that is its sandbox's first."""
        self._info += data[:4096]
        with contextlib.suppress(ValueError):
            self.first = int(json.loads(self._info)["child-pid"])
            if self._asked:
                self._ask()

    def _listen_to_disk(self, handle: int) -> None:
        self._inputs[handle] = self._measured

    def _measured(self, data: bytes) -> None:
        self.why = self.disk.heard(data) or self.why

    def _ask(self) -> None:
        """Pass the wish on to the guest's first process."""
        self._asked = True
        if self.first and self.status is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.first, signal.SIGTERM)  # ours, or bwrap's: not reaped yet

    def _reap(self) -> bool:
        """Bury whoever has ended; True while there are children left."""
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
        """Nothing of the guest is left when this returns."""
        if self.first and self.status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(
                    self.first, signal.SIGKILL
                )  # of a sandbox: then the kernel ends the rest of it
        self._starved = leaf.starved(self.order["cgroup"])
        to_the_last(self._left, users=self.order["users"], group=self.order["cgroup"])

    def _left(self) -> list[Process] | None:
        """Our descendants, and where orphans go to process 1 also whoever bears the mark; None: nobody."""
        strangers: list[Process] = []
        if sys.platform != "linux":
            strangers = marked(self.order["mark"], self.order["users"])
        if not self._reap() and not strangers:
            return None
        return descendants(os.getpid(), table()) + strangers

    def _drain(self) -> None:
        """Take down the guest's last words."""
        for handle, act in list(self._inputs.items()):
            while act == self._talked:
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
        if self._starved and code != 0:
            reason += f"; the kernel ended {self._starved} of its processes for want of memory"
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
    """An argument with the numbers of the open files that it speaks of."""
    for name, handle in handles.items():
        word = word.replace(name, str(handle))
    return word


def keep(state: str, lock: int, alive: int, ready: int) -> int:
    """Fork away from the agent, then keep the VM."""
    if os.fork():
        return 0  # who started us need not bury us
    os.setsid()
    os.chdir("/")
    os.umask(0o077)
    for handle in (lock, alive, ready):
        os.set_inheritable(handle, False)  # the guest must not hold what tells that we live
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with open(f"{state}/order.json", "rb") as file:  # noqa: PTH123 as above
        order = json.load(file)
    Keeper(state, order).run(ready)
    return 0


def main(argv: list[str]) -> int:
    """Keep a VM, or bury one."""
    if argv[0] == "bury":
        return bury(argv[1])
    return keep(argv[1], *(int(word) for word in argv[2:5]))
