"""The init process of a guest, run as `python -I -S guest_init.py ORDER`, inside its sandbox if there is one.

It sets the limits, switches to the guest's users, starts the guest's program, forwards TERM to it, reaps orphans and
exits with the program's code. If the guest gets a network of its own, it waits for that first. In a PID namespace of
its own, its end ends every process in there. A guest without a program stays until it is asked to end.

Users, when we are root: a user namespace in which only two users exist, 0 (the poller) and 1 (the job). The poller
needs a privilege to become the job's user, and can become no other user of this host.

It also answers on a Unix socket, on which only the host can connect (`session.py` does). One connection is one
request, a line of JSON that may bring open files along:

    {"argv": [...], "tty": bool} + in, out, err   {"started": true}, later {"code": n}
    {"port": n}                                   {"connected": true} + the connection
                                                  or {"error": "..."}

A command runs as the job's user, with the guest's limits. When its connection ends, its session is killed.
It imports nothing but the standard library.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import select
import signal
import sys
import termios
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    import socket

_CLONE_NEWUSER = 0x10000000
_PR_SET_NO_NEW_PRIVS = 38
_DONE = b"."
_LARGEST = 1 << 20  # of a request
_CONNECT_TIMEOUT = 10.0
_LINGER = (
    2.0  # seconds for which a guest without a program stays after its last command was asked to end
)
_HANDLED = (
    *(signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGHUP),
    *(signal.SIGQUIT, signal.SIGTTOU, signal.SIGTTIN, signal.SIGWINCH),
)


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
        if not order["argv"]:
            _idle()
        _run(order, order["argv"])
    except BaseException as error:  # noqa: BLE001 a forked child must not return
        os.write(2, f"runyard: the guest cannot start: {error}\n".encode())
    os._exit(126)


def _idle() -> NoReturn:
    """The program of a guest without one: it keeps the guest's user and namespace, and does nothing."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    while True:
        signal.pause()


def _run(order: dict[str, Any], argv: list[str]) -> NoReturn:
    """Executes a program with the guest's limits, as the user that this process has become."""
    limit(order["limits"])
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    os.umask(0o077)
    os.chdir(order["cwd"])
    for number in _HANDLED:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.execvpe(argv[0], argv, dict(os.environ))


def map_users(pid: int, users: list[int]) -> None:
    """Writes which host users are 0 and 1 in the child's namespace."""
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/{pid}/{name}", "w", encoding="ascii") as file:  # noqa: PTH123 pathlib is slow to import
            file.write(f"0 {users[0]} 1\n1 {users[1]} 1\n")


def await_network(here: int, go: int) -> None:
    """Tells the shim that the namespace is made, and waits until it is connected."""
    os.write(here, _DONE)
    connected = os.read(go, 1) == _DONE
    os.close(here)
    os.close(go)
    if not connected:
        sys.exit(126)


class Session:
    """One connection from the host, and the command that it has asked for."""

    def __init__(self, link: "socket.socket") -> None:
        self.link = link
        self.pid = 0  # of the command, the leader of a session
        self._text = b""
        self._handles: list[int] = []

    def receive(self, init: "Init") -> bool:
        """Takes what has arrived; returns whether the connection goes on."""
        import socket  # noqa: PLC0415 large, and needed for sessions only

        try:
            data, handles, _, _ = socket.recv_fds(self.link, 65536, 3)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._handles += handles
        self._text += data
        if not data or self.pid or len(self._text) > _LARGEST:
            return False
        if not self._text.endswith(b"\n"):
            return True
        try:
            self._act(init, json.loads(self._text))
        except (OSError, ValueError, KeyError, TypeError) as error:
            self.answer({"error": str(error)})
            return False
        finally:
            self._close_handles()
        return True

    def _act(self, init: "Init", request: dict[str, Any]) -> None:
        if "port" in request:
            port = int(request["port"])
            self.pid = _forked(lambda: _dial(self.link, port))
            return
        if len(self._handles) != 3:
            raise ValueError("a command needs three open files")
        argv = [str(word) for word in request["argv"]]
        handles, tty = self._handles, bool(request.get("tty"))
        self.pid = _forked(lambda: _command(init, argv, handles, tty=tty))
        self.answer({"started": True})

    def answer(self, words: dict[str, Any]) -> None:
        """Answers, if the other end is still there; an answer is small."""
        with contextlib.suppress(OSError):
            self.link.send(json.dumps(words).encode() + b"\n")

    def ended(self, code: int) -> None:
        """Its command has ended."""
        self.pid = 0
        self.answer({"code": code})
        self.close()

    def signal(self, number: int) -> None:
        """Signals its command and what is in the same group."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def close(self) -> None:
        """Ends the connection, and the command if it still runs."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signal.SIGKILL)  # also one that has not made its session yet
            for pid in _members(self.pid):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            self.signal(signal.SIGKILL)
        self._close_handles()
        self.link.close()

    def _close_handles(self) -> None:
        for handle in self._handles:
            os.close(handle)
        self._handles = []


def _members(session: int) -> list[int]:
    """The processes of a session, where there is a /proc; elsewhere those of its first group are all we know."""
    found: list[int] = []
    if not os.path.isdir("/proc/self"):  # noqa: PTH112 pathlib is slow to import
        return found
    for name in os.listdir("/proc"):  # noqa: PTH208 as above
        if name.isdigit():
            with contextlib.suppress(OSError):
                if os.getsid(int(name)) == session:
                    found.append(int(name))
    return found


