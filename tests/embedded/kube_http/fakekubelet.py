"""A fake kubelet API: it records requests byte for byte and answers like a node.

    GET  /containerLogs/NS/POD/C        the given lines, or endless lines until the client disconnects
    GET  /exec/… or /attach/…           WebSocket, subprotocol v5.channel.k8s.io: handled by `serve`
    any  with another upgrade           101, and every byte is echoed

It parses by hand on purpose: a library would normalize what the tests check.
"""

import asyncio
import base64
import contextlib
import hashlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from runyard.clock import RealClock
from runyard.http.tls import Pair, issue_server, server_context, write_pair

CHANNELS = "v5.channel.k8s.io"
STDIN, STDOUT, STDERR, FAILURE, RESIZE, CLOSED = 0, 1, 2, 3, 4, 255
_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_PING, _PONG, _CLOSE = 9, 10, 8


class Received(msgspec.Struct, frozen=True):
    """One received request."""

    method: str
    target: str
    headers: dict[str, str]
    user: str = ""
    groups: tuple[str, ...] = ()

    @property
    def upgrade(self) -> str:
        return self.headers.get("upgrade", "")


class Channels:
    """The WebSocket of an exec or an attach, as the node sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def next(self) -> tuple[int, bytes]:
        """The next message: its channel and its data; `(-1, b"")` when the client has disconnected."""
        while True:
            first, second = await self._reader.readexactly(2)
            size = second & 0x7F
            if size == 126:
                size = int.from_bytes(await self._reader.readexactly(2), "big")
            elif size == 127:
                size = int.from_bytes(await self._reader.readexactly(8), "big")
            mask = await self._reader.readexactly(4)
            data = await self._reader.readexactly(size)
            plain = bytes(byte ^ mask[index % 4] for index, byte in enumerate(data))
            if first & 0x0F == _CLOSE:
                return -1, b""
            if first & 0x0F == _PING:
                await self._frame(_PONG, plain)
            elif plain and first & 0x0F in (1, 2):
                return plain[0], plain[1:]

    async def send(self, channel: int, data: bytes) -> None:
        await self._frame(2, bytes([channel]) + data)

    async def stdin(self) -> bytes:
        """Everything up to the end of the client's input."""
        received = b""
        while True:
            channel, data = await self.next()
            if channel == -1 or (channel == CLOSED and data[:1] == bytes([STDIN])):
                return received
            if channel == STDIN:
                received += data

    async def finish(self, code: int = 0) -> None:
        """Sends the command's exit status, and closes."""
        status: dict[str, Any] = {"metadata": {}, "status": "Success"}
        if code:
            causes = [{"reason": "ExitCode", "message": str(code)}]
            status |= {
                "status": "Failure",
                "reason": "NonZeroExitCode",
                "message": f"command terminated with non-zero exit code: {code}",
                "details": {"causes": causes},
            }
        await self.send(FAILURE, json.dumps(status).encode())
        await self._frame(_CLOSE, (1000).to_bytes(2, "big"))

    async def _frame(self, kind: int, data: bytes) -> None:
        size = len(data)
        head = bytes([0x80 | kind])
        if size < 126:
            head += bytes([size])
        elif size < 1 << 16:
            head += bytes([126]) + size.to_bytes(2, "big")
        else:
            head += bytes([127]) + size.to_bytes(8, "big")
        self._writer.write(head + data)
        await self._writer.drain()


Serve = Callable[[Received, Channels], Awaitable[None]]


class FakeKubelet:
    """A fake kubelet API."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.log = b""
        self.endless = False  # a log without an end
        self.refusal: tuple[int, bytes] | None = None  # the response to every request, if set
        self.serve: Serve | None = None
        self.port = 0
        self.open = 0  # open connections
        self.idle = asyncio.Event()  # no connection is open
        self.idle.set()
        self._tasks: dict[asyncio.Task[None], None] = {}

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks[task] = None
        self.open += 1
        self.idle.clear()
        try:
            with contextlib.suppress(OSError, EOFError, asyncio.CancelledError):
                await self._answer(reader, writer)
        finally:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                writer.close()
                await writer.wait_closed()
            del self._tasks[task]
            self.open -= 1
            if not self.open:
                self.idle.set()

    def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        method, target, _ = first.split(" ")
        headers = {
            key.lower(): value.strip() for key, _, value in (x.partition(":") for x in lines)
        }
        user, groups = _caller(writer)
        request = Received(method, target, headers, user, groups)
        self.received.append(request)
        if self.refusal is not None:
            await _respond(writer, *self.refusal)
        elif target.startswith("/containerLogs/"):
            await self._send_log(writer)
        elif request.upgrade.lower() == "websocket" and self.serve is not None:
            await self._channels(request, reader, writer)
        else:
            await _echo(request, reader, writer)

    async def _send_log(self, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        await _chunk(writer, self.log)
        while self.endless:
            await _chunk(writer, b"tick\n")
            await asyncio.sleep(0)
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def _channels(
        self, request: Received, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        assert self.serve is not None
        writer.write(_switched(request))
        await self.serve(request, Channels(reader, writer))


async def _echo(
    request: Received, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    writer.write(_switched(request))
    while data := await reader.read(1 << 14):
        writer.write(data)
        await writer.drain()


def _switched(request: Received) -> bytes:
    lines = [
        "HTTP/1.1 101 Switching Protocols",
        "Connection: Upgrade",
        f"Upgrade: {request.upgrade}",
    ]
    if key := request.headers.get("sec-websocket-key"):
        accept = base64.b64encode(hashlib.sha1((key + _GUID).encode()).digest()).decode()
        lines.append(f"Sec-WebSocket-Accept: {accept}")
    if offered := request.headers.get("sec-websocket-protocol"):
        lines.append(f"Sec-WebSocket-Protocol: {offered.split(',')[0].strip()}")
    if offered := request.headers.get("x-stream-protocol-version"):
        lines.append(f"X-Stream-Protocol-Version: {offered.split(',')[0].strip()}")
    return "\r\n".join([*lines, "", ""]).encode()


async def _respond(writer: asyncio.StreamWriter, status: int, body: bytes) -> None:
    head = f"HTTP/1.1 {status} Refused\r\ncontent-type: text/plain\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()


async def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    if data:
        writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        await writer.drain()


def _caller(writer: asyncio.StreamWriter) -> tuple[str, tuple[str, ...]]:
    """The caller's name from its certificate."""
    certificate = writer.get_extra_info("peercert") or {}
    pairs = [pair for part in certificate.get("subject", ()) for pair in part]
    user = next((value for key, value in pairs if key == "commonName"), "")
    return user, tuple(value for key, value in pairs if key == "organizationName")


def node_context(folder: Path, authority: Pair, *, node: str) -> ssl.SSLContext:
    """A TLS context with a node's certificate that accepts clients of the same authority."""
    names = [f"system:node:{node}", "127.0.0.1"]
    pair = issue_server(authority, names, now=RealClock().now())
    files = write_pair(folder, f"node-{node}", pair)
    return server_context(files, clients=authority.certificate, required=True)


@contextlib.asynccontextmanager
async def serving_kubelet(tls: ssl.SSLContext | None) -> AsyncIterator[FakeKubelet]:
    """Serves a fake kubelet API while the block runs."""
    node = FakeKubelet()
    server = await asyncio.start_server(node.handle, "127.0.0.1", 0, ssl=tls)
    node.port = server.sockets[0].getsockname()[1]
    try:
        yield node
    finally:
        server.close()
        node.stop()
        await node.idle.wait()
