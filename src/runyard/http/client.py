"""Sends requests over sockets, with a pool of connections.

Every failure is mapped to one of the two errors of `http.errors`. What decides is whether aiohttp had acquired a
connection: before that nothing can have been written, so the request was *not sent*; after it every failure is an
*unknown outcome*.

Kept-alive connections need care, because a server may close an idle one while a request is written to it, which would
be an unknown outcome:
- A request that changes something takes only a connection that was in use a moment ago, else a new one.
  No server's idle timeout is that short. Such a request is never sent twice; in particular not by aiohttp, which
  would repeat a PUT or a DELETE.
- A request that only reads may take any kept-alive connection, and is repeated on another one if a used one
  turns out to be dead. On a new connection it is not repeated either.

A request that changes something must not reach the peer later than its caller expects: the caller may have handed its
right to write to another process meanwhile (`kube.leadership`).
- Before its bytes are written, after the connection was made, the timeout and `Request.may_send` are checked again: the
  process may have been stopped in between. There is no await between that check and the system call.
- When it fails or is cancelled its connection is reset, and what the kernel still holds of it is discarded. While the
  process is stopped, or after it was killed, the kernel discards it when the timeout is over (`http.sockets`).
- aiohttp returns a connection to the pool with the last byte of an answer, before the caller of that request continues.
  If another request has taken the connection by then, the end of the first one does not touch it.

Invariants:
- No redirect is followed, no cookie kept, no proxy used, nothing decompressed.
- `timeout` covers everything up to the whole answer, of a stream up to its head.
- A stream is returned as it arrives. Closing it cuts the connection; one that ends badly is an `OutcomeUnknown`.
"""

import asyncio
import io
import os
import re
import socket
import ssl
from types import SimpleNamespace
from weakref import WeakKeyDictionary

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from runyard.http.addresses import encode_target
from runyard.http.errors import NotSent, OutcomeUnknown, TransportError
from runyard.http.messages import Pairs, Request, Response, Stream
from runyard.http.sockets import dial, limit_sending, unlimit_closing

ANSWER_LIMIT = 256 << 20

_READING = frozenset(("GET", "HEAD", "OPTIONS"))
_STREAM_QUERY = frozenset((("watch", "true"), ("watch", "1"), ("follow", "true")))
_EVENT_STREAM = "text/event-stream"
_IDLE_READS = 15.0  # how long a connection may have idled before a read may still use it
_IDLE_WRITES = 1.0  # the same for a write; servers close after five seconds at the very least
_LARGE = 1 << 20  # bodies above this are written in chunks
_FOREVER = aiohttp.ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None)
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_LOST = (aiohttp.ClientError, OSError, EOFError)


class HttpTransport:
    """Sends requests to one server, with a pool of connections. Implements `Transport`."""

    def __init__(
        self,
        base_url: str,
        *,
        tls: ssl.SSLContext | None = None,
        pool: int = 100,
        agent: str = "runyard",
    ) -> None:
        url = URL(base_url)
        if url.scheme not in {"http", "https"} or not url.host or url.query_string or url.user:
            raise ValueError(
                f"not the address of a server: {base_url!r}; write it as https://host:port"
            )
        self._base = base_url.rstrip("/")
        self._tls = tls
        self._pool = pool
        self._agent = agent
        self._sessions: dict[bool, aiohttp.ClientSession] = {}
        self._owners: _Owners = WeakKeyDictionary()
        self._closed = False

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        """Send one request; see `http.messages.Transport`."""
        ends = asyncio.get_running_loop().time() + timeout
        sending = _Sending(request, ends=ends, owners=self._owners)
        try:
            async with asyncio.timeout(timeout):
                answer = await self._send(request, sending)
            sending.finished()
            return answer
        except TimeoutError:
            raise self._error(request, sending, f"no answer within {timeout:g} s") from None
        except (*_LOST, ValueError) as error:  # ValueError: cannot be written or read
            raise self._error(request, sending, _why(error)) from error
        finally:
            sending.end()

    async def close(self) -> None:
        """Close every connection; streams that are still open are cut. Nothing can be sent afterwards."""
        self._closed = True
        sessions = list(self._sessions.values())
        self._sessions.clear()
        for session in sessions:
            await session.close()

    async def _send(self, request: Request, sending: "_Sending") -> Response | Stream:
        reading = request.method in _READING
        session = self._session(reading=reading)
        url = URL(self._base + encode_target(request.path, request.query), encoded=True)
        headers = _checked(request)
        while True:
            sending.reused = False
            try:
                answer = await session.request(
                    request.method,
                    url,
                    headers=headers,
                    data=_payload(request.body),
                    allow_redirects=False,
                    trace_request_ctx=sending,
                    middlewares=(sending.send_once,),
                )
            except _Broken as broken:
                if reading and sending.reused:
                    continue  # each turn takes a dead connection out of the pool
                raise broken.cause from broken.cause.__cause__
            return await _received(request, answer)

    def _session(self, *, reading: bool) -> aiohttp.ClientSession:
        if self._closed:
            raise NotSent(f"the transport to {self._base} is closed")
        session = self._sessions.get(reading)
        if session is None:
            session = self._sessions[reading] = self._open(_IDLE_READS if reading else _IDLE_WRITES)
        return session

    def _open(self, idle: float) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=self._pool,
            keepalive_timeout=idle,
            ssl=self._tls if self._tls is not None else True,
            socket_factory=dial,
        )
        return aiohttp.ClientSession(
            connector=connector,
            headers={"user-agent": self._agent},
            skip_auto_headers=("accept-encoding", "content-type"),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=_FOREVER,
            auto_decompress=False,
            trace_configs=[_tracing()],
            request_class=_Outgoing,
        )

    def _error(self, request: Request, sending: "_Sending", why: str) -> TransportError:
        kind = OutcomeUnknown if sending.connected and not sending.withheld else NotSent
        return kind(f"{request.method} {self._base}{request.path}: {why}")


