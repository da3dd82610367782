"""Connections that stopped speaking HTTP: taken over from the server, and joined to another one.

`join` carries bytes both ways and looks at none of them.

Invariants:
- Memory is bounded: who does not read is not read for either, beyond a buffer's worth.
- An idle tunnel stays as long as both ends do; a peer that vanished is noticed by its socket (`sockets`).
- An end that says "no more" is passed on with everything before it. Where the connection can be closed by halves the
  other direction goes on, as long as something moves at least every `linger` seconds; TLS cannot, and is closed.
- Who is not read for, because the other end takes nothing, is looked after every `linger` seconds: once it has gone,
  there is nobody left to wait for. As long as it has not, a tunnel in which nothing moves stays.
- When one end has gone, the other one gets what was still on its way to it, and is closed.
"""

import asyncio
import contextlib

from runyard.http.messages import Pairs
from runyard.http.sockets import is_open

LIMIT = 64 << 10  # bytes held for a slow reader, about
LINGER = 10.0

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def take_over(transport: asyncio.Transport) -> Ends:
    """A reader and a writer on a connection that another protocol had; that one hears of it no more."""
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
    """Carry bytes both ways until both ends are closed."""
    try:
        async with asyncio.timeout(None) as patience:
            await _Joint(patience, linger).carry(one, other)
            for _, writer in (one, other):
                writer.close()
            for _, writer in (one, other):
                await _closed(writer)
    except TimeoutError:
        pass  # an end that neither reads nor goes
    finally:
        for _, writer in (one, other):
            writer.transport.abort()


class _Joint:
    """Two directions, and the patience that begins to run once one of them has ended."""

    def __init__(self, patience: asyncio.Timeout, linger: float) -> None:
        self._patience = patience
        self._linger = linger
        self._ending = False

    async def carry(self, one: Ends, other: Ends) -> None:
        async with asyncio.TaskGroup() as group:
            forth = group.create_task(self._carry(one, other[1]))
            back = group.create_task(self._carry(other, one[1]))
            # Nobody is left to write to: the direction towards the one that went is over.
            watches = (
                group.create_task(self._until_gone(one[1], back)),
                group.create_task(self._until_gone(other[1], forth)),
            )
            await asyncio.wait((forth, back))
            for watch in watches:
                watch.cancel()

    async def _carry(self, source: Ends, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source[0].read(LIMIT):
                sink.write(data)
                await self._taken(source[1], sink)
                if self._ending:
                    self._wait()
        with contextlib.suppress(OSError):
            if sink.can_write_eof():
                sink.write_eof()
            else:
                sink.close()
        self._wait()

    async def _taken(self, source: asyncio.StreamWriter, sink: asyncio.StreamWriter) -> None:
        """Wait until the sink takes more, as long as it takes anything or there is somebody who waits."""
        while True:
            held = sink.transport.get_write_buffer_size()
            try:
                async with asyncio.timeout(self._linger):
                    return await sink.drain()
            except TimeoutError:
                stuck = sink.transport.get_write_buffer_size() >= held
            if stuck and not is_open(source.get_extra_info("socket")):
                self._patience.reschedule(asyncio.get_running_loop().time())

    async def _until_gone(
        self, writer: asyncio.StreamWriter, direction: "asyncio.Task[None]"
    ) -> None:
        await _closed(writer)
        direction.cancel()
        self._wait()

    def _wait(self) -> None:
        self._ending = True
        self._patience.reschedule(asyncio.get_running_loop().time() + self._linger)


async def _closed(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        await writer.wait_closed()
