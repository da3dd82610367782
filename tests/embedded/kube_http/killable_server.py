"""An embedded API that can be killed: a parent imports everything once and forks a server for each start.

Started by the tests as a program. The listening socket is bound once and kept by the parent, as the supervisor
of `runyard up` does, so the port stays. For each line on standard input it reaps the last server and forks the
next, whose process id it prints. It ends with its input.
"""

import asyncio
import contextlib
import os
import random
import signal
import socket
import sys

from runyard.clock import RealClock
from runyard.embedded.kube.core import KubeCore
from runyard.embedded.kube.storage.journal import Journal
from runyard.http.server import listen


async def serve(path: str, sock: socket.socket) -> None:
    core = KubeCore(clock=RealClock(), rng=random.SystemRandom(), journal=Journal(path))
    await listen(core.handle, sock=sock)
    await core.run_controllers()


def run_until_killed(path: str, sock: socket.socket) -> None:
    """Serves until killed; then ends the process."""
    try:
        asyncio.run(serve(path, sock))
    finally:
        os._exit(1)


def main() -> None:
    path = sys.argv[1]
    sock = socket.create_server(("127.0.0.1", 0), backlog=128)
    sys.stdout.write(f"{sock.getsockname()[1]}\n")
    sys.stdout.flush()
    child = 0
    for _ in sys.stdin:
        if child:
            os.waitpid(child, 0)
        child = os.fork()
        if not child:
            run_until_killed(path, sock)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
