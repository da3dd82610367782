"""A small process between us and the server, run as `python -I -S launcher.py SPEC`.

Why a process of its own: dropping privileges and entering a user namespace must happen between fork and exec, which
is not safe in a process with threads; and when the parent is killed, a process must remain long enough to end the
server. It imports nothing but the standard library.

A JSON document configures it (see `process.py`), and it uses two pipes:

    stdin    one byte is an order (`f` fast, `i` immediate); end of file means that the parent is gone
    stdout   `ready PID` once, then `exited CODE`

Invariants: the server never outlives this process (on Linux the kernel ensures it, elsewhere the order of
shutdown does), this process never outlives its parent by more than the server's shutdown, and
the socket directory is removed when the server is gone.
"""

import ctypes
import json
import os
import select
import shutil
import signal
import sys
from typing import Any, NoReturn

_CLONE_NEWUSER = 0x10000000
_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
_POLL = 0.005
_FAST_PATIENCE = 30.0
_IMMEDIATE_PATIENCE = 10.0

_SIGNALS = {b"f": signal.SIGINT, b"i": signal.SIGQUIT}


def become(identity: dict[str, Any]) -> None:
    """Switches this process to the server's user."""
    kind = identity["kind"]
    if kind == "drop":
        os.setgroups([])
        os.setgid(identity["gid"])
        os.setuid(identity["uid"])
    elif kind == "namespace":
        uid, gid = os.geteuid(), os.getegid()
        if _libc().unshare(_CLONE_NEWUSER) != 0:
            raise OSError(ctypes.get_errno(), "unshare(CLONE_NEWUSER) was refused")
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{identity['uid']} {uid} 1")
        _write("/proc/self/gid_map", f"{identity['gid']} {gid} 1")


def execute(spec: dict[str, Any]) -> NoReturn:
    """Becomes the server's user and program; only in a newly forked, single-threaded process."""
    parent = os.getppid()
    try:
        os.chdir("/")
        become(spec["identity"])
        if sys.platform == "linux":
            # After the change of user, which would reset it. The parent may be gone already.
            _libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            _libc().prctl(_PR_SET_PDEATHSIG, spec["stop_signal"], 0, 0, 0)
            if os.getppid() != parent:
                os._exit(125)
        os.chdir(spec["cwd"])
        os.umask(0o077)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.execve(spec["argv"][0], spec["argv"], spec["env"])
    except BaseException as error:  # noqa: BLE001 a forked child must not return
        os.write(2, f"launcher: {type(error).__name__}: {error}\n".encode())
    os._exit(126)


def serve(spec: dict[str, Any]) -> int:
    """Runs the server until it ends, a stop order arrives, or the parent is gone."""
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    pid = os.fork()
    if pid == 0:
        _null_stdio()
        execute(spec)
    code = _watch(pid, spec, wake)
    for path in spec["remove"]:
        shutil.rmtree(path, ignore_errors=True)
    _print(f"exited {code}")
    return 0


def _watch(pid: int, spec: dict[str, Any], wake: int) -> int:
    """Waits for the first of: server ended, order from the parent, parent gone, signal to us."""
    ready, stopping, patience = False, 0, None
    inputs = [0, wake]
    while True:
        timeout = patience if stopping else (None if ready else _POLL)
        readable = select.select(inputs, [], [], timeout)[0]
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if not ready and _is_ready(spec["ready_file"], pid):
            ready = True
            _print(f"ready {pid}")
        order = 0
        if 0 in readable:
            byte = os.read(0, 1)
            inputs = inputs if byte else [wake]
            order = _SIGNALS.get(byte, spec["stop_signal"])
        if wake in readable and any(n != signal.SIGCHLD for n in os.read(wake, 64)):
            order = spec["stop_signal"]
        if stopping and not readable:  # the timeout has passed: escalate
            order = signal.SIGQUIT if stopping == signal.SIGINT else signal.SIGKILL
        if order:
            stopping = order
            patience = _FAST_PATIENCE if order == signal.SIGINT else _IMMEDIATE_PATIENCE
            os.kill(pid, order)


def _is_ready(path: str, pid: int) -> bool:
    """Whether the last line of the server's pid file says ready."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 pathlib is slow to import
            lines = file.read().splitlines()
    except OSError:
        return False
    return len(lines) >= 8 and lines[0].strip() == str(pid) and lines[7].strip() == "ready"


def _print(line: str) -> None:
    try:
        os.write(1, f"{line}\n".encode())
    except OSError:  # the parent is gone
        return


def _null_stdio() -> None:
    """The server must not inherit our pipes: their closing signals an exit."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:  # noqa: PTH123 as above
        file.write(text)


def main() -> int:
    """Serves, or becomes the program (`run`) when there is nothing to watch."""
    spec = json.loads(sys.argv[1])
    if spec["mode"] == "run":
        execute(spec)
    return serve(spec)


if __name__ == "__main__":
    sys.exit(main())
