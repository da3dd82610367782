"""One child process: started with its orders, heard, ended with everything that it started.

Each child has a session of its own, so Ctrl-C in a terminal reaches only the supervisor, which ends its
children in the right order; and its whole group can be ended at once.
"""

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

import msgspec

import runyard
from runyard.embedded.up.boot import Boot
from runyard.embedded.up.layout import Layout

_LOG_LIMIT = 16 * 1024 * 1024
_TAIL_BYTES = 4096
_TAIL_LINES = 12
# What a child inherits of our environment; everything else is none of its business.
_ENVIRONMENT = (
    *("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ", "USER", "LOGNAME"),
    *("RUNYARD_LOG", "RUNYARD_ISOLATION"),
)


class Running:
    """A child that was started."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._swept = False  # ended, and its group with it: the number may be somebody else's by now

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """Its exit code, once it has ended."""
        return self._process.returncode

    async def ready(self) -> bool:
        """Wait until it serves; False if it ended first."""
        assert self._process.stdout is not None
        return await self._process.stdout.readline() == b"ready\n"

    async def wait(self) -> int:
        """Wait for its end."""
        return await self._process.wait()

    def ask_to_end(self) -> None:
        """Orderly."""
        if self.code is None:
            self._signal(signal.SIGTERM)

    def end(self) -> None:
        """At once, with everything in its group; also what a process that has ended left behind there."""
        if not self._swept:
            self._swept = self.code is not None
            self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


async def start(boot: Boot, keep: int) -> Running:
    """Start the process of a part; `keep` is the data directory's lock, which it shares."""
    layout = boot.layout
    fds = (*(descriptor for _, descriptor in boot.sockets), keep)
    log = _open_log(layout, boot.name)
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "runyard.embedded.up.child",
            boot.name,  # for people who look at a list of processes
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            pass_fds=fds,
            start_new_session=True,
            env=_environment(),
            cwd=str(layout.root),
        )
    finally:
        os.close(log)
    assert process.stdin is not None
    with contextlib.suppress(ConnectionError):  # it died at once; whoever waits for it will see
        process.stdin.write(msgspec.json.encode(boot) + b"\n")
        await process.stdin.drain()
    return Running(process)


def _environment() -> dict[str, str]:
    inherited = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    # The child runs the same code as we do, wherever that was found.
    return {**inherited, "PYTHONPATH": str(Path(runyard.__path__[0]).parent)}


def last_words(layout: Layout, name: str) -> str:
    """The end of a process's log."""
    try:
        with layout.log(name).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(lines[-_TAIL_LINES:])


def _open_log(layout: Layout, name: str) -> int:
    path = layout.log(name)
    if path.exists() and path.stat().st_size > _LOG_LIMIT:
        path.replace(path.with_suffix(".log.1"))
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
