"""The interface between a shim and what it runs, and its plain form: one command in a session of its own.

A driver whose VM is one program (`tart run NAME …`) uses `Guest` as it is. A driver with more to do derives from it;
`vm/process/shim.py` adds a sandbox, a network, a control group and a limit of disk space.

    order.json   argv       the program and its arguments; nothing secret: every user of the host can read them
                 env        its environment; the mark is added
                 inherit    whether it also gets the shim's environment, which its starter chose; left out: no
                 cwd        its working directory; left out: /
                 mark       the VM's directory: by it a killed shim's processes are found again
                 users      ids of users that belong to this VM alone; left out: none
                 status     the directory of the guest's own report; left out: it makes none
                 shut_down  the signal that asks the program to end; left out: the driver asks the guest itself
                 end        the signal that comes before the kill, and the seconds that it gets; left out: none

Imported by the shim, so it imports nothing but the standard library.
"""

import os
import signal
import subprocess
from collections.abc import Callable
from typing import Any, Protocol

from runyard.vm.shim.exits import ended_how, read_report
from runyard.vm.shim.processes import Process, kill, mark_variables, named_signal


class Host(Protocol):
    """What a shim offers to its guest."""

    def listen(self, handle: int, act: Callable[[bytes], None]) -> None:
        """Calls `act` with what arrives at this open file, with nothing at its end; it is then closed."""
        ...

    def forget(self, handle: int) -> None:
        """Listens to this open file no longer; the caller closes it."""
        ...

    def end(self, why: str, code: int | None = None) -> None:
        """Ends the VM, with this exit code if there is one; the first reason counts."""
        ...


class Guest:
    """A command. Its process may start others; the shim ends them all."""

    def __init__(self, state: str, order: dict[str, Any]) -> None:
        self.state = state
        self.order = order
        self.mark: str = order.get("mark") or os.path.dirname(state)  # noqa: PTH120 pathlib is slow to import
        self.users: list[int] = order.get("users") or []
        self.pid = 0  # of the command; its end is the VM's end
        self.refused = (
            False  # the command has refused to run the guest: what was staged for it is kept
        )

    # ── while it runs ───────────────────────────────────────────────────────────────────────────

    def prepare(self) -> None:
        """Makes what takes disk space, before it counts as started; raises OSError."""

    def start(self, host: Host, output: int) -> None:
        """Starts it, with its output to this pipe; raises OSError or SubprocessError."""
        self.pid = self.spawn(self.order["argv"], stdout=output, stderr=output)

    def spawn(self, argv: list[str], *, stdin: int = subprocess.DEVNULL, **options: Any) -> int:
        """Starts a program with the guest's environment; the shim reaps it."""
        child = subprocess.Popen(
            argv,
            stdin=stdin,
            env={**self.environment(), **mark_variables(self.mark)},
            cwd=self.order.get("cwd") or "/",
            start_new_session=True,
            **options,
        )
        child.returncode = 0  # or Popen warns about a process that was not waited for
        return child.pid

    def environment(self) -> dict[str, str]:
        """The variables of its programs, without the mark."""
        inherited = os.environ if self.order.get("inherit") else {}
        return {**inherited, **self.order["env"]}

    def visible(self, data: bytes) -> bytes:
        """What of its output may be kept, and what was held back before; empty bytes: it is the end of the output."""
        return data

    def work(self, host: Host, now: float) -> float | None:
        """Does what is due; returns the seconds until something is, None if nothing ever is."""
        return None

    def child_ended(self, host: Host, pid: int, status: int) -> None:
        """Another child of the shim than the command has ended, with this code or, negative, by this signal."""

    def shut_down(self) -> None:
        """Asks it to end."""
        if self.pid and self.order.get("shut_down"):
            os.kill(self.pid, named_signal(self.order["shut_down"]))

    # ── its end ─────────────────────────────────────────────────────────────────────────────────

    def last_calls(self) -> list[tuple[Callable[[], None], float]]:
        """What is tried before the command is killed, each with the seconds that it gets."""
        word, seconds = self.order.get("end") or ("", 0.0)
        return [(lambda: os.kill(self.pid, named_signal(word)), seconds)] if word else []

    def power_off(self) -> None:
        """Begins to kill it; the shim kills what remains."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)

    def kill(self, found: list[Process]) -> None:
        """Kills these processes, and whatever else belongs to it, once."""
        kill(found, self.users)

    def others_left(self) -> bool:
        """Whether it has processes that are neither children of the shim nor carry the mark."""
        return False

    def was_refused(self, status: int, seconds: float, output: bytes | None) -> bool:
        """Whether the command ended so without having run the guest; `output`: all of it, None if it is too much."""
        return False

    def is_gone(self) -> bool:
        """Whether a guest whose shim was killed runs nowhere; asked when no process of it is found any more."""
        return True

    def cleared(self) -> None:
        """Its last process has ended."""

    def report(self) -> int | None:
        """The exit code that the guest itself has reported."""
        status = self.order.get("status") or ""
        return read_report(status) if status else None

    def ended(self, status: int | None) -> str:
        """Why it has ended, if it ended by itself and has not reported a code; empty: as it should."""
        return ended_how(None, status)

    def remark(self, code: int | None) -> str:
        """What is added to the reason of its end."""
        return ""

    def seal(self) -> None:
        """Takes what belongs to it back, before its exit is recorded; raises OSError."""


Maker = Callable[[str, dict[str, Any]], Guest]
