"""Scripted peers: real sockets on loopback with exactly one fault each."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

from runyard.http.client import HttpTransport
from runyard.http.intake import BUDGET, Admit, Streamed
from runyard.http.messages import Handler, Request, Response, Stream
from runyard.http.server import BODY_LIMIT, Listening, Timeouts, listen

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
GET = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


def post(head: bytes, body: bytes = b"") -> bytes:
    """A request with a body, as it is written."""
    return b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n" + head + b"\r\n\r\n" + body


async def read_request(reader: asyncio.StreamReader) -> bytes:
    """One whole request as it was written; empty if the client had disconnected."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    return head + await reader.readexactly(length)


class Peer:
    """A TCP server that runs a script on each connection and counts connections."""

    def __init__(self, script: Script) -> None:
        self.connections = 0
        self._playing: list[asyncio.Task[None]] = []
        self._script = script

    async def play(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._playing.append(task)
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await self._script(reader, writer)
        with contextlib.suppress(ConnectionError, ssl.SSLError, asyncio.CancelledError):
            writer.close()
            await writer.wait_closed()

    async def end(self) -> None:
        """Cancel the scripts that still run."""
        for task in self._playing:
            task.cancel()
        if self._playing:
            await asyncio.wait(self._playing)


@contextlib.asynccontextmanager
async def scripted(
    script: Script, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[str, Peer]]:
    """The address of a peer that plays `script` on each connection."""
    peer = Peer(script)
    server = await asyncio.start_server(peer.play, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{port}", peer
    finally:
        server.close()
        await peer.end()
        await server.wait_closed()


@contextlib.asynccontextmanager
async def carried(url: str, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[HttpTransport]:
    """A transport that is closed at the end."""
    transport = HttpTransport(url, tls=tls)
    try:
        yield transport
    finally:
        await transport.close()


@contextlib.asynccontextmanager
async def serving(
    handler: Handler,
    *,
    tls: ssl.SSLContext | None = None,
    body_limit: int = BODY_LIMIT,
    bodies: int = BUDGET,
    admit: Admit | None = None,
    streamed: Streamed | None = None,
    timeouts: Timeouts | None = None,
) -> AsyncIterator[Listening]:
    """A server that is closed at the end."""
    listening = await listen(
        handler,
        tls=tls,
        body_limit=body_limit,
        bodies=bodies,
        admit=admit,
        streamed=streamed,
        timeouts=timeouts,
    )
    try:
        yield listening
    finally:
        await listening.close()


async def answer(transport: HttpTransport, request: Request, *, timeout: float = 20.0) -> Response:
    """Send and require a whole answer."""
    got = await transport.send(request, timeout=timeout)
    assert isinstance(got, Response)
    return got


async def stream(transport: HttpTransport, request: Request) -> Stream:
    """Send and require a stream."""
    got = await transport.send(request, timeout=20.0)
    assert isinstance(got, Stream)
    return got


async def raw(url: str, text: bytes) -> bytes:
    """Write bytes to a server and read until it closes."""
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(text)
        with contextlib.suppress(ConnectionError):
            return await reader.read()
        return b""
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


class Echo:
    """Answers `ok` and records the requests."""

    def __init__(self) -> None:
        self.seen: list[Request] = []

    async def __call__(self, request: Request) -> Response:
        self.seen.append(request)
        return Response(status=200, headers=(("content-type", "text/plain"),), body=b"ok")


async def answered(text: bytes, handler: object = None, **options: object) -> bytes:
    """What the server writes when a client writes `text`."""
    async with serving(handler or Echo(), **options) as server:  # type: ignore[arg-type]  # options of serving
        return await raw(server.url, text)
