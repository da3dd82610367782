"""Gives a guest a network of its own: its namespace, the program that connects it to the outside, and its relays.

    guest_init.py (waits) ── network namespace ◀── slirp4netns ──▶ outside, as connections of this machine
      └ guest ── Unix sockets ──▶ relay ──▶ the servers that are listed

The guest gets out and nothing gets in: there is no route to the host's loopback, to the host's own addresses or to
another VM. Both helpers are children of the shim, carry out their work for one VM, and end with it: also when the shim
is killed, because they then read the end of a pipe or are killed by the kernel.

Invariants:
- The guest starts after its network is complete; if it cannot be made, the guest does not start. Its init process
  says when bwrap is done with the namespace, because bwrap and slirp4netns both configure loopback there.
- A namespace is entered through an open file, so it is this guest's and no other's.

Imported by the shim, so it imports nothing but the standard library.
"""

import contextlib
import ctypes
import fcntl
import os
import select
import signal
import socket
import struct
import subprocess
from typing import Any, NoReturn

from runyard.vm.process import cgroup, relay

_NS_GET_USERNS = 0xB701
_PR_SET_PDEATHSIG = 1
_SIOCADDRT = 0x890B
_RTF_UP, _RTF_HOST, _RTF_REJECT = 0x1, 0x4, 0x200
# A local route holds for its own device alone: without a route in the main table, a socket bound to tap0 would send to
# these addresses through the gateway, and slirp4netns would connect to the host's loopback. With an unreachable route
# the kernel looks for them on tap0 itself, by ARP, which slirp4netns answers for its own addresses only.
_LOOPBACK = "127.0.0.0/8"
_TIMEOUT = 20.0
_DEVICE = "/dev/net/tun"
_OPTIONS = (
    *("--configure", "--mtu=65520", "--disable-host-loopback"),
    *("--enable-seccomp", "--netns-type=path"),
)
_SANDBOX = "--enable-sandbox"  # it needs a user 0; without one, slirp4netns is an ordinary process of our user


