"""The agent in the guest: runs one command for each connection of `tart exec`.

It is a process of its own for each connection and holds at most one block of output, so a slow reader slows the command
and fills no memory. When the client goes away the command is killed; what it started in the background lives on.
A command that was killed by a signal is reported with code -1, as a Go program reports it.
"""

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import struct
import termios

from tests.standins.tart import frames, spawning

HELPERS = frozenset(os.listdir(os.path.join(os.path.dirname(__file__), "guest", "bin")))


def translated(word: str, environment: dict[str, str]) -> str:
    """An argument with the paths of a real guest replaced by the stand-in's: above all, no host is shut down."""
    for folder in ("/usr/sbin/", "/sbin/", "/usr/bin/"):
        for helper in HELPERS:
            word = word.replace(f"{folder}{helper}", helper)
    word = word.replace("/Volumes/My Shared Files", environment["STANDIN_SHARES"])
    return word.replace("/Users/admin", environment["HOME"])


def serve(link: socket.socket, environment: dict[str, str], home: str) -> int:
    """Serve one connection to its end."""
    reader = frames.Reader()
    while True:
        data = link.recv(frames.LIMIT)
        if not data:
            return 0
        messages = list(reader.feed(data))
        if messages:
            break
    (_, header), *early = messages
    wanted = json.loads(header)
    if "ask" in wanted:
        link.sendall(frames.frame(b"C", b"0"))
        return 0
    argv = [translated(word, environment) for word in wanted["argv"]]
    session = Session(link, reader, terminal=bool(wanted["tty"]))
    try:
        session.start(argv, {**environment, "TERM": wanted.get("term", "dumb")}, home, wanted)
    except OSError as error:
        reason = (
            "executable file not found in $PATH"
            if isinstance(error, FileNotFoundError)
            else str(error.strerror).lower()
        )
        link.sendall(frames.frame(b"F", f'exec: "{argv[0]}": {reason}'.encode()))
        return 0
    for kind, payload in early:
        session.message(kind, payload)
    session.relay()
    return 0


class Session:
    """One command and its streams."""

    def __init__(self, link: socket.socket, reader: frames.Reader, *, terminal: bool) -> None:
        self.link = link
        self.reader = reader
        self.terminal = terminal
        self.pid = 0
        self.input = -1
        self.pending = bytearray()
        self.ended = False  # the client has closed the input
        self.outputs: dict[int, bytes] = {}  # descriptor to kind of message
        self.status: int | None = None

    def start(
        self, argv: list[str], environment: dict[str, str], home: str, wanted: dict[str, object]
    ) -> None:
        """Start the command with pipes or a terminal."""
        if self.terminal:
            self._start_on_terminal(argv, environment, home, wanted)
            return
        interactive = bool(wanted["interactive"])
        stdin, self.input = os.pipe() if interactive else (os.open(os.devnull, os.O_RDONLY), -1)
        out, stdout = os.pipe()
        err, stderr = os.pipe()
        self.outputs = {out: b"O", err: b"X"}
        if interactive:
            os.set_blocking(self.input, False)
        try:
            self.pid = spawning.spawn(argv, environment, cwd=home, files=(stdin, stdout, stderr))
        finally:
            for descriptor in (stdin, stdout, stderr):
                os.close(descriptor)

    def _start_on_terminal(
        self, argv: list[str], environment: dict[str, str], home: str, wanted: dict[str, object]
    ) -> None:
        master, slave = os.openpty()
        self.resize(master, wanted)
        try:
            self.pid = spawning.spawn(
                argv, environment, cwd=home, files=(slave, slave, slave), terminal=True
            )
        finally:
            os.close(slave)
        os.set_blocking(master, False)
        self.outputs = {master: b"O"}
        self.input = master

    @staticmethod
    def resize(master: int, wanted: dict[str, object]) -> None:
        """Set the size of the terminal; the kernel tells its foreground process."""
        size = struct.pack("HHHH", int(str(wanted["rows"])), int(str(wanted["columns"])), 0, 0)
        fcntl.ioctl(master, termios.TIOCSWINSZ, size)

    def message(self, kind: bytes, payload: bytes) -> None:
        """One message of the client."""
        if kind == b"I":
            self.pending += payload
        elif kind == b"E":
            self.ended = True
        elif kind == b"R" and self.terminal and self.input >= 0:
            self.resize(self.input, json.loads(payload))

    def relay(self) -> None:
        """Pass everything on until the command has ended and its output is read."""
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: signal.setitimer(signal.ITIMER_REAL, 0.03))
        signal.signal(signal.SIGALRM, lambda *_: self._end_command())
        try:
            while self.outputs and self.status is None:
                self._step()
            if self.status is None:
                self.status = self._wait()
            self.link.sendall(frames.frame(b"C", str(self.status).encode()))
        except (BrokenPipeError, ConnectionError):
            os.kill(self.pid, signal.SIGKILL)

    def _end_command(self) -> None:
        """Pass a shutdown on, a moment late: the command may be the one that asked for it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGTERM)

    def _wait(self) -> int:
        """Wait for the command, whose output is closed; a client that goes away kills it."""
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else -1
            if select.select([self.link], [], [], 0.01)[0]:
                self._receive()

    def _step(self) -> None:
        self._feed()
        readable = list(self.outputs)
        full = len(self.pending) >= frames.LIMIT
        if not full:
            readable.append(self.link.fileno())
        writable = [self.input] if self.pending and self.input >= 0 else []
        # The terminal's end shows when its command has ended, which is looked for now and then.
        timeout = 0.02 if self.terminal else 0.2 if full else None
        ready, _, _ = select.select(readable, writable, [], timeout)
        if full:
            self._check_client()
        if self.link.fileno() in ready:
            self._receive()
        for descriptor in [each for each in self.outputs if each in ready]:
            self._pass_on(descriptor)
        if self.terminal and not ready:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else -1

    def _check_client(self) -> None:
        """Notice a client that went away while its input cannot be taken."""
        poller = select.poll()
        poller.register(self.link, 0)
        if poller.poll(0):
            raise BrokenPipeError

    def _receive(self) -> None:
        data = self.link.recv(frames.LIMIT)
        if not data:
            raise BrokenPipeError
        for kind, payload in self.reader.feed(data):
            self.message(kind, payload)

    def _feed(self) -> None:
        """Give the command what it takes of its input, and close it at its end."""
        try:
            while self.pending and self.input >= 0:
                del self.pending[: os.write(self.input, self.pending[: frames.LIMIT])]
        except BlockingIOError:
            return
        except OSError:
            self.pending.clear()
            if not self.terminal:
                self._close_input()
        if self.ended and not self.pending:
            self.ended = False
            if self.terminal:
                self.pending += b"\x04"
            else:
                self._close_input()

    def _close_input(self) -> None:
        if self.input >= 0:
            os.close(self.input)
            self.input = -1

    def _pass_on(self, descriptor: int) -> None:
        try:
            data = os.read(descriptor, frames.LIMIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""  # a terminal whose last process has closed it
        if data:
            self.link.sendall(frames.frame(self.outputs[descriptor], data))
            return
        del self.outputs[descriptor]
        if not self.terminal:
            os.close(descriptor)
