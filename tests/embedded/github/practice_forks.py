"""A practice GitHub that can be killed: a parent imports everything once and forks a process for each start.

Started by the tests as `python practice_forks.py FOLDER RECEIVER`. The listening socket is bound once, so
the port stays; it is the first line of the output. A line on standard input waits for the end of the last process, if
there was one, and starts the next; its process id is the answer. The end of the input ends all.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from pathlib import Path

from tests.embedded.github import practice_process


def live(sock: socket.socket, folder: Path, receiver: str) -> None:
    """Serves until killed; then ends the process."""
    try:
        asyncio.run(practice_process.main(sock.fileno(), folder, receiver))
    finally:
        os._exit(1)


def say(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def main() -> None:
    sock = socket.create_server(("127.0.0.1", 0), backlog=128)
    say(sock.getsockname()[1])
    child = 0
    for _ in sys.stdin:
        if child:
            os.waitpid(child, 0)
        child = os.fork()
        if not child:
            live(sock, Path(sys.argv[1]), sys.argv[2])
        say(child)
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
