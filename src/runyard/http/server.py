"""Serves a handler on a socket.

aiohttp parses requests and writes responses; the handler decides. This module adds what a server for untrusted clients
needs.

Invariants:
- The client gets a status code or a closed connection, never a traceback. A failure is logged by its type and
  place. Headers, queries and bodies are never logged: they carry secrets.
- When a client disconnects, its handler or its stream is cancelled and `Stream.aclose()` is called at once.
- A stream whose producer fails is cut and not ended, so the reader can detect the failure.
- The memory for bodies is bounded (`intake`). After a refusal the server reads and discards the body for a bounded time
  and size, because closing a connection with unread bytes would reset it before the client has read the response. A
  request head that arrives too slowly is refused at a deadline.
- A body below the least rate is refused, and so is a client that reads a large response or a paced stream below it
  (`pace`): it is cut off. Only time in which the server waits for the client counts.
- The subject of a client certificate is passed to the handler in `CLIENT_CERT…` headers. Headers of these names in a
  request are removed, so handlers can trust them.
- The client's address is passed to the handler in the header `PEER`, if that was requested. The same rule holds for it.
- With `ConnectionLimits` the connections are bounded, in all and for each address; further ones are closed.
- HEAD is handled as a GET whose body is not sent.
- After a 101 the connection belongs to the handler's `serve` and is closed when it returns. Bytes that a client sends
  before the 101 violate the protocol and are dropped.
"""

import asyncio
import contextlib
import socket
import ssl
import traceback
from typing import Any

import msgspec
from aiohttp import hdrs, web
from aiohttp.helpers import must_be_empty_body
from aiohttp.web_protocol import RequestPayloadError

from runyard.clock import Clock, RealClock
from runyard.http.addresses import decode_target
from runyard.http.connection_limits import ConnectionLimits
from runyard.http.intake import BUDGET, SMALL, Admit, Intake, Refusal, Share, Streamed
from runyard.http.messages import Handler, Pairs, Request, Response, Stream, Upgraded
from runyard.http.pace import LeastRate, TooSlow
from runyard.http.problems import problem
from runyard.http.response_writer import PIECE, ResponseWriter
from runyard.http.sockets import bind, enable_keepalive, limit_unsent
from runyard.http.tunnels import switching, take_over
from runyard.telemetry.log import Logger, get_logger
from runyard.wire.problem_codes import ProblemCode

BODY_LIMIT = 4 << 20
# Of a refused body, in bytes: more than GitHub's largest delivery, which is 25 MB.
DISCARDED = 32 << 20
CLIENT_CERT = "x-runyard-client-cert-"
CLIENT_CERT_CN = CLIENT_CERT + "cn"  # the common name
CLIENT_CERT_O = CLIENT_CERT + "o"  # an organisation; as many headers as the certificate has
PEER = "x-runyard-peer"  # the address of the client, as the socket has it

