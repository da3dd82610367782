"""`tart exec`: a command in the guest, its streams and its exit code.

Input is read only while the agent takes it, and output is written before more is read, so memory stays flat. The
process ends with the command's own code; a command killed by a signal has code -1, which a shell sees as 255.
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

from tests.standins.tart import errors, frames
from tests.standins.tart.arguments import Command, Given
from tests.standins.tart.context import Context
from tests.standins.tart.storage import Vm

COMMAND = Command(
    "exec",
    "name command...",
    {"interactive": "flag", "tty": "flag"},
    short={"i": "interactive", "t": "tty"},
    passthrough=True,
)


def execute(context: Context, given: Given) -> int:
    """Run a command in a running guest."""
    vm = context.home.open_local(given.name("name"), context.now())
    context.knobs.before("exec", vm.name)
    if not vm.pid:
        raise errors.not_running(vm.name)
    interactive, tty = given.flag("interactive"), given.flag("tty")
    columns, rows = size()
    header = {
        "argv": given.names["command"],
        "interactive": interactive,
        "tty": tty,
        "columns": columns,
        "rows": rows,
        "term": os.environ.get("TERM", "dumb"),
    }
    link = connect(vm)
    with contextlib.ExitStack() as stack:
        if tty and interactive and os.isatty(0):
            _raw(stack)
        return Client(link, header, interactive=interactive, tty=tty).main()


def connect(vm: Vm) -> socket.socket:
    """Connect to a VM's agent through its `run`."""
    try:
        return frames.connect(vm.path)
    except OSError as error:
        raise errors.unreachable_agent(str(error.strerror)) from error


def size() -> tuple[int, int]:
    """Columns and rows of this terminal; 80 and 24 without one."""
    for descriptor in (0, 1, 2):
        with contextlib.suppress(OSError):
            answer = fcntl.ioctl(descriptor, termios.TIOCGWINSZ, b"\0" * 8)
            rows, columns, _, _ = struct.unpack("HHHH", answer)
            return columns, rows
    return 80, 24


def _raw(stack: contextlib.ExitStack) -> None:
    import tty  # noqa: PLC0415 - only for terminals

    before = termios.tcgetattr(0)
    tty.setraw(0)
    stack.callback(termios.tcsetattr, 0, termios.TCSADRAIN, before)


class Client:
    """One connection to the agent."""

    def __init__(
        self, link: socket.socket, header: dict[str, object], *, interactive: bool, tty: bool
    ) -> None:
        self.link = link
        self.reader = frames.Reader()
        self.pending = bytearray(frames.frame(b"H", json.dumps(header).encode()))
        self.reading = interactive
        self.tty = tty
        self.code: int | None = None

    def main(self) -> int:
        """Relay until the agent reports the exit code."""
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        self.link.setblocking(False)
        wakeup, wake = os.pipe()
        for descriptor in (wakeup, wake):
            os.set_blocking(descriptor, False)
        if self.tty:
            signal.set_wakeup_fd(wake)
            signal.signal(signal.SIGWINCH, lambda *_: None)
        while self.code is None:
            self._step(wakeup)
        return self.code

    def _step(self, wakeup: int) -> None:
        reading = [self.link.fileno(), wakeup]
        if self.reading and not self.pending:
            reading.append(0)
        writing = [self.link.fileno()] if self.pending else []
        readable, writable, _ = select.select(reading, writing, [])
        if wakeup in readable:
            os.read(wakeup, 4096)
            columns, rows = size()
            self.pending += frames.frame(
                b"R", json.dumps({"columns": columns, "rows": rows}).encode()
            )
        if self.link.fileno() in readable:
            self._receive()
        if writable and self.code is None:
            self._send()
        if 0 in readable:
            data = os.read(0, frames.LIMIT)
            self.reading = bool(data)
            self.pending += frames.frame(b"I", data) if data else frames.frame(b"E")

    def _send(self) -> None:
        try:
            del self.pending[: self.link.send(self.pending)]
        except BlockingIOError:
            return
        except (BrokenPipeError, ConnectionError):
            self.pending.clear()  # what the agent has sent before is still to be read

    def _receive(self) -> None:
        try:
            data = self.link.recv(frames.LIMIT)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            raise errors.unreachable_agent("the connection was closed")
        for kind, payload in self.reader.feed(data):
            if kind == b"O":
                errors.write_all(1, payload)
            elif kind == b"X":
                errors.write_all(2, payload)
            elif kind == b"F":
                raise errors.other(payload.decode())
            elif kind == b"C":
                self.code = int(payload) & 0xFF
