"""A practice GitHub as a process: `python practice_process.py SOCKET FOLDER RECEIVER`, ended by a signal.

The listening socket is inherited, so that whoever comes after a killed one is found at the same address.
"""

import asyncio
import random
import socket
import sys
from pathlib import Path

from runyard.clock import RealClock
from runyard.embedded.github.carrier import carrier
from runyard.embedded.github.core import GithubCore
from runyard.embedded.github.keep import Keeper
from runyard.embedded.github.settings import PracticeSettings
from runyard.http.client import HttpTransport
from runyard.http.server import listen


async def main(fd: int, folder: Path, receiver: str) -> None:
    """Serve until killed."""
    sock = socket.socket(fileno=fd)
    host, port = sock.getsockname()[:2]
    core = GithubCore(
        clock=RealClock(),
        rng=random.Random(),
        app_id=1,
        public_key=(folder / "public.pem").read_text(),
        webhook_secret="hush",
        deliver=carrier(HttpTransport(receiver)),
        settings=PracticeSettings(public_url=f"http://{host}:{port}"),
        people_token="people",
        keeper=Keeper(folder / "github.db"),
    )
    await listen(core.handle, sock=sock)
    await core.run()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
