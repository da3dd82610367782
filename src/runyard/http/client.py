"""A transport over real sockets.

The heart of it is the map from what can happen to a connection onto the two things that a caller may
conclude (`http.errors`). The line between them is drawn by one fact, noted when aiohttp hands over a
connection: before that moment nothing can have been written, so the request was *not sent*; after it
everything that goes wrong is an *unknown outcome*.

Kept-alive connections need care, because a server may close an idle one in the very moment in which we
write to it, and that would be an unknown outcome although nothing is wrong:
- A request that changes something takes only a connection that was in use a moment ago, else a new one.
  No server's idle timer is that short, and what a new connection says is the truth. It is never sent twice;
  in particular not by aiohttp, which would repeat a PUT or a DELETE.
- A request that only reads may take any kept-alive connection, and is repeated on another one if a used one
  turns out to be dead. On a new connection it is not repeated either.

Invariants:
- No redirect is followed, no cookie kept, no proxy asked, nothing decompressed: what arrives is what was sent.
- `timeout` covers everything up to the whole answer, of a stream up to its head.
- A stream is given on as it arrives. Closing it cuts the connection; one that ends badly is an `OutcomeUnknown`.
"""

import asyncio
import io
import re
import ssl
from types import SimpleNamespace

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from runyard.http.addresses import encode_target
from runyard.http.errors import NotSent, OutcomeUnknown, TransportError
from runyard.http.messages import Pairs, Request, Response, Stream
from runyard.http.sockets import dial

ANSWER_LIMIT = 256 << 20

_READING = frozenset(("GET", "HEAD", "OPTIONS"))
_STREAM_QUERY = frozenset((("watch", "true"), ("watch", "1"), ("follow", "true")))
_EVENT_STREAM = "text/event-stream"
_IDLE_READS = 15.0  # how long a connection may have idled before a read may still use it
_IDLE_WRITES = 1.0  # the same for a write; servers close after five seconds at the very least
_LARGE = 1 << 20  # bodies above this are written in pieces
_FOREVER = aiohttp.ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None)
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_LOST = (aiohttp.ClientError, OSError, EOFError)


class HttpTransport:
    """Carries requests to one server, with a pool of connections. Implements `Transport`."""

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
            raise ValueError(f"not the address of a server: {base_url!r}")
        self._base = base_url.rstrip("/")
        self._tls = tls
        self._pool = pool
        self._agent = agent
        self._sessions: dict[bool, aiohttp.ClientSession] = {}
        self._closed = False

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        """Carry one request; see `http.messages.Transport`."""
        passage = _Passage()
        try:
            async with asyncio.timeout(timeout):
                return await self._send(request, passage)
        except TimeoutError:
            raise self._error(request, passage, f"no answer within {timeout:g} s") from None
        except (*_LOST, ValueError) as error:  # the latter: what cannot be written, or read
            raise self._error(request, passage, _why(error)) from error

    async def close(self) -> None:
        """Close every connection; streams that are still open are cut. Nothing can be sent afterwards."""
        self._closed = True
        sessions = list(self._sessions.values())
        self._sessions.clear()
        for session in sessions:
            await session.close()

    async def _send(self, request: Request, passage: "_Passage") -> Response | Stream:
        reading = request.method in _READING
        session = self._session(reading=reading)
        url = URL(self._base + encode_target(request.path, request.query), encoded=True)
        headers = _checked(request)
        while True:
            passage.reused = False
            try:
                answer = await session.request(
                    request.method,
                    url,
                    headers=headers,
                    data=_payload(request.body),
                    allow_redirects=False,
                    trace_request_ctx=passage,
                )
            except _Broken as broken:
                if reading and passage.reused:
                    continue  # each turn takes a dead connection out of the pool
                raise broken.cause from None
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
            middlewares=(_once,),
        )

    def _error(self, request: Request, passage: "_Passage", why: str) -> TransportError:
        kind = OutcomeUnknown if passage.connected else NotSent
        return kind(f"{request.method} {self._base}{request.path}: {why}")


class _Passage:
    """How far one request got: whether anything may have been written, and where to."""

    __slots__ = ("connected", "reused")

    def __init__(self) -> None:
        self.connected = (
            False  # stays true: a read that is repeated may have arrived the first time
        )
        self.reused = False


class _Broken(Exception):
    """The connection broke before an answer; carried past aiohttp, which would send again."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


async def _once(
    outgoing: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Let a request be sent once: who repeats it is decided here and not in the library."""
    try:
        return await handler(outgoing)
    except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
        raise _Broken(error) from error


def _tracing() -> aiohttp.TraceConfig:
    """Note the moment from which on something may have been written."""

    async def created(_: object, context: SimpleNamespace, __: object) -> None:
        context.trace_request_ctx.connected = True

    async def reused(_: object, context: SimpleNamespace, __: object) -> None:
        context.trace_request_ctx.connected = context.trace_request_ctx.reused = True

    tracing = aiohttp.TraceConfig()
    tracing.on_connection_create_end.append(created)
    tracing.on_connection_reuseconn.append(reused)
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
        """Cut the connection; whoever still reads gets the end."""
        self._over = True
        self._answer.close()

    def __aiter__(self) -> "_Incoming":
        return self

    async def __anext__(self) -> bytes:
        if self._error is not None:
            raise self._error  # asking again does not make a cut stream a finished one
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