_SUBJECT = {"commonName": CLIENT_CERT_CN, "organizationName": CLIENT_CERT_O}
# The adapter frames the answer itself; the same headers from a handler could contradict it.
_FRAMING = frozenset(
    ("connection", "content-length", "keep-alive", "transfer-encoding", "upgrade", "server")
)
_SERVER = "runyard"


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Timeouts of the server, in seconds."""

    head: float = 75.0  # for the head of the first or of the next request on a connection
    body: float = 60.0  # for the whole body of a request
    linger: float = (
        2.0  # while a refused body is discarded, so that the client can read the refusal
    )
    handshake: float = 15.0  # for the TLS handshake
    close: float = 5.0  # for requests under way when the server stops


class Listening:
    """A server that accepts connections."""

    def __init__(
        self, adapter: "_Adapter", acceptor: asyncio.Server, *, address: tuple[str, int], tls: bool
    ) -> None:
        self.host, self.port = address
        reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104 - compared, not bound
        name = f"[{reachable}]" if ":" in reachable else reachable
        self.url = f"{'https' if tls else 'http'}://{name}:{self.port}"
        self._adapter = adapter
        self._acceptor = acceptor

    async def close(self) -> None:
        """Stop accepting, cut the streams, let requests under way end for a bounded time."""
        self._acceptor.close()
        await self._adapter.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self._acceptor.wait_closed()


async def listen(
    handler: Handler,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    sock: socket.socket | None = None,
    tls: ssl.SSLContext | None = None,
    body_limit: int = BODY_LIMIT,
    bodies: int = BUDGET,
    admit: Admit | None = None,
    streamed: Streamed | None = None,
    timeouts: Timeouts | None = None,
    least: LeastRate | None = None,
    clock: Clock | None = None,
    limits: ConnectionLimits | None = None,
) -> Listening:
    """Serve `handler` at `host:port`, or on a socket that is bound already.

    `bodies` bounds the memory of all bodies, and `admit` decides which clients may send a large one (`intake`).
    The body of a request that is `streamed` reaches the handler as it arrives, of any size (`Request.content`).
    `limits` bound the connections; the handler then gets the client's address (`PEER`).
    """
    timeouts, least, clock = timeouts or Timeouts(), least or LeastRate(), clock or RealClock()
    bound = sock if sock is not None else bind(host, port)
    enable_keepalive(bound)
    intake = Intake(
        limit=body_limit,
        budget=bodies,
        timeout=timeouts.body,
        least=least,
        clock=clock,
        admit=admit,
    )
    adapter = _Adapter(
        handler,
        intake,
        ResponseWriter(least, clock),
        secure=tls is not None,
        timeouts=timeouts,
        streamed=streamed,
        limits=limits,
    )
    acceptor = await asyncio.get_running_loop().create_server(
        adapter.connection,
        sock=bound,
        ssl=tls,
        backlog=512,
        ssl_handshake_timeout=timeouts.handshake if tls is not None else None,
        ssl_shutdown_timeout=1.0 if tls is not None else None,
    )
    name = acceptor.sockets[0].getsockname()
    return Listening(adapter, acceptor, address=(name[0], name[1]), tls=tls is not None)


class _Adapter:
    """Converts between aiohttp's requests and ours, and tracks running requests."""

    def __init__(
        self,
        handler: Handler,
        intake: Intake,
        responses: ResponseWriter,
        *,
        secure: bool,
        timeouts: Timeouts,
        streamed: Streamed | None,
        limits: ConnectionLimits | None,
    ) -> None:
        self._handler = handler
        self._limits = limits
        self._streamed = streamed
        self._intake = intake
        self._responses = responses
        self._secure = secure
        self._timeouts = timeouts
        self._log = get_logger("http")
        self._working: dict[asyncio.Task[object], None] = {}
        self._streaming: dict[asyncio.Task[object], None] = {}
        self._draining = False
        self._server = web.Server(self._serve, handler_cancellation=True)

    def connection(self) -> web.RequestHandler:
        """The protocol of one new connection."""
        return _Connection(
            self._server,
            limits=self._limits,
            loop=asyncio.get_running_loop(),
            access_log=None,
            logger=_SilentLogger(self._log),  # has the methods that aiohttp calls
            keepalive_timeout=self._timeouts.head,
            lingering_time=0,  # see `_refuse`
            auto_decompress=False,  # signatures cover the body as it was sent
        )

    async def drain(self) -> None:
        """End streams at once, and requests when they are done or at the deadline."""
        self._draining = True
        for task in list(self._streaming):
            task.cancel()
        self._server.pre_shutdown()
        if self._working:
            await asyncio.wait(list(self._working), timeout=self._timeouts.close)
        for task in list(self._working):
            task.cancel()
        if self._working:
            await asyncio.wait(list(self._working), timeout=1.0)
        await self._server.shutdown(timeout=1.0)

    async def _serve(self, incoming: web.BaseRequest) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None
        self._working[task] = None
        try:
            return await self._answer(incoming, task)
        finally:
            del self._working[task]

    async def _answer(
        self, incoming: web.BaseRequest, task: "asyncio.Task[object]"
    ) -> web.StreamResponse:
        share = Share(self._intake)
        try:
            request = await self._request(incoming, share)
            answer = await self._handled(request)
        except Refusal as refusal:
            share.free()
            return await self._refuse(incoming, refusal.answer)
        finally:
            share.free()
        if isinstance(answer, Response):
            if request.content is not None and not incoming.content.at_eof():
                return await self._refuse(incoming, answer)
            return await self._write_response(incoming, request, answer)
        self._streaming[task] = None
        try:
            if isinstance(answer, Upgraded):
                return await self._hand_over(incoming, request, answer)
            return await self._write_stream(incoming, request, answer)
        finally:
            del self._streaming[task]

    async def _handled(self, request: Request) -> Response | Stream:
        try:
            return await self._handler(request)
        except Exception as error:  # noqa: BLE001 - the boundary: a handler that fails is a 500, and logged
            self._failed("handler failed", request, error)
            return problem(500, ProblemCode.SERVER_FAILED, reason="see its log")

    async def _refuse(self, incoming: web.BaseRequest, answer: Response) -> web.StreamResponse:
        """Send a refusal before the body is complete, then discard the body until the client can have read it."""
        response = _response(answer)
        response.force_close()
        left = DISCARDED
        gone = (TimeoutError, ConnectionError, RequestPayloadError, web.HTTPException)
        with contextlib.suppress(*gone):
            await response.prepare(incoming)
            await response.write_eof()
            async with asyncio.timeout(self._timeouts.linger):
                while left > 0 and (part := await incoming.content.readany()):
                    left -= len(part)
        return response

    # ── in ──────────────────────────────────────────────────────────────────────────────────────

    async def _request(self, incoming: web.BaseRequest, share: Share) -> Request:
        try:
            path, query = decode_target(incoming.raw_path)
        except ValueError as error:
            reason = "not UTF-8" if isinstance(error, UnicodeError) else str(error)
            raise Refusal(problem(400, ProblemCode.TARGET_UNREADABLE, reason=reason)) from None
        headers = tuple(
            (name, value)
            for key, value in incoming.headers.items()
            if not (name := key.lower()).startswith(CLIENT_CERT) and name != PEER
        )
        if self._limits is not None:
            headers += ((PEER, incoming.remote or ""),)
        if self._secure:
            headers += _certificate(incoming)
        head = Request(
            method="GET" if incoming.method == hdrs.METH_HEAD else incoming.method,
            path=path,
            query=query,
            headers=headers,
            client=incoming.remote or "",
        )
        if not incoming.can_read_body:
            return head
        if self._streamed is not None and self._streamed(head):
            return msgspec.structs.replace(head, content=self._intake.pieces(incoming))
        body = await self._intake.read(incoming, head, share)
        return msgspec.structs.replace(head, body=body) if body else head

    # ── out ─────────────────────────────────────────────────────────────────────────────────────

    async def _write_response(
        self, incoming: web.BaseRequest, request: Request, answer: Response
    ) -> web.StreamResponse:
        large = len(answer.body) > SMALL
        try:
            response = _large_response(answer) if large else _response(answer)
            if self._draining:
                response.force_close()
            await response.prepare(incoming)
        except ValueError as error:  # for instance a line break in a header; nothing was written
            self._failed("answer cannot be written", request, error)
            return _response(problem(500, ProblemCode.SERVER_FAILED, reason="see its log"))
        if large and not must_be_empty_body(incoming.method, answer.status):
            await self._write_body(incoming, request, response, answer.body)
        return response

    async def _write_body(
        self, incoming: web.BaseRequest, request: Request, response: web.StreamResponse, body: bytes
    ) -> None:
        """Write a large body; a client that does not read it is cut off, because it holds the body in memory."""
        pace = self._responses.pace()
        try:
            await self._responses.write(response, body, pace)
            await self._responses.finish(response, pace)
        except TooSlow:
            self._cut(incoming, request)

    def _cut(self, incoming: web.BaseRequest, request: Request) -> None:
        self._log.info("client reads too slowly", method=request.method, path=request.path)
        if incoming.transport is not None:
            incoming.transport.abort()

    async def _write_stream(
        self, incoming: web.BaseRequest, request: Request, stream: Stream
    ) -> web.StreamResponse:
        """Write a stream as it arrives; a slow reader slows the producer."""
        response = web.StreamResponse(status=stream.status, headers=_headers(stream.headers))
        response.force_close()
        chunks = stream.__aiter__()
        finished = False
        pace = self._responses.pace() if stream.paced else None
        try:
            await response.prepare(incoming)
            if incoming.method != hdrs.METH_HEAD:
                async for chunk in chunks:
                    await self._responses.write(response, chunk, pace)
            if pace is not None:
                await self._responses.finish(response, pace)
            finished = True
        except ConnectionError:
            pass  # the client has gone
        except TooSlow:
            self._cut(incoming, request)
        except Exception as error:  # noqa: BLE001 - the boundary: the reader sees a cut stream, and it is logged
            self._failed("stream failed", request, error)
        finally:
            if not finished and incoming.transport is not None:
                # Not closed but cut: closing would wait for a reader that may never read.
                incoming.transport.abort()
            await stream.aclose()
            end = getattr(chunks, "aclose", None)
            if end is not None:
                await end()
        return response

    async def _hand_over(
        self, incoming: web.BaseRequest, request: Request, answer: Upgraded
    ) -> web.StreamResponse:
        """Detach the connection from aiohttp and run the handler's `serve` on it."""
        transport = incoming.transport
        try:
            if transport is not None:
                head = switching(answer.headers)
                reader, writer = take_over(transport)
                writer.write(head)
                await answer.serve(reader, writer)
        except OSError:
            pass  # the client has gone
        except Exception as error:  # noqa: BLE001 - the boundary: the client sees a cut connection, and it is logged
            self._failed("tunnel failed", request, error)
        finally:
            await answer.aclose()
            if transport is not None:
                transport.abort()
            incoming.protocol.connection_lost(None)  # aiohttp was not notified of it
        return _HandedOver(status=101)

    def _failed(self, event: str, request: Request, error: Exception) -> None:
        self._log.error(
            event,
            method=request.method,
            path=request.path,
            kind=type(error).__name__,
            # Only the places: the text of an exception may quote what the client sent.
            trace="".join(traceback.format_tb(error.__traceback__)),
        )


