"""Keep the newest of what a runner prints: `python -I -S newest.py PIPE FILE KEPT`, until TERM.

A runner may print for days, and nobody should find a full disk for it. The file has at most sixteen times KEPT bytes;
when that is used up it begins again with the newest KEPT. Asked to end, it takes what is in the pipe at that moment and
waits for nobody: a daemon that the job has left behind holds the pipe open for ever.
"""

import contextlib
import os
import select
import signal
import sys

_ROOM = 16


class Newest:
    """The file, and what it would begin again with."""

    def __init__(self, path: str, kept: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
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


def main(pipe: str, path: str, kept: int) -> None:
    """Read until TERM, then what is there, then end."""
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGTERM, lambda *_: None)
    newest = Newest(path, kept)
    # Opened for both: so it is at its end only when we say so, not when the first of many writers has closed it.
    handle = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    asked = False
    while True:
        if not asked:
            asked = wake in select.select([handle, wake], [], [])[0]
        try:
            newest.write(os.read(handle, 65536))
        except BlockingIOError:
            if asked:
                return


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
