"""The init process of a guest, run as `python -I -S guest_init.py ORDER`, inside its sandbox if there is one.

It sets the limits, switches to the guest's users, starts the guest's program, forwards TERM to it, reaps orphans and
exits with the program's code. In a PID namespace of its own, its end ends every process in there.

Users, when we are root: a user namespace in which only two users exist, 0 (the poller) and 1 (the job). The poller
needs a privilege to become the job's user, and can become no other user of this host.
It imports nothing but the standard library.
"""

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
from typing import Any, NoReturn

_CLONE_NEWUSER = 0x10000000
_PR_SET_NO_NEW_PRIVS = 38
_DONE = b"."


def become(order: dict[str, Any], ready: int, go: int) -> None:
    """Switches this new child to the guest's main user."""
    users = order["users"]
    if len(users) == 2:
        if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWUSER) != 0:
            raise OSError(ctypes.get_errno(), "a user namespace was refused")
        os.write(ready, _DONE)
        if os.read(go, 1) != _DONE:
            raise OSError("the users were not mapped")
    if users:
        uid = 0 if len(users) == 2 else users[0]
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
    if order["knobs"]:
        forbid_user_namespaces(int(order["knobs"]))


def forbid_user_namespaces(knobs: int) -> None:
    """Forbids user namespaces below the current one.

    In its own namespace a process would be root towards parts of the kernel that no job needs. The directory was
    opened outside, where it is writable; its content is that of the namespace of the process that reads it.
    """
    handle = os.open("max_user_namespaces", os.O_WRONLY, dir_fd=knobs)
    os.write(handle, b"0")
    os.close(handle)
    os.close(knobs)


def limit(limits: dict[str, int]) -> None:
    """Lowers the resource limits; a limit that is already lower stays."""
    for name, wanted in limits.items():
        number = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(number)[1]
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(number, (value, value))


def execute(order: dict[str, Any], ready: int, go: int) -> NoReturn:
    """Becomes the guest's program; only in a newly forked process."""
    try:
        os.setsid()
        become(order, ready, go)
        limit(order["limits"])
        if sys.platform == "linux":
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        os.umask(0o077)
        os.chdir(order["cwd"])
        for number in (
            signal.SIGTERM,
            signal.SIGCHLD,
            signal.SIGPIPE,
            signal.SIGXFSZ,
            signal.SIGINT,
            signal.SIGHUP,
        ):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.execve(order["argv"][0], order["argv"], dict(os.environ))
    except BaseException as error:  # noqa: BLE001 a forked child must not return
        os.write(2, f"runyard: the guest cannot start: {error}\n".encode())
    os._exit(126)


def map_users(pid: int, users: list[int]) -> None:
    """Writes which host users are 0 and 1 in the child's namespace."""
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/{pid}/{name}", "w", encoding="ascii") as file:  # noqa: PTH123 pathlib is slow to import
            file.write(f"0 {users[0]} 1\n1 {users[1]} 1\n")


def main(order: dict[str, Any]) -> int:
    """Starts the guest and waits for its end."""
    # The shim starts us with TERM blocked; it is unblocked below, when there is a child to forward it to. Without a
    # handler, the init process of a namespace ignores TERM.
    signal.signal(signal.SIGTERM, lambda *_: forward_term())
    ready, set_ready = os.pipe()
    go, set_go = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ready)
        os.close(set_go)
        execute(order, set_ready, go)

    def forward_term() -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGTERM)

    os.close(set_ready)
    os.close(go)
    if order["knobs"]:
        os.close(int(order["knobs"]))
    if len(order["users"]) == 2 and os.read(ready, 1) == _DONE:
        map_users(pid, order["users"])
        os.write(set_go, _DONE)
    os.close(ready)
    os.close(set_go)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    while True:
        ended, status = os.wait()
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
