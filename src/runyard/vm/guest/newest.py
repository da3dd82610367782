"""Keep the newest of what a runner prints.

    python -I -S newest.py listen PIPE FILE KEPT    begin, and print the listener's process id
    python -I -S newest.py end PID FILE             let it take what is there, and wait until it has

A runner may print for days, and nobody should find a full disk for it. The file has at most sixteen times KEPT bytes;
when that is used up it begins again with the newest KEPT. Asked to end, the listener takes what is in the pipe at that
moment and waits for nobody: a daemon that the job has left behind holds the pipe open for ever.

Once its process id is printed it can be asked to end, however soon: it hears of it already. A shell's own background
process loses a signal that comes before it has begun. It holds the file's lock as long as it lives, so that its end can
be waited for.
"""

import contextlib
import fcntl
import os
import select
import signal
import sys

_ROOM = 16


class Newest:
    """The file, and what it would begin again with."""

    def __init__(self, path: str, kept: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._kept = kept
        self._tail = b""
        self._size = 0

    def write(self, data: bytes) -> None:
        """Keep it if the disk lets us: a runner must not wait, nor fail, for its log."""
        self._tail = (self._tail + data)[-self._kept :]
        with contextlib.suppress(OSError):
            if self._size + len(data) > _ROOM * self._kept:
                os.ftruncate(self._file, 0)
                data, self._size = self._tail, 0
            self._size += os.write(self._file, data)


def listen(pipe: str, path: str, kept: int) -> None:
    """Begin to read, and leave that to a process of its own."""
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGTERM, lambda *_: None)
    newest = Newest(path, kept)
    # Opened for both: so it is at its end only when we say so, not when the first of many writers has closed it.
    handle = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    listener = os.fork()
    if listener:
        os.write(1, b"%d\n" % listener)
        return
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)  # whoever reads our number waits for its end
    _read(handle, wake, newest)


def _read(handle: int, wake: int, newest: Newest) -> None:
    asked = False
    while True:
        if not asked:
            asked = wake in select.select([handle, wake], [], [])[0]
        try:
            newest.write(os.read(handle, 65536))
        except BlockingIOError:
            if asked:
                return


def end(listener: int, path: str) -> None:
    """Ask it to end, and return when it has."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(listener, signal.SIGTERM)
    fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX)


if __name__ == "__main__":
    if sys.argv[1] == "listen":
        listen(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        end(int(sys.argv[2]), sys.argv[3])
