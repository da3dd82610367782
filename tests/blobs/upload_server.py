"""A real server with the routes of signed links and a real directory, and clients that upload to it."""

import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

from tests.blobs.blobstores import directory
from tests.http.steppedloop import Client, connections

from runyard.blobs.contract import Blobs
from runyard.blobs.links import Links
from runyard.blobs.plans.slots import Limits
from runyard.blobs.routes import BlobRoutes
from runyard.clock import RealClock
from runyard.components.results import streamed
from runyard.http.routes import Routes
from runyard.http.server import Timeouts, listen
from runyard.telemetry.log import get_logger
from runyard.telemetry.meter import Meter
from runyard.xcresult.object_keys import owner_of, upload_key

LARGE = 50_000_000
KEY = b"k" * 32


class UploadServer:
    """The server, and what tests ask of it."""

    def __init__(
        self, connect: Callable[[], Coroutine[Any, Any, Client]], meter: Meter, blobs: Blobs
    ) -> None:
        self._connect = connect
        self._links = Links((KEY,), clock=RealClock())
        self._made = 0
        self.meter = meter
        self.blobs = blobs

    async def begin(self, account: str, size: int = LARGE, *, project: str = "app") -> Client:
        """Begin an upload of that many bytes; `100 Continue` shows that the server reads it."""
        self._made += 1
        key = upload_key(account, project, run_id=f"r{self._made}", shard=0, nonce="n")
        link = self._links.put(key, lasts=1e6, limit=LARGE)
        client = await self._connect()
        head = f"PUT {link} HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: {size}\r\n\r\n"
        client.send(head.encode())
        return client

    async def many(self, count: int, account: Callable[[int], str]) -> list[Client]:
        return [await self.begin(account(number)) for number in range(count)]

    async def get(self, key: str) -> Client:
        client = await self._connect()
        link = self._links.get(key, lasts=1e6)
        client.send(f"GET {link} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        return client


@contextlib.asynccontextmanager
async def upload_server(
    path: Path,
    *,
    limits: Limits | None = None,
    around: Callable[[Blobs], Blobs] = lambda blobs: blobs,
) -> AsyncIterator[UploadServer]:
    blobs, meter = around(directory(path)), Meter()
    made = BlobRoutes(
        blobs,
        links=Links((KEY,), clock=RealClock()),
        clock=RealClock(),
        meter=meter,
        log=get_logger("test"),
        client_of=owner_of,
        limits=limits or Limits(),
    )
    listening = await listen(
        Routes("t", "1", made.routes()).handle,
        streamed=streamed,
        timeouts=Timeouts(linger=0.0, close=0.5),
    )
    try:
        async with connections(listening.port) as connect:
            yield UploadServer(connect, meter, blobs)
    finally:
        await listening.close()
