"""Serves the embedded API over a socket, with faults.

It implements just enough HTTP to serve lists and watches, byte by byte, so that it can stop anywhere: inside of a
chunk, inside of an object, after the head, or never. The answers are those of the real core.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from runyard.clock import RealClock
from runyard.http.addresses import decode_target
from runyard.http.messages import Handler, Request, Response, Stream

Fault = str


class FastClock(RealClock):
    """A clock whose minutes pass in seconds, for a client that waits for minutes."""

    FACTOR = 60.0

    def monotonic(self) -> float:
        return super().monotonic() * self.FACTOR

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / self.FACTOR)

    def timeout(self, seconds: float) -> asyncio.Timeout:
        return super().timeout(seconds / self.FACTOR)


class HostileServer:
    """Serves `handler`; each list page and each watch takes the next fault of its queue, if there is one."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self.lists: deque[Fault | Response | None] = deque()
        self.watches: deque[Fault | Response | None] = deque()
        self.requests: list[Request] = []
        self.connections = 0
        self.parted = asyncio.Event()  # whenever a connection has ended
        self.before: Callable[[Request], Awaitable[None]] = _nothing
        self.happened: list[str] = []  # the faults that were applied
        self._serving: dict[asyncio.Task[object], None] = {}

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """Serve and yield the address; open connections are cut at the end."""
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()[:2]
        try:
            yield f"http://{host}:{port}"
        finally:
            server.close()
            for task in self._serving:
                task.cancel()
            if self._serving:
                await asyncio.wait(list(self._serving))

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving[task] = None
        self.connections += 1
        try:
            while await self._serve(_parsed(await reader.readuntil(b"\r\n\r\n")), writer):
                pass
            if self.happened and self.happened[-1].startswith("mute"):
                await reader.read()  # bytes stop, the connection stays, until the client gives up
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            del self._serving[task]
            self.connections -= 1
            self.parted.set()
            writer.transport.abort()

    async def _serve(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; False if the connection is over."""
        self.requests.append(request)
        await self.before(request)
        queue = self.watches if request.param("watch") else self.lists
        fault = queue.popleft() if queue else None
        if isinstance(fault, Response):
            self.happened.append(str(fault.status))
            return await self._whole(fault, writer, "")
        answer = await self._handler(request)
        if isinstance(answer, Response):
            return await self._whole(answer, writer, fault or "")
        try:
            return await self._pour(answer, writer, fault or "")
        finally:
            await answer.aclose()

    async def _whole(self, answer: Response, writer: asyncio.StreamWriter, fault: Fault) -> bool:
        lines = [f"HTTP/1.1 {answer.status} X", f"content-length: {len(answer.body)}"]
        lines += [f"{name}: {value}" for name, value in answer.headers]
        body = answer.body
        if fault:
            self.happened.append(fault)
            body = body[: len(body) // 2]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await writer.drain()
        return not fault

    async def _pour(self, stream: Stream, writer: asyncio.StreamWriter, fault: Fault) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n")
        async for chunk in stream:
            if fault and b'"BOOKMARK"' not in chunk:
                return await self._break_off(chunk, writer, fault)
            writer.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return False

    async def _break_off(self, chunk: bytes, writer: asyncio.StreamWriter, fault: Fault) -> bool:
        """Write half of an event, then apply the fault."""
        self.happened.append(fault)
        half = chunk[: len(chunk) // 2]
        size = len(half) if fault == "ended inside of an object" else len(chunk)
        if fault != "mute before an object":
            writer.write(b"%x\r\n%s" % (size, half))
        if fault == "ended inside of an object":
            writer.write(b"\r\n0\r\n\r\n")
        await writer.drain()
        return False


async def _nothing(request: Request) -> None:
    """Before the request is served."""


def _parsed(head: bytes) -> Request:
    first, *rest = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    path, query = decode_target(target)
    headers = tuple(
        (name.strip().lower(), value.strip())
        for name, _, value in (line.partition(":") for line in rest if line)
    )
    return Request(method=method, path=path, query=query, headers=headers)