def _forked(work: Any) -> int:
    """Runs this in a child, which must not return; no signal reaches the child before its handlers are gone."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGCHLD])
    try:
        pid = os.fork()
        if pid == 0:
            try:
                signal.set_wakeup_fd(-1)
                work()
            finally:
                os._exit(126)
        return pid
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM, signal.SIGCHLD])


def _command(init: "Init", argv: list[str], handles: list[int], *, tty: bool) -> None:
    """Becomes a command of the host's, as the job's user."""
    for number, handle in enumerate(handles):
        os.dup2(handle, number)
    code = 126
    try:
        os.setsid()
        if tty:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            os.environ.setdefault("TERM", "xterm-256color")
        init.become_job()
        _run(init.order, argv)
    except FileNotFoundError:
        code = 127
        os.write(2, f"runyard: {argv[0]}: not found\n".encode())
    except BaseException as error:  # noqa: BLE001 a forked child must not return
        os.write(2, f"runyard: {argv[0]} cannot be run: {error}\n".encode())
    os._exit(code)


def _dial(link: "socket.socket", port: int) -> None:
    """Connects to a port of the guest and hands the connection over."""
    import socket  # noqa: PLC0415 as above

    try:
        found = socket.create_connection(("127.0.0.1", port), timeout=_CONNECT_TIMEOUT)
        socket.send_fds(link, [b'{"connected": true}\n'], [found.fileno()])
    except OSError as error:
        link.send(json.dumps({"error": f"port {port}: {error}"}).encode() + b"\n")
    os._exit(0)


class Init:
    """The loop: children that end, connections from the host, TERM."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        self.pid = 0  # of the guest's program; 0: it has none
        self.code: int | None = None
        self._namespace = -1  # the user namespace of the guest's program
        self._sessions: list[Session] = []
        self._until: float | None = None  # when a guest without a program ends
        self._wake, waker = os.pipe()
        for handle in (self._wake, waker):
            os.set_blocking(handle, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        # The shim starts us with TERM blocked; it is unblocked when there is a child to forward it to. Without a
        # handler, the init process of a namespace ignores TERM.
        signal.signal(signal.SIGTERM, lambda *_: None)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._listener: socket.socket | None = None
        self._exec = int(order["exec"]) if order.get("exec") else -1
        if self._exec >= 0:
            os.set_inheritable(self._exec, False)
            os.set_blocking(self._exec, False)

    def start(self) -> None:
        """Starts the guest's program."""
        ready, set_ready = os.pipe()
        go, set_go = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            signal.set_wakeup_fd(-1)
            os.close(ready)
            os.close(set_go)
            execute(self.order, set_ready, go)
        os.close(set_ready)
        os.close(go)
        if len(self.order["users"]) == 2 and os.read(ready, 1) == _DONE:
            map_users(self.pid, self.order["users"])
            self._namespace = os.open(f"/proc/{self.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
            os.write(set_go, _DONE)
        os.close(ready)
        os.close(set_go)

    def become_job(self) -> None:
        """Switches this new child to the user of the job, in the namespace of the guest's program."""
        users = self.order["users"]
        if not users:
            return
        uid = users[-1]
        if len(users) == 2:
            if ctypes.CDLL(None, use_errno=True).setns(self._namespace, _CLONE_NEWUSER) != 0:
                raise OSError(ctypes.get_errno(), "the guest's user namespace cannot be entered")
            uid = 1
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)

    def run(self) -> int:
        """Serves until the guest's program has ended; returns its code."""
        while self.code is None:
            inputs: list[Any] = [self._wake, *(each.link for each in self._sessions)]
            inputs += [self._exec] if self._exec >= 0 else []
            ready = select.select(inputs, [], [], None if self._until is None else _LINGER)[0]
            if not ready and self._until is not None and not self._sessions:
                return 0
            if self._wake in ready:
                self._on_signals()
            if self._exec in ready:
                self._accept()
            for session in [each for each in self._sessions if each.link in ready]:
                if not session.receive(self):
                    self._end(session)
        return self.code

    def _on_signals(self) -> None:
        while True:
            try:
                arrived = os.read(self._wake, 4096)
            except BlockingIOError:
                break
            if signal.SIGTERM in arrived:
                self._on_term()
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            self._on_end(pid, code if code >= 0 else 128 - code)

    def _on_end(self, pid: int, code: int) -> None:
        if pid == self.pid:
            self.code = code
        for session in [each for each in self._sessions if each.pid == pid]:
            session.ended(code)
            self._sessions.remove(session)

    def _on_term(self) -> None:
        if self.order["argv"]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signal.SIGTERM)
            return
        for session in self._sessions:
            session.signal(signal.SIGTERM)
        self._until = _LINGER

    def _accept(self) -> None:
        import socket  # noqa: PLC0415 as above

        if self._listener is None:
            self._listener = socket.socket(fileno=self._exec)
        with contextlib.suppress(OSError):
            link, _ = self._listener.accept()
            link.setblocking(False)
            self._sessions.append(Session(link))

    def _end(self, session: Session) -> None:
        self._sessions.remove(session)
        session.close()


def main(order: dict[str, Any]) -> int:
    """Starts the guest and waits for its end."""
    if order.get("network"):
        await_network(*(int(handle) for handle in order["network"]))
    init = Init(order)
    init.start()
    if order["knobs"]:
        os.close(int(order["knobs"]))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    return init.run()


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
