"""Limits the child process that reads an untrusted file.

Memory and processor time are limited, core dumps are disabled (one for each crash would fill the disk), and the process
ends with its worker: on Linux the kernel signals it at once, elsewhere a thread checks every second.

The budget of the reading (reader/budget.py) ends a costly bundle before these limits do, and in the same way on every
machine; they hold if the budget is wrong about the cost of something. Memory is limited as writable private memory: the
address space would count what the allocator only reserves.
"""

import contextlib
import ctypes
import os
import resource
import signal
import sys
import threading

_PR_SET_PDEATHSIG = 1
_CHECK_INTERVAL = 1.0
# Half of the largest honest bundle that is known: 50,000 cases in 81 MB take 44 s, so 40 MB take less than 30 s.
CPU_SECONDS, SUFFICES_FOR = 30, 40_000_000  # seconds, and the bytes of an upload that get no more
UPLOADED_BYTES = 1_000_000  # of the upload beyond that, for each further second
LIBRARIES = 32 * 1024 * 1024  # resident pages of programs and libraries, which are not writable
_LAST = 5  # seconds of processor time between SIGXCPU and SIGKILL


def apply_limits(*, memory: int, cpu: int, parent: int) -> None:
    """Apply the limits to this process; ends it if its worker is already gone."""
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_CPU, cpu, kill=cpu + _LAST)
    if sys.platform == "linux":  # on macOS the system libraries alone exceed a sensible limit
        _limit(resource.RLIMIT_DATA, max(memory - LIBRARIES, LIBRARIES))
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(signal.SIGKILL)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def cpu_limit(uploaded: int) -> int:
    """Seconds of processor time for an upload of this size."""
    return CPU_SECONDS + max(0, uploaded - SUFFICES_FOR) // UPLOADED_BYTES


def _limit(what: int, most: int, *, kill: int | None = None) -> None:
    """Lower a limit, never raise it. At `most` the process gets a signal where there is one, at `kill` it is killed."""
    _, hard = resource.getrlimit(what)
    last = most if kill is None else kill
    if hard != resource.RLIM_INFINITY:
        most, last = min(most, hard), min(last, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(what, (most, last))


def _watch(parent: int) -> None:
    never = threading.Event()
    while os.getppid() == parent:
        never.wait(_CHECK_INTERVAL)
    os._exit(signal.SIGKILL)
