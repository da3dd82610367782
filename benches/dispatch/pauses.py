"""Finds the times in which the machine itself stood still: a virtual machine whose host does not run its cores.

    python -m benches.dispatch.pauses CORE      writes one line of JSON for each pause; ends when its input closes

One process per core sleeps for 2 ms again and again, with a real-time priority, so that no other process on the machine
can delay it. If it wakes up late, the core was not running. Its times are comparable with those of other processes.
Without the permission for a real-time priority it cannot tell a pause from a busy machine, and exits.
"""

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import msgspec
from benches.dispatch.processes import ROOT

_SLEEP = 0.002
_LATE = 0.005


class Pause(msgspec.Struct, frozen=True, array_like=True):
    """A time in which a core did not run, on the clock of `time.perf_counter`."""

    begin: float
    end: float

    def delays(self, begin: float, end: float) -> bool:
        """Whether work between these times was delayed: it takes as long again to catch up with what had waited."""
        return begin < self.end + (self.end - self.begin) and end > self.begin


class Pauses:
    """The pauses of all cores so far."""

    def __init__(self, watchers: Sequence["subprocess.Popen[bytes]"]) -> None:
        self._watchers = watchers
        self._found: list[Pause] = []

    @property
    def known(self) -> bool:
        """Whether pauses can be found on this machine."""
        return bool(self._watchers) and all(each.poll() is None for each in self._watchers)

    def undelayed(self, spans: Sequence[tuple[float, float]]) -> list[float]:
        """How long each of these took, without those that a pause delayed."""
        for watcher in self._watchers:
            assert watcher.stdout
            while select.select([watcher.stdout], [], [], 0)[0]:
                line = watcher.stdout.readline()
                if not line:
                    break
                self._found.append(msgspec.json.decode(line, type=Pause))
        return [
            end - begin
            for begin, end in spans
            if not any(pause.delays(begin, end) for pause in self._found)
        ]


@contextmanager
def watched() -> Iterator[Pauses]:
    """Watch all cores that this process may use."""
    with ExitStack() as stack:
        watchers = []
        for core in sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else ():
            watcher = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "benches.dispatch.pauses", str(core)],
                    cwd=ROOT,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    bufsize=0,
                )
            )
            assert watcher.stdin
            stack.callback(watcher.stdin.close)
            watchers.append(watcher)
        yield Pauses(watchers)


def watch(core: int) -> None:
    """Write the pauses of one core until standard input closes."""
    os.sched_setaffinity(0, {core})
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        sys.exit("pauses of the machine are not measured: a real-time priority is not permitted")
    before = time.perf_counter()
    while not select.select([sys.stdin], [], [], _SLEEP)[0]:
        now = time.perf_counter()
        if now - before > _SLEEP + _LATE:
            print(msgspec.json.encode(Pause(before, now)).decode(), flush=True)
        before = now


if __name__ == "__main__":
    watch(int(sys.argv[1]))
