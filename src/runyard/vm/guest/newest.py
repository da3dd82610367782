"""Keeps the newest output of a runner in a file of bounded size.

    python -I -S newest.py listen PIPE FILE KEPT    start, and print the listener's process id
    python -I -S newest.py end PID FILE             let it read what is in the pipe, and wait for its end

A runner may print for days, and its output must not fill the disk. The file has at most sixteen times KEPT bytes;
when that is used up it starts again with the newest KEPT. On TERM the listener reads what is in the pipe at that
moment and then ends: it does not wait for the end of the pipe, which a daemon of the job may hold open for ever.

From the moment its process id is printed, TERM is handled; a shell's own background process would lose a signal that
arrives before it has started. The listener holds the file's lock until it ends, so that its end can be waited for.
"""

import contextlib
import fcntl
import os
import select
import signal
import sys

_GROWTH = 16


class Newest:
    """The file, and the newest bytes, with which it starts again."""

    def __init__(self, path: str, kept: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._kept = kept
        self._tail = b""
        self._size = 0

    def write(self, data: bytes) -> None:
        """Appends the data; disk errors are ignored, because a runner must not fail for its log."""
        self._tail = (self._tail + data)[-self._kept :]
        with contextlib.suppress(OSError):
            if self._size + len(data) > _GROWTH * self._kept:
                os.ftruncate(self._file, 0)
                data, self._size = self._tail, 0
            self._size += os.write(self._file, data)


def listen(pipe: str, path: str, kept: int) -> None:
    """Starts a process that reads the pipe."""
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGTERM, lambda *_: None)
    newest = Newest(path, kept)
    # Opened for reading and writing: so there is no end of file when the first of many writers closes it.
    handle = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    listener = os.fork()
    if listener:
        os.write(1, b"%d\n" % listener)
        return
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)  # the caller reads our output until its end
    _read(handle, wake, newest)


def _read(handle: int, wake: int, newest: Newest) -> None:
    ending = False
    while True:
        if not ending:
            ending = wake in select.select([handle, wake], [], [])[0]
        try:
            newest.write(os.read(handle, 65536))
        except BlockingIOError:
            if ending:
                return


def end(listener: int, path: str) -> None:
    """Sends TERM and returns when the listener has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(listener, signal.SIGTERM)
    fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX)


if __name__ == "__main__":
    if sys.argv[1] == "listen":
        listen(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        end(int(sys.argv[2]), sys.argv[3])
