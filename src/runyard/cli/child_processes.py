"""Stops the child processes of a command together with it, and lets them clean up.

SIGTERM unwinds a command like an interrupt does, so that it stops its children and removes its temporary files. A child
process does the same when its parent is gone, even if the parent was killed.
"""

import os
import signal
import sys
import threading
from types import FrameType

TERMINATED = 128 + signal.SIGTERM


def unwind_on_terminate() -> None:
    """Make SIGTERM raise `SystemExit`, so that every `finally` and context manager runs."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _exit)


def end_with_parent() -> None:
    """End this child process when its parent ends; call it first in the child."""
    import multiprocessing  # not for commands without children: it is slow to load

    unwind_on_terminate()
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_watch, args=(parent.sentinel,), daemon=True).start()


def _exit(_signal: int, _frame: FrameType | None) -> None:
    signal.signal(
        signal.SIGTERM, signal.SIG_IGN
    )  # a second signal must not interrupt the unwinding
    sys.exit(TERMINATED)


def _watch(sentinel: int) -> None:
    from multiprocessing.connection import wait

    wait([sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
