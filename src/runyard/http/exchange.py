"""Sends one request over a connection of its own, for a server that proxies another one's answer.

A proxy cannot use `HttpTransport`, which pools connections and buffers responses: a log of a gigabyte must not be
held in memory, a 101 takes over the connection, and a client that stops reading must slow the server down.

Invariants:
- A successful response is a `Stream` with backpressure; a 101 is an `Upgraded` that joins the two connections
  (`tunnels`); anything else is a `Response` whose body is cut at `MAX_ERROR_BODY` bytes.
- One connection for one request: closing the answer cuts it, and nothing is sent twice.
- `NotSent` while nothing was written yet (no connection, no TLS, another certificate), else `OutcomeUnknown`.
- Host and port may come from an untrusted source; what is not a valid host or port is `NotSent`.
"""

import asyncio
import contextlib
import os
import socket
import ssl
from enum import StrEnum

import msgspec

from runyard.http.addresses import encode_target
from runyard.http.errors import NotSent, OutcomeUnknown
from runyard.http.messages import Pairs, Request, Response, Stream, Upgraded
from runyard.http.sockets import enable_keepalive
from runyard.http.tunnels import LIMIT, Ends, join

MAX_ERROR_BODY = 64 << 10  # bytes of an error response that are read
_SHUTDOWN = 1.0
_LONGEST = 253  # characters of a name


class Fault(StrEnum):
    """What prevented a connection."""

    PORT = "port"  # it is not a valid one
    HOST = "host"  # its name is invalid or unknown
    TLS = "tls"  # the handshake failed, or the certificate is of another peer
    CONNECT = "connect"  # no connection in time, or an error of the network


class NotConnected(NotSent):
    """There is no connection to the peer; `fault` is the cause as a code, and the message is for people."""

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(message)
        self.fault = fault


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """The server to call, and the timeouts."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    name: str = ""  # what the common name of its certificate must be
    connect: float = 10.0  # seconds until there is a connection
    answer: float = 30.0  # seconds from then on until the answer begins

    @property
    def address(self) -> str:
        """Host and port, as a URL has them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


async def exchange(request: Request, peer: Peer) -> Response | Stream:
    """Send a request and return the response as it arrives. Error messages have the cause and not the address."""
    if not 0 < peer.port < 1 << 16:
        raise NotConnected(Fault.PORT, "invalid port")
    if not _is_name(peer.host):
        raise _no_host()
    head = _head(request, peer)
    ends = await _connected(peer)
    try:
        async with asyncio.timeout(peer.answer):
            return await _send(request, head, ends)
    except TimeoutError:
        ends[1].transport.abort()
        raise OutcomeUnknown("i/o timeout") from None
    except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
        ends[1].transport.abort()
        raise OutcomeUnknown(_why(error)) from error
    except BaseException:
        ends[1].transport.abort()
        raise


def _is_name(host: str) -> bool:
    return (
        0 < len(host) <= _LONGEST and host.isprintable() and not any(x in host for x in " /?#@[]")
    )


async def _connected(peer: Peer) -> Ends:
    try:
        async with asyncio.timeout(peer.connect):
            reader, writer = await asyncio.open_connection(
                peer.host,
                peer.port,
                limit=LIMIT,
                ssl=peer.tls,
                ssl_shutdown_timeout=_SHUTDOWN if peer.tls is not None else None,
            )
    except TimeoutError:
        raise NotConnected(Fault.CONNECT, "i/o timeout") from None
    except socket.gaierror as error:
        raise _no_host() from error
    except OSError as error:  # also an invalid certificate, which is a ValueError as well
        fault = Fault.TLS if isinstance(error, ssl.SSLError) else Fault.CONNECT
        raise NotConnected(fault, _why(error, "connect")) from error
    except ValueError as error:  # a name that cannot be encoded for DNS
        raise _no_host() from error
    enable_keepalive(writer.get_extra_info("socket"))
    if peer.name and (shown := _common_name(writer)) != peer.name:
        writer.transport.abort()
        raise NotConnected(Fault.TLS, f"tls: the certificate is of {shown!r}, not of {peer.name!r}")
    return reader, writer


def _no_host() -> NotConnected:
    return NotConnected(Fault.HOST, "no such host")


def _common_name(writer: asyncio.StreamWriter) -> str:
    found = writer.get_extra_info("peercert") or {}
    pairs = (pair for part in found.get("subject", ()) for pair in part)
    return next((value for key, value in pairs if key == "commonName"), "")