class _Sending:
    """Records whether a request may have been written, and on which connection."""

    __slots__ = (
        *("connected", "connection", "ends", "owners"),
        *("request", "reused", "withheld", "wrote"),
    )

    def __init__(self, request: Request, *, ends: float, owners: "_Owners") -> None:
        self.request = request
        self.owners = owners
        self.ends = ends  # in the loop's time
        self.connected = (
            False  # stays true: a read that is repeated may have arrived the first time
        )
        self.reused = False
        self.withheld = False
        self.wrote = False
        self.connection: asyncio.Transport | None = None  # of a request that changes something

    async def send_once(
        self, outgoing: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Prevent aiohttp from repeating a request; this module decides that."""
        assert isinstance(outgoing, _Outgoing)
        outgoing.sending = self
        try:
            return await handler(outgoing)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            raise _Broken(error) from error

    def use(self, connection: asyncio.Transport | None) -> None:
        """Use this connection; bytes that are not sent when the request ends are discarded."""
        if connection is None or self.request.method in _READING:
            return
        self.connection = connection
        self.owners[connection] = self
        limit_sending(connection.get_extra_info("socket"), self._left())

    def check(self, *, first: bool) -> None:
        """Raise if the bytes that come next must not be written."""
        if self.request.method in _READING:
            return
        permitted = self.request.may_send is None or self.request.may_send()
        if permitted and self._left() > 0:
            self.wrote = not first or not self.request.body
            return
        self.withheld = not self.wrote
        raise _Withheld("the time to send it is over" if permitted else "it may not be sent now")

    def finished(self) -> None:
        """Keep the connection: its last request was answered."""
        connection = self._leave()
        if connection is not None:
            unlimit_closing(connection.get_extra_info("socket"))

    def end(self) -> None:
        """Reset the connection of a request that failed; asyncio would first write what it has buffered."""
        connection = self._leave()
        if connection is not None:
            connection.abort()

    def _leave(self) -> asyncio.Transport | None:
        """Return the connection and forget it; None if another request has taken it since."""
        connection, self.connection = self.connection, None
        if connection is None or self.owners.get(connection) is not self:
            return None
        del self.owners[connection]
        return connection

    def _left(self) -> float:
        return self.ends - asyncio.get_running_loop().time()


_Owners = WeakKeyDictionary[asyncio.Transport, _Sending]  # the last write that took each connection


class _Outgoing(aiohttp.ClientRequest):
    """A request that records which connection it uses."""

    sending: _Sending

    async def send(self, conn: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        """Write the request; the connection was made."""
        self.sending.use(conn.transport)
        return await super().send(conn)


class _Broken(Exception):
    """The connection broke before an answer; carried past aiohttp, which would send again."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class _Withheld(aiohttp.ClientError):
    """Bytes were not written, because the timeout had passed or the caller may not write any more."""


def _tracing() -> aiohttp.TraceConfig:
    """Trace when a connection was acquired, and check just before bytes are written to it."""

    async def created(_: object, context: SimpleNamespace, __: object) -> None:
        context.trace_request_ctx.connected = True

    async def reused(_: object, context: SimpleNamespace, __: object) -> None:
        context.trace_request_ctx.connected = context.trace_request_ctx.reused = True

    async def head(_: object, context: SimpleNamespace, __: object) -> None:
        context.trace_request_ctx.check(first=True)

    async def chunk(_: object, context: SimpleNamespace, __: object) -> None:
        context.trace_request_ctx.check(first=False)

    tracing = aiohttp.TraceConfig()
    tracing.on_connection_create_end.append(created)
    tracing.on_connection_reuseconn.append(reused)
    tracing.on_request_headers_sent.append(head)
    tracing.on_request_chunk_sent.append(chunk)
    return tracing


def _checked(request: Request) -> CIMultiDict[str]:
    """The headers; `ValueError` if one of them would break out of its line."""
    for name, value in request.headers:
        if _CONTROL.search(name) or _CONTROL.search(value):
            raise ValueError(f"control character in the header {name!r}")
    return CIMultiDict(request.headers)


def _payload(body: bytes) -> bytes | io.BytesIO | None:
    if len(body) > _LARGE:
        return io.BytesIO(body)
    return body or None


def _why(error: BaseException) -> str:
    """Why a request failed: in the system's own words, without the library's, where no connection was made."""
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else None
    if isinstance(cause, socket.gaierror):
        return "its name cannot be resolved"
    if cause is not None and cause.errno and not isinstance(cause, ssl.SSLError):
        return os.strerror(cause.errno).lower()
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


# ── answers ─────────────────────────────────────────────────────────────────────────────────────────


def _wants_stream(request: Request) -> bool:
    return any(pair in _STREAM_QUERY for pair in request.query) or any(
        name == "accept" and _EVENT_STREAM in value for name, value in request.headers
    )


async def _received(request: Request, answer: aiohttp.ClientResponse) -> Response | Stream:
    headers: Pairs = tuple((name.lower(), value) for name, value in answer.headers.items())
    good = 200 <= answer.status < 300
    if good and answer.content_length is None and _wants_stream(request):
        incoming = _Incoming(answer, f"{request.method} {request.path}")
        return Stream(incoming, status=answer.status, headers=headers, on_close=incoming.close)
    try:
        body = await _read(answer)
    except BaseException:
        answer.close()
        raise
    return Response(status=answer.status, headers=headers, body=body)


async def _read(answer: aiohttp.ClientResponse) -> bytes:
    if (answer.content_length or 0) > ANSWER_LIMIT:
        raise aiohttp.ClientPayloadError(f"the answer is larger than {ANSWER_LIMIT} bytes")
    parts: list[bytes] = []
    size = 0
    while part := await answer.content.readany():
        size += len(part)
        if size > ANSWER_LIMIT:
            raise aiohttp.ClientPayloadError(f"the answer is larger than {ANSWER_LIMIT} bytes")
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


class _Incoming:
    """The reader's end of a stream."""

    def __init__(self, answer: aiohttp.ClientResponse, what: str) -> None:
        self._answer = answer
        self._what = what
        self._over = False
        self._error: OutcomeUnknown | None = None

    def close(self) -> None:
        """Close the connection; a pending read returns the end of the stream."""
        self._over = True
        self._answer.close()

    def __aiter__(self) -> "_Incoming":
        return self

    async def __anext__(self) -> bytes:
        if self._error is not None:
            raise self._error  # a stream that was cut raises on every further read
        if self._over:
            raise StopAsyncIteration
        try:
            chunk = await self._answer.content.readany()
        except (*_LOST, RuntimeError) as error:
            if self._over:
                raise StopAsyncIteration from None
            if isinstance(error, RuntimeError) and not self._dead():
                raise
            self._error = OutcomeUnknown(f"{self._what}: the stream was cut: {_why(error)}")
            self._answer.close()
            raise self._error from error
        if not chunk:
            self._over = True
            raise StopAsyncIteration
        return chunk

    def _dead(self) -> bool:
        """Whether the connection was closed under the reader, as happens with its transport."""
        connection = self._answer.connection
        return connection is None or connection.closed
