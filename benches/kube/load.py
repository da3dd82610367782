"""Generates load for a Kubernetes API: creates Pods as fast as possible while watchers receive the events.

    python -m benches.kube.load URL CA TOKEN PODS WATCHERS CREATORS         prints one line of JSON

It uses raw HTTP, so that the server is measured and not this process.
"""

import asyncio
import re
import ssl
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from benches.kube.pods import MARK, NAMESPACE, NODE, pod

_MARK = re.compile(rb'"%s":"(\d{6})"' % re.escape(MARK).encode())
_VERSION = re.compile(rb'"resourceVersion":"(\d+)"')
_OVERLAP = (
    len(MARK) + 40
)  # bytes kept of the previous read, because a read may end inside a mark or a version
_END = b"\r\n0\r\n\r\n"  # the last chunk: the watch has ended and the connection can be reused
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


class Measured(msgspec.Struct, frozen=True):
    creates_per_second: float
    delay_p50: float  # seconds from the response to a creation until its event
    delay_p99: float
    since_sent_p99: float  # seconds from the request of a creation until its event
    events: int
    bytes_per_event: float
    resumed: int  # watches that the server ended because they fell behind, and that were resumed
    lost: int  # watches that could not be resumed because their events were gone


class Target:
    def __init__(self, url: str, ca: str, token: str) -> None:
        split = urlsplit(url)
        assert split.hostname and split.port
        self.host, self.port = split.hostname, split.port
        self.tls = ssl.create_default_context(cadata=Path(ca).read_text())
        self.token = token

    def head(self, method: str, path: str, body: bytes = b"") -> bytes:
        lines = [
            f"{method} {path} HTTP/1.1",
            f"host: {self.host}:{self.port}",
            f"authorization: Bearer {self.token}",
            "accept: application/json",
            "content-type: application/json",
            f"content-length: {len(body)}",
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


class Connection:
    """One HTTP connection; sends a request and waits for the response."""

    def __init__(self, target: Target) -> None:
        self._target = target

    async def open(self) -> "Connection":
        target = self._target
        self._reader, self._writer = await asyncio.open_connection(
            target.host, target.port, ssl=target.tls
        )
        return self

    async def request(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        self._writer.write(self._target.head(method, path, body))
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        status = int(head[9:12])
        if b"transfer-encoding: chunked" in head:
            return status, await self._chunks()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        return status, await self._reader.readexactly(length)

    async def _chunks(self) -> bytes:
        parts = []
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            parts.append(await self._reader.readexactly(size))
            await self._reader.readexactly(2)
        await self._reader.readexactly(2)
        return b"".join(parts)


class Watching(asyncio.Protocol):
    """One watch; records when each Pod's first event arrived. A watch that the server ends is resumed."""

    def __init__(self, target: Target, version: str, wanted: int) -> None:
        self._target = target
        # the last two versions, because only a part of the last event may have arrived
        self._versions = [version, version]
        self._wanted = wanted
        self._tail = b""
        self._fresh = True
        self.seen: dict[int, float] = {}
        self.size = 0
        self.resumed = 0
        self.lost = False
        self.complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._opening: asyncio.Task[None] | None = None

    async def open(self) -> None:
        target = self._target
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self, target.host, target.port, ssl=target.tls)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport, self._fresh, self._tail = transport, True, b""
        path = f"{_PODS}?watch=true&resourceVersion={self._versions[0]}"
        transport.write(self._target.head("GET", path))

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        if self._fresh:
            assert data.startswith(b"HTTP/1.1 200"), data[:200]
            self._fresh = False
        self.size += len(data)
        text = self._tail + data
        self._tail = data[-_OVERLAP:]
        for number in _MARK.findall(text):
            self.seen.setdefault(int(number), now)
        self._versions = [*self._versions, *map(bytes.decode, _VERSION.findall(text))][-2:]
        self.lost = self.lost or b'"type":"ERROR"' in text
        if (self.lost or len(self.seen) == self._wanted) and not self.complete.done():
            self.complete.set_result(None)
        if text.endswith(_END):
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.complete.done():
            self.resumed += 1
            self._opening = asyncio.get_running_loop().create_task(self.open())


def _lease() -> dict[str, Any]:
    """Build a Lease that keeps the node alive during the bench."""
    later = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(time.time() + 3600))
    spec = {"holderIdentity": NODE, "leaseDurationSeconds": 40, "renewTime": later}
    return {"metadata": {"name": NODE, "namespace": "kube-node-lease"}, "spec": spec}


async def _prepare(connection: Connection) -> str:
    for path, kind in (
        ("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}}),
        (f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": "default"}}),
        ("/api/v1/nodes", {"metadata": {"name": NODE}}),
        ("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", _lease()),
    ):
        status, body = await connection.request("POST", path, msgspec.json.encode(kind))
        assert status in (201, 409), body
    _, body = await connection.request("GET", f"{_PODS}?limit=1")
    version: str = msgspec.json.decode(body)["metadata"]["resourceVersion"]
    return version


async def main(target: Target, pods: int, watchers: int, creators: int) -> Measured:
    version = await _prepare(await Connection(target).open())
    watching = [Watching(target, version, pods) for _ in range(watchers)]
    for each in watching:
        await each.open()
    connections = [await Connection(target).open() for _ in range(creators)]
    bodies = [msgspec.json.encode(pod(number)) for number in range(pods)]
    numbers = iter(range(pods))
    sent: dict[int, float] = {}
    answered: dict[int, float] = {}

    async def create(connection: Connection) -> None:
        for number in numbers:
            sent[number] = time.perf_counter()
            status, body = await connection.request("POST", _PODS, bodies[number])
            answered[number] = time.perf_counter()
            assert status == 201, body

    began = time.perf_counter()
    await asyncio.gather(*(create(connection) for connection in connections))
    took = time.perf_counter() - began
    await asyncio.wait_for(asyncio.gather(*(each.complete for each in watching)), 120)
    delays = sorted(
        max(0.0, at - answered[number]) for each in watching for number, at in each.seen.items()
    )
    since = sorted(at - sent[number] for each in watching for number, at in each.seen.items())
    return Measured(
        creates_per_second=pods / took,
        delay_p50=delays[len(delays) // 2],
        delay_p99=delays[len(delays) * 99 // 100],
        since_sent_p99=since[len(since) * 99 // 100],
        events=len(delays),
        bytes_per_event=sum(each.size for each in watching) / len(delays),
        resumed=sum(each.resumed for each in watching),
        lost=sum(each.lost for each in watching),
    )


if __name__ == "__main__":
    url, ca, token, *numbers = sys.argv[1:]
    found = asyncio.run(main(Target(url, ca, token), *(int(each) for each in numbers)))
    print(msgspec.json.encode(found).decode())
