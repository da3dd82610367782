"""Knobs that make the stand-in fail, and the journal of what was asked of it.

A knob is a file in `TART_HOME/knobs`, read each time it matters, so that it can be changed while something runs; or
the variable `TART_STANDIN_<NAME>` with `_` for `-`. The file wins. A knob with `@<vm>` behind its name is for one VM
and wins over the one for all. docs/testing.md lists them.

The journal, `TART_HOME/journal`, has one line of JSON for each invocation: its number, the pid and the arguments; never
the environment, which holds credentials.
"""

import fcntl
import json
import os
import select
import signal
import time

from tests.standins.tart import errors


def pause(seconds: float) -> None:
    """Wait for real: this is a program of its own, whose delays are real ones."""
    select.select([], [], [], max(0.0, seconds))


def now() -> float:
    """The time of day."""
    return time.time()


def monotonic() -> float:
    """A clock that is never set."""
    return time.monotonic()


class Knobs:
    """The knobs of one TART_HOME."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.folder = os.path.join(root, "knobs")

    def text(self, name: str, vm: str = "") -> str | None:
        """A knob's value, or None if it is not set."""
        for each in (f"{name}@{vm.replace('/', '%2F')}", name) if vm else (name,):
            try:
                with open(os.path.join(self.folder, each), encoding="utf-8") as file:
                    return file.read().strip()
            except FileNotFoundError:
                pass
        return os.environ.get(f"TART_STANDIN_{name.replace('-', '_').upper()}")

    def on(self, name: str, vm: str = "") -> bool:
        """Whether a knob is set to anything but 0."""
        return self.text(name, vm) not in {None, "0"}

    def number(self, name: str, default: float, vm: str = "") -> float:
        """A knob's value as a number."""
        return float(self.text(name, vm) or default)

    def take(self, name: str, vm: str = "") -> str | None:
        """A knob's value; one with `times=N` in its first word acts N times, over all processes."""
        text = self.text(name, vm)
        if text is None or not text.startswith("times="):
            return text
        path = os.path.join(self.folder, f"{name}@{vm}" if vm else name)
        if not os.path.exists(path):
            path = os.path.join(self.folder, name)
        with open(path, "r+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            first, _, rest = file.read().strip().partition(" ")
            left = int(first.removeprefix("times="))
            if left <= 0:
                return None
            file.seek(0)
            file.write(f"times={left - 1} {rest}")
            file.truncate()
        return rest

    # ------------------------------------------------------------------------ before a command

    def before(self, command: str, vm: str = "") -> None:
        """What the knobs do to each command before it does anything."""
        delay = self.take(f"delay-{command}", vm)
        if delay:
            pause(float(delay))
        hang = self.take(f"hang-{command}", vm)
        if hang not in {None, "0"}:
            self._hang(command, vm, hang or "")
        self.fail(command, vm)

    def fail(self, command: str, vm: str = "") -> None:
        """End with a made-up failure: an exit code, then the text."""
        failure = self.take(f"fail-{command}", vm)
        if failure:
            code, _, text = failure.partition(" ")
            raise errors.Failure(text, int(code))

    def _hang(self, command: str, vm: str, how: str) -> None:
        """Stand still with a child that holds the same pipes, until the knob or TART_HOME is gone.

        `own-session` puts the child where a signal to the process group does not reach it; `ignore-term` makes both
        ignore SIGINT and SIGTERM.
        """
        signal.signal(signal.SIGTERM, signal.SIG_IGN if "ignore-term" in how else signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if os.fork() == 0:
            if "own-session" in how:
                os.setsid()
            with open(os.path.join(self.root, f"hanging-{command}"), "a", encoding="ascii") as file:
                file.write(f"{os.getpid()}\n")
            self._stand_still(command, vm)
            os._exit(0)
        self._stand_still(command, vm)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _stand_still(self, command: str, vm: str) -> None:
        """Every instance stands until the knob's file is gone, also one that was counted down to 0."""
        names = [f"hang-{command}", f"hang-{command}@{vm}"]
        environment = f"TART_STANDIN_HANG_{command.upper()}" in os.environ
        while os.path.isdir(self.root) and (
            environment or any(os.path.exists(os.path.join(self.folder, name)) for name in names)
        ):
            pause(0.05)

    # -------------------------------------------------------------------------------- journal

    def record(self, argv: list[str]) -> None:
        """Append an invocation to the journal."""
        path = os.path.join(self.root, "journal")
        with open(path, "a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            number = sum(1 for _ in file) + 1
            line = {"number": number, "pid": os.getpid(), "at": now(), "argv": argv}
            file.write(json.dumps(line) + "\n")
