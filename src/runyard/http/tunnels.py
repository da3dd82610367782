"""Connections after an HTTP upgrade: taken over from the server, and joined to another one.

`join` copies bytes in both directions without interpreting them.

Invariants:
- Memory is bounded: when one end does not read, the other end is read only until the buffer is full.
- An idle tunnel stays as long as both ends do; its socket detects a peer that vanished (`sockets`).
- An end of file is passed on after all bytes before it. Over plain TCP the other direction stays open as long as bytes
  arrive at least every `linger` seconds; TLS has no half-close, so the tunnel is closed.
- While one end does not read, the other end is checked every `linger` seconds, and the tunnel is closed once it has
  disconnected. Until then an idle tunnel stays open.
- When one end disconnects, the other one gets the buffered bytes and is closed.
"""

import asyncio
import contextlib

from runyard.http.messages import Pairs
from runyard.http.sockets import is_open

LIMIT = 64 << 10  # bytes held for a slow reader, about
LINGER = 10.0

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def take_over(transport: asyncio.Transport) -> Ends:
    """Take a connection over from another protocol, and return a reader and a writer for it."""
    reader = asyncio.StreamReader(limit=LIMIT)
    protocol = asyncio.StreamReaderProtocol(reader)
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    transport.resume_reading()
    loop = asyncio.get_running_loop()
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


def switching(headers: Pairs) -> bytes:
    """The head of a 101; raises `ValueError` on a header that would break out of its line."""
    lines = ["HTTP/1.1 101 Switching Protocols"]
    for name, value in headers:
        if any(mark in name + value for mark in "\r\n\0"):
            raise ValueError("a line break in a header")
        lines.append(f"{name}: {value}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


async def join(one: Ends, other: Ends, *, linger: float = LINGER) -> None:
    """Copy bytes in both directions until both ends are closed."""
    try:
        async with asyncio.timeout(None) as limit:
            await _Joint(limit, linger).copy(one, other)
            for _, writer in (one, other):
                writer.close()
            for _, writer in (one, other):
                await _closed(writer)
    except TimeoutError:
        pass  # an end that neither reads nor disconnects
    finally:
        for _, writer in (one, other):
            writer.transport.abort()


class _Joint:
    """Both directions of a tunnel, and the timeout that starts when one of them has ended."""

    def __init__(self, limit: asyncio.Timeout, linger: float) -> None:
        self._limit = limit
        self._linger = linger
        self._ending = False

    async def copy(self, one: Ends, other: Ends) -> None:
        async with asyncio.TaskGroup() as group:
            forth = group.create_task(self._copy(one, other[1]))
            back = group.create_task(self._copy(other, one[1]))
            # When an end disconnects, the direction towards it ends.
            watches = (
                group.create_task(self._until_closed(one[1], back)),
                group.create_task(self._until_closed(other[1], forth)),
            )
            await asyncio.wait((forth, back))
            for watch in watches:
                watch.cancel()

    async def _copy(self, source: Ends, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source[0].read(LIMIT):
                sink.write(data)
                await self._drain(source[1], sink)
                if self._ending:
                    self._start_timeout()
        with contextlib.suppress(OSError):
            if sink.can_write_eof():
                sink.write_eof()
            else:
                sink.close()
        self._start_timeout()

    async def _drain(self, source: asyncio.StreamWriter, sink: asyncio.StreamWriter) -> None:
        """Wait until the sink accepts more, unless it is stuck and the source has disconnected."""
        while True:
            held = sink.transport.get_write_buffer_size()
            try:
                async with asyncio.timeout(self._linger):
                    return await sink.drain()
            except TimeoutError:
                stuck = sink.transport.get_write_buffer_size() >= held
            if stuck and not is_open(source.get_extra_info("socket")):
                self._limit.reschedule(asyncio.get_running_loop().time())

    async def _until_closed(
        self, writer: asyncio.StreamWriter, direction: "asyncio.Task[None]"
    ) -> None:
        await _closed(writer)
        direction.cancel()
        self._start_timeout()

    def _start_timeout(self) -> None:
        self._ending = True
        self._limit.reschedule(asyncio.get_running_loop().time() + self._linger)


async def _closed(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        await writer.wait_closed()