def _why(error: BaseException, doing: str = "read") -> str:
    """Return the cause of a failure, worded as Kubernetes words it where possible."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"tls: failed to verify certificate: x509: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"tls: {error.reason or error}"
    if isinstance(error, EOFError):
        return "EOF"
    if isinstance(error, OSError) and error.errno is not None:
        return f"{doing}: {os.strerror(error.errno).lower()}" if error.errno > 0 else str(error)
    return f"malformed HTTP response: {error}"


# ── out ─────────────────────────────────────────────────────────────────────────────────────────────


def _head(request: Request, peer: Peer) -> bytes:
    target = encode_target(request.path, request.query)
    lines = [f"{request.method} {target} HTTP/1.1", f"host: {peer.address}"]
    for name, value in request.headers:
        if any(mark in name + value for mark in "\r\n\0"):
            raise NotSent("a line break in a header")
        lines.append(f"{name}: {value}")
    if not request.header("upgrade"):
        lines.append("connection: close")
    if request.body or request.method == "POST":
        lines.append(f"content-length: {len(request.body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1", errors="replace") + request.body


# ── in ──────────────────────────────────────────────────────────────────────────────────────────────


async def _send(request: Request, head: bytes, ends: Ends) -> Response | Stream:
    reader, writer = ends
    writer.write(head)
    await writer.drain()
    status, headers = await _read_head(reader)
    if status == 101:
        if not request.header("upgrade"):
            raise ValueError(
                "the server upgraded the connection although the request did not ask for it"
            )
        return _upgraded(headers, ends)
    framing = 0 if request.method == "HEAD" else _framing(status, headers)
    body = _Body(reader, writer, framing)
    if 200 <= status < 300:
        return Stream(body, status=status, headers=headers, on_close=body.cut)
    beginning = await body.at_most(MAX_ERROR_BODY)
    return Response(status=status, headers=headers, body=beginning)


def _upgraded(headers: Pairs, ends: Ends) -> Upgraded:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await join((reader, writer), ends)

    return Upgraded(serve, headers=headers, on_close=ends[1].transport.abort)


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, Pairs]:
    """Read the status and the headers of the response; skips 1xx responses."""
    while True:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        code = rest[:3]
        if not version.startswith("HTTP/1.") or len(code) != 3 or not code.isdecimal():
            raise ValueError("no status line")
        if code[0] != "1" or code == "101":
            return int(code), tuple(_pair(line) for line in lines if line)


def _pair(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not name or name != name.strip():
        raise ValueError("a header without a name")
    return name.lower(), value.strip()


def _framing(status: int, headers: Pairs) -> int | None:
    """Return the length of the body; None if it is chunked, -1 if it ends with the connection."""
    fields = dict(headers)
    if status in (204, 304):
        return 0
    if "chunked" in fields.get("transfer-encoding", "").lower():
        return None
    length = fields.get("content-length", "")
    if length and not (length.isascii() and length.isdecimal()):
        raise ValueError("the content-length is not a number")
    return int(length) if length else -1


class _Body:
    """The body of a response, read as it arrives."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, framing: int | None
    ) -> None:
        self._reader = reader
        self._writer = writer  # kept because a writer without references closes its connection
        self._left = 0 if framing is None else framing  # of the body, or of the chunk
        self._chunked = framing is None
        self._began = False
        self._over = framing == 0

    def cut(self) -> None:
        """Close the connection and discard the rest."""
        self._over = True
        self._writer.transport.abort()

    async def at_most(self, size: int) -> bytes:
        """Read the beginning of the body; the rest is not read."""
        data = b""
        with contextlib.suppress(OutcomeUnknown):
            async for part in self:
                data += part
                if len(data) >= size:
                    break
        self.cut()
        return data[:size]

    def __aiter__(self) -> "_Body":
        return self

    async def __anext__(self) -> bytes:
        if self._over:
            raise StopAsyncIteration
        try:
            part = await self._next()
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
            if self._over:
                raise StopAsyncIteration from None
            self.cut()
            raise OutcomeUnknown(f"the answer was cut: {_why(error)}") from error
        if not part:
            self.cut()
            raise StopAsyncIteration
        return part

    async def _next(self) -> bytes:
        """Read the next chunk; empty at the end."""
        if self._chunked and not self._left:
            self._left = await self._chunk()
        if not self._left:
            return b""
        part = await self._reader.read(min(LIMIT, self._left) if self._left > 0 else LIMIT)
        if not part and self._left > 0:
            raise EOFError
        self._left -= len(part) if self._left > 0 else 0
        return part

    async def _chunk(self) -> int:
        """Read the size of the next chunk."""
        if self._began and await self._reader.readexactly(2) != b"\r\n":
            raise ValueError("a chunk without a line break at its end")
        self._began = True
        size = int((await self._reader.readuntil(b"\r\n")).partition(b";")[0], 16)
        if size < 0:
            raise ValueError("a chunk with a negative size")
        return size