class Network:
    """The network of one guest; `order` is what `networks.py` wrote."""

    def __init__(self, order: dict[str, Any], *, env: dict[str, str], group: str) -> None:
        self._order = order
        self._env = env
        self._group = group
        self._alive_reader, self._alive = os.pipe()  # the helpers wait for the end of this
        self.output = -1  # the errors of slirp4netns
        self.pids: dict[int, str] = {}  # of the helpers

    def start(self, first: int, here: int, go: int) -> None:
        """Connects the namespace of the process `first` once it says `here`, and tells it to `go`; raises OSError."""
        if not select.select([here], [], [], _TIMEOUT)[0]:
            raise OSError(f"bwrap did not start the guest within {_TIMEOUT:g} s")
        if not os.read(here, 1):  # bwrap has ended; its output says why
            return
        handles = [os.open(f"/proc/{first}/ns/net", os.O_RDONLY | os.O_CLOEXEC)]
        try:
            if os.fstat(handles[0]).st_ino == os.stat("/proc/self/ns/net").st_ino:  # noqa: PTH116 pathlib is slow to import
                raise OSError("bwrap made no network namespace")
            owner = fcntl.ioctl(handles[0], _NS_GET_USERNS)
            handles.append(owner)
            foreign = os.fstat(owner).st_ino != os.stat("/proc/self/ns/user").st_ino  # noqa: PTH116 pathlib is slow to import
            entered = [owner, handles[0]] if foreign else [handles[0]]
            self._start_relay()
            self._start_slirp(handles[0], owner if foreign else -1)
            _in_child(lambda: _reject([_LOOPBACK, *self._order["own"]], entered))
        finally:
            for handle in (*handles, self._alive_reader, here):
                os.close(handle)
        os.write(go, b".")
        os.close(go)

    def _start_slirp(self, net: int, owner: int) -> None:
        ready, set_ready = os.pipe()
        self.output, output = os.pipe()
        argv = [self._order["slirp"], *_OPTIONS, f"--cidr={self._order['subnet']}"]
        argv += [f"--exit-fd={self._alive_reader}", f"--ready-fd={set_ready}"]
        argv += [_SANDBOX] if os.geteuid() == 0 else []
        argv += [f"--userns-path=/proc/self/fd/{owner}"] if owner >= 0 else []
        passed = [handle for handle in (self._alive_reader, set_ready, net, owner) if handle >= 0]
        group = self._group
        try:
            child = subprocess.Popen(
                [*argv, f"/proc/self/fd/{net}", "tap0"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=output,
                env=self._env,
                cwd="/",
                pass_fds=passed,
                preexec_fn=(lambda: cgroup.enter(group)) if group else None,  # noqa: PLW1509 no threads here
            )
        finally:
            os.close(set_ready)
            os.close(output)
        child.returncode = 0  # or Popen warns about a process that was not waited for
        self.pids[child.pid] = "slirp4netns"
        os.set_blocking(self.output, False)
        try:
            if not select.select([ready], [], [], _TIMEOUT)[0] or not os.read(ready, 1):
                raise OSError(f"slirp4netns cannot connect its network: {self._failure()}")
        finally:
            os.close(ready)

    def _failure(self) -> str:
        if not os.path.exists(_DEVICE):  # noqa: PTH110 pathlib is slow to import
            return f"{_DEVICE} is missing"
        text = b""
        with contextlib.suppress(BlockingIOError):
            text = os.read(self.output, 65536)
        lines = [line for line in text.decode(errors="replace").splitlines() if line.strip()]
        return (
            "; ".join(lines[-2:]) or "it reported nothing"
        )  # the last line alone is seldom the cause

    def _start_relay(self) -> None:
        """Forks the process that serves the relays; a copy of the shim is small and starts at once."""
        if not self._order["relays"]:
            return
        relays = [(relay.listen(each), each) for each in self._order["relays"]]
        shim = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._be_relay(relays, shim)
        self.pids[pid] = "the relay"
        for listener, _ in relays:
            listener.close()

    def _be_relay(self, relays: list[tuple[socket.socket, dict[str, Any]]], shim: int) -> NoReturn:
        try:
            signal.set_wakeup_fd(-1)
            kept = [self._alive_reader, *(listener.fileno() for listener, _ in relays)]
            _close_all_but(kept)
            if self._group:
                cgroup.enter(self._group)
            relay.serve(relays, self._alive_reader, self._order["user"], lambda: _end_with(shim))
        finally:
            os._exit(0)


def _end_with(parent: int) -> None:
    """Has the kernel kill this process when its parent ends. To be called last: a change of user undoes it."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def _close_all_but(kept: list[int]) -> None:
    """Closes every other open file but 0 to 2: the VM's lock, its `alive` pipe and what else the shim holds."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 pathlib is slow to import
        if int(name) > 2 and int(name) not in kept:
            with contextlib.suppress(OSError):  # the listing's own is closed already
                os.close(int(name))


def _in_child(work: Any) -> None:
    """Runs this in a forked process, which may enter namespaces; raises OSError with its error."""
    answer, teller = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 a forked child must not return
            os.write(teller, str(error).encode()[:500])
        finally:
            os._exit(0)
    os.close(teller)
    text = os.read(answer, 500).decode(errors="replace")
    os.close(answer)
    os.waitpid(pid, 0)
    if text:
        raise OSError(text)


def _reject(targets: list[str], namespaces: list[int]) -> None:
    """Makes these unreachable in a namespace: connections of slirp4netns would reach the host's servers."""
    libc = ctypes.CDLL(None, use_errno=True)
    for namespace in namespaces:
        if libc.setns(namespace, 0) != 0:
            number = ctypes.get_errno()
            raise OSError(f"the VM's namespace cannot be entered: {os.strerror(number)}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        for target in targets:
            fcntl.ioctl(handle, _SIOCADDRT, _route(target))


def _route(target: str) -> bytes:
    """The `struct rtentry` of an unreachable address or network."""
    address, _, length = target.partition("/")
    bits = int(length or 32)
    flags = _RTF_UP | _RTF_REJECT | (_RTF_HOST if bits == 32 else 0)
    mask = (0xFFFFFFFF << (32 - bits) & 0xFFFFFFFF).to_bytes(4, "big")
    packed = [
        struct.pack("@HH4s8x", socket.AF_INET, 0, each)
        for each in (socket.inet_aton(address), mask)
    ]
    return struct.pack(
        "@L16s16s16sHhLPhPLLH", 0, packed[0], bytes(16), packed[1], flags, 0, 0, 0, 0, 0, 0, 0, 0
    )
