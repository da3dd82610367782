"""Starts `launcher.py` and controls it.

The launcher does what may only happen in a process without threads (change of user, user namespace) and ends the
server when we are gone. This module is the parent's end of its two pipes.
"""

import json
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from runyard.embedded.postgres.errors import EmbeddedPostgresError

_LAUNCHER = str(Path(__file__).with_name("launcher.py"))
_ENV = {"LC_ALL": "C", "PATH": "/usr/bin:/bin"}


class Identity(msgspec.Struct, frozen=True):
    """The user that the server runs as.

    `direct`: our user. `drop`: the user `uid`. `namespace`: a user namespace where we appear as
    `uid`: files stay ours and every capability is dropped.
    """

    kind: str
    uid: int
    gid: int

    @property
    def owner(self) -> tuple[int, int]:
        """The owner of the server's files, as seen from outside."""
        return (self.uid, self.gid) if self.kind == "drop" else (os.geteuid(), os.getegid())


def command(spec: dict[str, object], identity: Identity) -> list[str]:
    """The command line that starts the launcher with this configuration."""
    whole = {"env": _ENV, **spec, "identity": msgspec.to_builtins(identity)}
    return [sys.executable, "-I", "-S", _LAUNCHER, json.dumps(whole)]


def run(
    argv: Sequence[str], *, identity: Identity, cwd: Path, timeout: float
) -> subprocess.CompletedProcess[str]:
    """Runs one program to its end as the server's user; the caller checks the exit code."""
    spec = {"mode": "run", "argv": list(argv), "cwd": str(cwd), "stop_signal": 9}
    try:
        return subprocess.run(
            command(spec, identity),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EmbeddedPostgresError(f"{argv[0]} did not end within {timeout:g} s") from error


class Launched:
    """A running launcher: waits until its server is ready, stops it."""

    def __init__(self, argv: Sequence[str], *, log: int, keep: int) -> None:
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            pass_fds=(keep,),
            start_new_session=True,  # Ctrl-C in a terminal must reach only us, not the server
            bufsize=0,
        )
        self._buffer = b""

    def wait_ready(self, timeout: float) -> int | None:
        """The server's process id once it accepts connections; None when it ended instead."""
        line = self._line(timeout)
        if line is None:
            raise EmbeddedPostgresError(f"the server was not ready within {timeout:g} s")
        word, _, rest = line.partition(" ")
        return int(rest) if word == "ready" else None

    def order(self, order: bytes) -> None:
        """Sends a stop order without waiting; callable from any thread, and again with another order."""
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):  # it has already ended
            self._process.stdin.write(order)

    def stop(self, order: bytes, *, timeout: float) -> None:
        """Sends the order and waits until server and launcher have exited."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.order(order)
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            self._process.kill()
            self._process.wait()
            raise EmbeddedPostgresError(
                f"the server did not stop within {timeout:g} s and was killed"
            ) from error
        finally:
            self._process.stdin.close()
            self._process.stdout.close()

    @property
    def running(self) -> bool:
        """Whether the launcher, and so the server, runs."""
        return self._process.poll() is None

    def exit_code(self) -> int | None:
        """The server's exit code, negative for a signal, after launcher and server have exited; None if it is lost."""
        word, code = "", ""
        with suppress(OSError, ValueError):  # the output is closed
            while word != "exited":
                word, _, code = (self._line(0) or "exited").partition(" ")
        return int(code) if code else None

    def _line(self, timeout: float) -> str | None:
        """The launcher's next line; None on timeout."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._buffer:
            if not select.select([descriptor], [], [], timeout)[0]:
                return None
            chunk = os.read(descriptor, 4096)
            if not chunk:
                return "exited"
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()
