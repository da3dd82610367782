"""Processes of one command end together and tidy up, however the command ends.

A command that is told to stop (SIGTERM) unwinds like one that was interrupted, so that what it started is stopped and
what it put aside is removed. A child process does the same when its parent is gone, even if the parent was killed.
"""

import multiprocessing
import os
import signal
import sys
import threading
from multiprocessing.connection import wait
from types import FrameType

TERMINATED = 128 + signal.SIGTERM


def unwind_on_terminate() -> None:
    """Make SIGTERM raise `SystemExit`, so that every `finally` and every context is left properly."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _exit)


def end_with_parent() -> None:
    """To be called first thing in a child process."""
    unwind_on_terminate()
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_watch, args=(parent.sentinel,), daemon=True).start()


def _exit(_signal: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once: unwinding must not be interrupted
    sys.exit(TERMINATED)


def _watch(sentinel: int) -> None:
    wait([sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