class _HandedOver(web.StreamResponse):
    """Empty response for aiohttp after the connection was handed over."""

    async def prepare(self, request: web.BaseRequest) -> None:
        """Write nothing."""

    async def write_eof(self, data: bytes = b"") -> None:
        """Write nothing."""


class _Connection(web.RequestHandler):
    """A connection that answers unparseable requests with problems, which do not quote the request."""

    __slots__ = ("_address", "_limits")

    def __init__(
        self, manager: web.Server, *, limits: ConnectionLimits | None, **options: Any
    ) -> None:
        super().__init__(manager, **options)
        self._limits = limits
        self._address: str | None = None  # under which it is counted

    def connection_lost(self, exc: BaseException | None) -> None:
        """Make place for another one."""
        super().connection_lost(exc)
        if self._limits is not None and self._address is not None:
            self._limits.leave(self._address)
            self._address = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Buffer little, so that a client that reads slowly is not taken for one that does not read."""
        super().connection_made(transport)
        assert isinstance(transport, asyncio.Transport)
        if self._limits is not None:
            address = str((transport.get_extra_info("peername") or ("",))[0])
            if not self._limits.enter(address):
                transport.abort()
                return
            self._address = address
        transport.set_write_buffer_limits(high=PIECE)  # with TLS it is 512 KB otherwise
        limit_unsent(transport.get_extra_info("socket"))

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Respond to a request that cannot be parsed."""
        self.log_exception("", exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun already")
        code = ProblemCode.REQUEST_UNREADABLE if status < 500 else ProblemCode.SERVER_FAILED
        response = _response(problem(status, code))
        response.force_close()
        return response


class _SilentLogger:
    """Logger for aiohttp that drops its messages, because they quote requests."""

    def __init__(self, log: Logger) -> None:
        self._log = log

    def debug(self, *_: object, **__: object) -> None:
        """Drop the message."""

    def exception(self, *_: object, exc_info: BaseException | None = None, **__: object) -> None:
        """Drop the message: the request could not be parsed, or the connection broke."""
        self._log.debug("connection failed", kind=type(exc_info).__name__)

    error = warning = info = debug


def _headers(pairs: Pairs) -> list[tuple[str, str]]:
    kept = [(name, value) for name, value in pairs if name not in _FRAMING]
    kept.append(("server", _SERVER))
    return kept


def _response(answer: Response) -> web.Response:
    return web.Response(status=answer.status, headers=_headers(answer.headers), body=answer.body)


def _large_response(answer: Response) -> web.StreamResponse:
    """A response whose body is written in pieces."""
    response = web.StreamResponse(status=answer.status, headers=_headers(answer.headers))
    response.content_length = len(answer.body)
    return response


def _certificate(incoming: web.BaseRequest) -> Pairs:
    """Return the subject of the client's verified certificate as headers."""
    transport = incoming.transport
    found = transport.get_extra_info("peercert") if transport is not None else None
    subject = found.get("subject", ()) if found else ()
    return tuple(
        (_SUBJECT[key], value) for part in subject for key, value in part if key in _SUBJECT
    )
