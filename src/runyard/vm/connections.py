"""A TCP connection to a guest, over a socket that is connected already."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

from runyard.vm.contract import Connection


class SocketConnection(Connection):
    """A connected socket, read and written at the caller's pace."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link

    async def read(self, limit: int) -> bytes:
        """At most `limit` bytes; empty at the end, also of a connection that was reset."""
        with contextlib.suppress(ConnectionError):
            return await asyncio.get_running_loop().sock_recv(self._link, limit)
        return b""

    async def write(self, data: bytes) -> None:
        """Send; what a closed connection does not take is dropped."""
        with contextlib.suppress(ConnectionError):
            await asyncio.get_running_loop().sock_sendall(self._link, data)

    async def close_write(self) -> None:
        """Send the end."""
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_WR)


@contextlib.asynccontextmanager
async def over(link: socket.socket) -> AsyncIterator[SocketConnection]:
    """The connection over this socket, which is closed at the end."""
    with link:
        link.setblocking(False)
        yield SocketConnection(link)
