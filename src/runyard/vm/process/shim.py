"""What a shim runs for the process driver: a guest in its sandbox, with its network, control group and disk watch.

    shim ──▶ (bwrap) ──▶ guest_init.py ──▶ boot.sh ──▶ …
      └──▶ slirp4netns and a relay, if the guest has a network of its own

Invariants:
- The guest starts after its network is complete, and is ended if a helper of its network ends.
- Its users are killed whole and its directory is sealed before its exit is recorded.
- This module and those that it imports import nothing but the standard library.
"""

import contextlib
import json
import os
import select
import signal
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from runyard.vm.process import cgroup
from runyard.vm.process.diskwatch import DiskWatch
from runyard.vm.process.session import SOCKET
from runyard.vm.shim import main as shim
from runyard.vm.shim.exits import seal
from runyard.vm.shim.guest import Guest, Host
from runyard.vm.shim.processes import Process

if TYPE_CHECKING:
    from runyard.vm.process.network import Network

_WAITING = 16  # connections that guest_init.py has not taken yet
_TOKENS = (
    "env/sa_token",
    "run/headers",
)  # in a VM's directory: what is staged, and what its poller makes of it
_INFO_TIMEOUT = 20.0  # seconds until bwrap has made its namespaces


class ProcessGuest(Guest):
    """One guest of the process driver; `sandbox.py` writes its order."""

    def __init__(self, state: str, order: dict[str, Any]) -> None:
        super().__init__(state, order)
        self._vm = os.path.dirname(state)  # noqa: PTH120 as below
        self.disk = DiskWatch(
            state,
            order.get("disk_dirs", []),
            allowed=order.get("disk_bytes", 0),
            every=order.get("watch_every", 5.0),
        )
        self.group: str = order.get("cgroup", "")
        self.first = 0  # the pid of guest_init.py in the shim's namespace
        self._network: Network | None = None
        self._exec = -1
        self._info = b""
        self._end_requested = False
        self._oom_kills = 0  # processes that the kernel killed when memory was used up

    def prepare(self) -> None:
        """Makes the socket on which guest_init.py takes commands from the host."""
        self._exec = _listening(self.state)

    def start(self, host: Host, output: int) -> None:
        """Starts bwrap, or guest_init.py alone, and connects its network."""
        # Children start with TERM blocked until the guest's init process can pass it on: no TERM is lost.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        try:
            self._start(host, output)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])

    def _start(self, host: Host, output: int) -> None:
        info, info_writer = os.pipe()
        knobs = os.open(self.order["knobs"], os.O_RDONLY) if self.order["knobs"] else -1
        handles = {"{info}": info_writer if self.order["info"] else -1, "{knobs}": knobs}
        handles["{exec}"], self._exec = self._exec, -1
        here, go = -1, -1
        if self.order.get("network"):
            here, handles["{here}"] = os.pipe()  # guest_init.py says on the one that it waits
            handles["{go}"], go = os.pipe()  # at the other
        argv = [_filled(word, handles) for word in self.order["argv"]]
        try:
            self.pid = self.spawn(
                argv,
                stdout=output,
                stderr=output,
                pass_fds=[handle for handle in handles.values() if handle >= 0],
                preexec_fn=self._enter_group(),
            )
        finally:
            for handle in dict.fromkeys((info_writer, *handles.values())):
                if handle >= 0:
                    os.close(handle)
        self.first = 0 if self.order["info"] else self.pid
        host.listen(info, self._on_bwrap_info)
        if self.order.get("network"):
            self._connect(host, info, here, go)

    def _enter_group(self) -> Callable[[], None] | None:
        return (lambda: cgroup.enter(self.group)) if self.group else None

    def _connect(self, host: Host, info: int, here: int, go: int) -> None:
        """Waits for the guest's namespaces and connects its network; raises OSError."""
        # Imported while bwrap starts, and not for guests that need nothing of it.
        from runyard.vm.process.network import Network  # noqa: PLC0415 as above

        while not self.first:
            if not select.select([info], [], [], _INFO_TIMEOUT)[0]:
                raise OSError(f"bwrap made no namespaces within {_INFO_TIMEOUT:g} s")
            data = os.read(info, 65536)
            if not data:  # bwrap has ended; its output says why
                return
            self._on_bwrap_info(data)
        self._network = network = Network(
            self.order["network"], env=self.order["helper_env"], group=self.group
        )
        network.start(self.first, here, go)
        if network.output >= 0:
            host.listen(network.output, self._on_network_output)

    def _on_bwrap_info(self, data: bytes) -> None:
        """Reads from bwrap the process id of the sandbox's init process."""
        self._info += data[:4096]
        try:
            self.first = int(json.loads(self._info)["child-pid"])
        except ValueError:
            return
        if self._end_requested:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.first, signal.SIGTERM)

    def _on_network_output(self, data: bytes) -> None:
        """Reads and drops it: a guest can cause any number of lines."""

    def work(self, host: Host, now: float) -> float | None:
        """Measures its disk space when that is due."""

        def listen(handle: int) -> None:
            host.listen(handle, lambda data: self._on_disk_usage(host, data))

        self.disk.start(now, listen)
        return self.disk.seconds_until_due(now)

    def _on_disk_usage(self, host: Host, data: bytes) -> None:
        why = self.disk.feed(data)
        if why:
            host.end(why)

    def child_ended(self, host: Host, pid: int, status: int) -> None:
        """Ends the guest if it was a helper of its network."""
        if self._network and pid in self._network.pids:
            host.end(f"{self._network.pids[pid]} of its network ended")

    def shut_down(self) -> None:
        """Sends TERM to the guest's init process."""
        self._end_requested = True
        if self.first:
            os.kill(self.first, signal.SIGTERM)  # ours, or bwrap's: not reaped yet

    # ── its end ─────────────────────────────────────────────────────────────────────────────────

    def power_off(self) -> None:
        """Kills its init process. Of a sandbox that is all of it: the kernel then ends the rest."""
        if self.first:
            os.kill(self.first, signal.SIGKILL)

    def kill(self, found: list[Process]) -> None:
        """Kills these, its users and its control group."""
        if not found:
            self._oom_kills = self._oom_kills or cgroup.oom_kills(self.group)
        else:
            super().kill(found)
        cgroup.kill_all(self.group)

    def others_left(self) -> bool:
        """Whether its control group has processes."""
        return cgroup.is_populated(self.group)

    def cleared(self) -> None:
        """Removes its control group, and the token that its guest has left: a killed one removes nothing."""
        cgroup.remove(self.group)
        for path in _TOKENS:
            with contextlib.suppress(OSError):
                os.unlink(f"{self._vm}/{path}")  # noqa: PTH108 pathlib is slow to import

    def remark(self, code: int | None) -> str:
        """Whether the kernel killed processes of it."""
        if not self._oom_kills or code == 0:
            return ""
        return f"; the kernel killed {self._oom_kills} of its processes because memory was used up"

    def seal(self) -> None:
        """Closes its directory to its users."""
        if self.users:
            seal(self.mark)


def _listening(state: str) -> int:
    """A Unix socket in this directory, by a short name: a path of its own may be too long for one."""
    found = socket.socket(socket.AF_UNIX)
    os.chdir(state)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(SOCKET)  # noqa: PTH108 pathlib is slow to import
        found.bind(SOCKET)
    finally:
        os.chdir("/")
    found.listen(_WAITING)
    return found.detach()


def _filled(word: str, handles: dict[str, int]) -> str:
    """Replaces names of open files in an argument by their numbers."""
    for name, handle in handles.items():
        word = word.replace(name, str(handle))
    return word


def main(argv: list[str]) -> int:
    """Runs a VM of the process driver."""
    return shim.main(argv, ProcessGuest)
