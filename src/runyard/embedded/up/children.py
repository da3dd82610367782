"""Starts one child process with its configuration, waits until it is ready, ends it with everything that it started.

Each child has its own session, so Ctrl-C in a terminal reaches only the supervisor, which ends its children in the
right order; and its whole process group can be killed at once.
"""

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

import msgspec

import runyard
from runyard.embedded.up.boot import Boot
from runyard.embedded.up.layout import Layout

_READY = b"ready\n"
_LOG_LIMIT = 16 * 1024 * 1024
_TAIL_BYTES = 65536
_TAIL_LINES = 12
# What a child inherits of our environment; nothing else.
_ENVIRONMENT = (
    *("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ", "USER", "LOGNAME"),
    *("RUNYARD_LOG", "RUNYARD_ISOLATION", "SSL_CERT_FILE", "SSL_CERT_DIR"),
)
# Where tart keeps VMs, and its credentials for registries: for the agents that use it.
_OF_TART = "TART_"
_PATHS = ("SSL_CERT_FILE", "TART_HOME")  # a child has another working directory


class Running:
    """A child process, with pipes for its input and output.

    It has ended when its process has ended, not its pipes: processes that it started may hold those open.
    """

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._group_killed = False  # then its id may belong to another process
        self._loop = asyncio.get_running_loop()
        self._first_output: asyncio.Future[bytes] = self._loop.create_future()
        self._ended: asyncio.Future[int] = self._loop.create_future()
        assert process.stdin is not None and process.stdout is not None
        self._input, self._output = process.stdin, process.stdout
        self._loop.add_reader(self._output.fileno(), self._read_ready)
        threading.Thread(target=self._await_end, name=f"child {self.pid}", daemon=True).start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """Its exit code, once it has ended."""
        return self._ended.result() if self._ended.done() else None

    async def ready(self) -> bool:
        """Waits until it is ready; False if it ended before that."""
        await asyncio.wait((self._first_output, self._ended), return_when=asyncio.FIRST_COMPLETED)
        return self._first_output.done() and self._first_output.result() == _READY

    async def wait(self) -> int:
        """Waits for its end; returns the exit code."""
        return await asyncio.shield(self._ended)

    def terminate(self) -> None:
        """Sends SIGTERM."""
        if self.code is None:
            self._signal(signal.SIGTERM)

    def end(self) -> None:
        """Kills its whole group, also what an ended process left behind there."""
        if not self._group_killed:
            self._group_killed = self.code is not None
            self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _await_end(self) -> None:
        code = self._process.wait()
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._set_ended, code)

    def _read_ready(self) -> None:
        """Reads `ready`, or the end of its output."""
        self._loop.remove_reader(self._output.fileno())
        self._first_output.set_result(os.read(self._output.fileno(), len(_READY)))

    def _set_ended(self, code: int) -> None:
        if not self._first_output.done():
            self._loop.remove_reader(self._output.fileno())
            if select.select([self._output], [], [], 0)[
                0
            ]:  # it may have printed `ready` just before
                self._read_ready()
        self._output.close()
        with contextlib.suppress(OSError):
            self._input.close()
        self._ended.set_result(code)


async def start(boot: Boot, lock: int) -> Running:
    """Starts the process of a component; `lock` is the descriptor of the data directory's lock, which it inherits."""
    layout = boot.layout
    fds = tuple(fd for fd in (*(fd for _, fd in boot.sockets), lock) if fd >= 0)
    log = _open_log(layout, boot.name)
    try:
        process = subprocess.Popen(  # noqa: ASYNC220 our own program; starting one takes a moment only
            # The last argument is for readers of a process list.
            [sys.executable, "-m", "runyard.embedded.up.child", boot.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            bufsize=0,
            pass_fds=fds,
            start_new_session=True,
            env=_environment(boot),
            cwd=str(layout.root),
        )
    finally:
        os.close(log)
    assert process.stdin is not None
    with contextlib.suppress(OSError):  # it exited at once; `wait` reports that
        process.stdin.write(msgspec.json.encode(boot) + b"\n")  # less than a pipe holds
    return Running(process)


def _environment(boot: Boot) -> dict[str, str]:
    uses_tart = boot.role == "agent" and boot.driver == "tart"
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name in _ENVIRONMENT or (uses_tart and name.startswith(_OF_TART))
    }
    paths = [name for name in _PATHS if inherited.get(name)]
    inherited |= {name: str(Path(inherited[name]).absolute()) for name in paths}
    # The child imports the same code as we do.
    return {**inherited, "PYTHONPATH": str(Path(runyard.__path__[0]).parent)}


def log_tail(layout: Layout, name: str) -> str:
    """The end of a process's log."""
    try:
        with layout.log(name).open("rb") as file:
            start = max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES)
            file.seek(start)
            lines = file.read().decode(errors="replace").splitlines()[1 if start else 0 :]
    except OSError:
        return ""
    bad = [line for line in lines if not _is_routine(line)]
    return "\n".join(_readable(line) for line in (bad or lines)[-_TAIL_LINES:])


def _is_routine(line: str) -> bool:
    return '"level":"info"' in line or '"level":"debug"' in line


def _readable(line: str) -> str:
    """The message and the cause of a log line, without the other fields."""
    try:
        fields = msgspec.json.decode(line, type=dict[str, object])
    except msgspec.MsgspecError:
        return line
    text = str(fields.get("error") or fields.get("exception") or "")
    why = [
        component
        for component in text.splitlines()
        if component and not component[0].isspace() and component[0] not in "+|"
    ]
    return f"{fields.get('event', '')}: {why[-1]}" if why else str(fields.get("event", line))


def _open_log(layout: Layout, name: str) -> int:
    path = layout.log(name)
    if path.exists() and path.stat().st_size > _LOG_LIMIT:
        path.replace(path.with_suffix(".log.1"))
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
