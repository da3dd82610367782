"""A child process that reads a stranger's file, and what it may not do to its host.

It may take so much memory and processor time and no more, leaves no core file (a dump of each crash would fill a disk),
and ends with its worker: on Linux the kernel sees to that at once, elsewhere a thread looks every second.
"""

import contextlib
import ctypes
import os
import resource
import signal
import sys
import threading

_PR_SET_PDEATHSIG = 1
_LOOK = 1.0
_LAST = 5  # seconds of processor time between the signal and the end


def confine(*, memory: int, cpu: int, parent: int) -> None:
    """Bind this process; it ends at once if its worker is gone already."""
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_CPU, cpu, kill=cpu + _LAST)
    if (
        sys.platform == "linux"
    ):  # elsewhere the system's own libraries take more than any sensible limit
        _limit(resource.RLIMIT_AS, memory)
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(signal.SIGKILL)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _limit(what: int, most: int, *, kill: int | None = None) -> None:
    """Lower, never raise. Past `most` it is told so, where the system has a signal for that, past `kill` it ends."""
    _, hard = resource.getrlimit(what)
    last = most if kill is None else kill
    if hard != resource.RLIM_INFINITY:
        most, last = min(most, hard), min(last, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(what, (most, last))


def _watch(parent: int) -> None:
    never = threading.Event()
    while os.getppid() == parent:
        never.wait(_LOOK)
    os._exit(signal.SIGKILL)
