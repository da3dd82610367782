"""A practice GitHub as a process: `python practice_process.py SOCKET FOLDER RECEIVER`, ended by a signal.

The listening socket is inherited, so that the next process after a kill has the same address.
"""

import asyncio
import random
import socket
import sys
from pathlib import Path

from runyard.clock import RealClock
from runyard.embedded.github.core import GithubCore, PracticeApp
from runyard.embedded.github.settings import PracticeSettings
from runyard.embedded.github.store import RecordStore
from runyard.embedded.github.webhook_sender import webhook_sender
from runyard.http.client import HttpTransport
from runyard.http.server import listen


async def main(fd: int, folder: Path, receiver: str) -> None:
    """Serve until killed."""
    sock = socket.socket(fileno=fd)
    host, port = sock.getsockname()[:2]
    core = GithubCore(
        clock=RealClock(),
        rng=random.Random(),
        app=PracticeApp(
            app_id=1,
            public_key=(folder / "public.pem").read_text(),
            webhook_secret="hush",
            practice_token="practice",
        ),
        deliver=webhook_sender(HttpTransport(receiver)),
        settings=PracticeSettings(public_url=f"http://{host}:{port}"),
        store=RecordStore(folder / "github.db"),
    )
    await listen(core.handle, sock=sock)
    await core.run()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
