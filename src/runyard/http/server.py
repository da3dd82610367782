"""Puts a core behind a socket.

The adapter is thin on purpose: aiohttp parses and writes, the core decides. What this module adds are the
manners of a server that strangers may talk to.

Invariants:
- Whatever enters, the client gets a status code or a closed connection, never a traceback; whatever fails
  here is logged by its kind and place. Headers, queries and bodies are never logged: they carry secrets.
- A client that goes away cancels the handler that works for it, or the stream that it was reading; either
  way `Stream.aclose()` is called, at once.
- A stream that its producer could not finish is cut, not ended: the reader can tell the difference.
- What bodies may cost is bounded (`intake`). Of one that is refused, what is on its way is thrown away, for a moment
  and up to a bound, because a connection that is closed on unread bytes takes the refusal with it; then it is closed.
  The head of a request that trickles is refused when patience ends.
- What a client's certificate says reaches the handler under `CLIENT_CERT…`; these names are removed from
  what clients send, so a handler may believe them.
- HEAD is a GET whose body stays here: cores need not know of it.
- After a 101 the connection belongs to what the handler gave for it, and is gone when that returns. What a client
  sends before it has read the 101 breaks the rules, and is not passed on.
"""

import asyncio
import contextlib
import socket
import ssl
import traceback

import msgspec
from aiohttp import hdrs, web
from aiohttp.web_protocol import RequestPayloadError

from runyard.http.addresses import decode_target
from runyard.http.intake import BUDGET, Admit, Intake, Refusal, Share, Streamed
from runyard.http.messages import Handler, Pairs, Request, Response, Stream, Upgraded
from runyard.http.problems import problem
from runyard.http.sockets import bind, notice_vanished_peers
from runyard.http.tunnels import switching, take_over
from runyard.telemetry.log import Logger, get_logger

BODY_LIMIT = 4 << 20
# Of a refused body, in bytes: more than GitHub's largest delivery, which is 25 MB.
DISCARDED = 32 << 20
CLIENT_CERT = "x-runyard-client-cert-"
CLIENT_CERT_CN = CLIENT_CERT + "cn"  # the common name
CLIENT_CERT_O = CLIENT_CERT + "o"  # an organisation; as many headers as the certificate has

_SUBJECT = {"commonName": CLIENT_CERT_CN, "organizationName": CLIENT_CERT_O}
# The adapter frames the answer itself; a handler's opinion on that could only contradict it.
_FRAMING = frozenset(
    ("connection", "content-length", "keep-alive", "transfer-encoding", "upgrade", "server")
)
_SERVER = "runyard"


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long the server waits, in seconds."""

    head: float = 75.0  # for the head of the first or of the next request on a connection
    body: float = 60.0  # for the whole body of a request
    linger: float = 2.0  # while a refused body is thrown away, so that its refusal can be read
    handshake: float = 15.0  # for TLS to come about
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
    patience: Patience | None = None,
) -> Listening:
    """Serve `handler` at `host:port`, or on a socket that is bound already.

    `bodies` bounds what all bodies under way hold, and `admit` says from whom a large one is taken (`intake`).
    The body of a request that is `streamed` reaches the handler as it comes, of whatever size (`Request.content`).
    """
    patience = patience or Patience()
    bound = sock if sock is not None else bind(host, port)
    notice_vanished_peers(bound)
    intake = Intake(limit=body_limit, budget=bodies, patience=patience.body, admit=admit)
    adapter = _Adapter(
        handler, intake, secure=tls is not None, patience=patience, streamed=streamed
    )
    acceptor = await asyncio.get_running_loop().create_server(
        adapter.connection,
        sock=bound,
        ssl=tls,
        backlog=512,
        ssl_handshake_timeout=patience.handshake if tls is not None else None,
        ssl_shutdown_timeout=1.0 if tls is not None else None,
    )
    name = acceptor.sockets[0].getsockname()
    return Listening(adapter, acceptor, address=(name[0], name[1]), tls=tls is not None)


class _Adapter:
    """Translates between aiohttp's requests and ours, and keeps account of the work under way."""

    def __init__(
        self,
        handler: Handler,
        intake: Intake,
        *,
        secure: bool,
        patience: Patience,
        streamed: Streamed | None,
    ) -> None:
        self._handler = handler
        self._streamed = streamed
        self._intake = intake
        self._secure = secure
        self._patience = patience
        self._log = get_logger("http")
        self._working: dict[asyncio.Task[object], None] = {}
        self._streaming: dict[asyncio.Task[object], None] = {}
        self._draining = False
        self._server = web.Server(self._serve, handler_cancellation=True)

    def connection(self) -> web.RequestHandler:
        """The protocol of one new connection."""
        return _Connection(
            self._server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # documented: None means no access log
            logger=_Quiet(self._log),  # type: ignore[arg-type]  # all that is asked of it
            keepalive_timeout=self._patience.head,
            lingering_time=0,  # see `_refuse`
            auto_decompress=False,  # the body is what was signed; whoever cares looks at its header
        )

    async def drain(self) -> None:
        """End all work: streams now, requests when they are done or patience ends."""
        self._draining = True
        for task in list(self._streaming):
            task.cancel()
        self._server.pre_shutdown()
        if self._working:
            await asyncio.wait(list(self._working), timeout=self._patience.close)
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
            return await self._whole(incoming, request, answer)
        self._streaming[task] = None
        try:
            if isinstance(answer, Upgraded):
                return await self._hand_over(incoming, request, answer)
            return await self._pour(incoming, request, answer)
        finally:
            del self._streaming[task]

    async def _handled(self, request: Request) -> Response | Stream:
        try:
            return await self._handler(request)
        except Exception as error:  # noqa: BLE001 - the boundary: a handler that fails is a 500, and logged
            self._failed("handler failed", request, error)
            return problem(500, "the server failed", reason="see its log")

    async def _refuse(self, incoming: web.BaseRequest, answer: Response) -> web.StreamResponse:
        """Say no while the body is still on its way, and read on until that can have been heard."""
        response = _response(answer)
        response.force_close()
        left = DISCARDED
        gone = (TimeoutError, ConnectionError, RequestPayloadError, web.HTTPException)
        with contextlib.suppress(*gone):
            await response.prepare(incoming)
            await response.write_eof()
            async with asyncio.timeout(self._patience.linger):
                while left > 0 and (part := await incoming.content.readany()):
                    left -= len(part)
        return response

    # ── in ──────────────────────────────────────────────────────────────────────────────────────

    async def _request(self, incoming: web.BaseRequest, share: Share) -> Request:
        try:
            path, query = decode_target(incoming.raw_path)
        except ValueError as error:
            reason = "not UTF-8" if isinstance(error, UnicodeError) else str(error)
            raise Refusal(problem(400, "unreadable request target", reason=reason)) from None
        headers = tuple(
            (name, value)
            for key, value in incoming.headers.items()
            if not (name := key.lower()).startswith(CLIENT_CERT)
        )
        if self._secure:
            headers += _certificate(incoming)
        head = Request(
            method="GET" if incoming.method == hdrs.METH_HEAD else incoming.method,
            path=path,
            query=query,
            headers=headers,
        )
        if not incoming.can_read_body:
            return head
        if self._streamed is not None and self._streamed(head):
            return msgspec.structs.replace(head, content=self._intake.pieces(incoming))
        body = await self._intake.read(incoming, head, share)
        return msgspec.structs.replace(head, body=body) if body else head

    # ── out ─────────────────────────────────────────────────────────────────────────────────────

    async def _whole(
        self, incoming: web.BaseRequest, request: Request, answer: Response
    ) -> web.StreamResponse:
        try:
            response = _response(answer)
            if self._draining:
                response.force_close()
            await response.prepare(incoming)  # buffered: nothing is on the wire yet
        except ValueError as error:  # for instance a line break in a header
            self._failed("answer cannot be written", request, error)
            response = _response(problem(500, "the server failed", reason="see its log"))
        return response

    async def _pour(
        self, incoming: web.BaseRequest, request: Request, stream: Stream
    ) -> web.StreamResponse:
        """Write a stream as it comes; a slow reader slows the producer."""
        response = web.StreamResponse(status=stream.status, headers=_headers(stream.headers))
        response.force_close()
        chunks = stream.__aiter__()
        finished = False
        try:
            await response.prepare(incoming)
            if incoming.method != hdrs.METH_HEAD:
                async for chunk in chunks:
                    await response.write(chunk)
            finished = True
        except ConnectionError:
            pass  # the client has gone
        except Exception as error:  # noqa: BLE001 - the boundary: the reader sees a cut stream, we a line
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
        """Let what the handler gave speak with the client, on a connection that is aiohttp's no more."""
        transport = incoming.transport
        try:
            if transport is not None:
                head = switching(answer.headers)
                reader, writer = take_over(transport)
                writer.write(head)
                await answer.serve(reader, writer)
        except OSError:
            pass  # the client has gone
        except Exception as error:  # noqa: BLE001 - the boundary: the client sees a cut connection, we a line
            self._failed("tunnel failed", request, error)
        finally:
            await answer.aclose()
            if transport is not None:
                transport.abort()
            incoming.protocol.connection_lost(None)  # it has not heard of it
        return _Handed(status=101)

    def _failed(self, event: str, request: Request, error: Exception) -> None:
        self._log.error(
            event,
            method=request.method,
            path=request.path,
            kind=type(error).__name__,
            # Only the places: the text of an exception may quote what the client sent.
            trace="".join(traceback.format_tb(error.__traceback__)),
        )


class _Handed(web.StreamResponse):
    """Stands where aiohttp wants a response, after the connection was handed over: there is nothing to write."""

    async def prepare(self, request: web.BaseRequest) -> None:
        """Write nothing."""

    async def write_eof(self, data: bytes = b"") -> None:
        """Write nothing."""


class _Connection(web.RequestHandler):
    """A connection whose refusals are problems too, and repeat nothing of what they refuse."""

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what could not be parsed."""
        self.log_exception("", exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun already")
        text = "the request cannot be read" if status < 500 else "the server failed"
        response = _response(problem(status, text))
        response.force_close()
        return response


class _Quiet:
    """Stands where aiohttp wants a logger; its messages quote what clients sent, so none is kept."""

    def __init__(self, log: Logger) -> None:
        self._log = log

    def debug(self, *_: object, **__: object) -> None:
        """Say nothing."""

    def exception(self, *_: object, exc_info: BaseException | None = None, **__: object) -> None:
        """A request that could not even be parsed, or a connection that broke."""
        self._log.debug("connection failed", kind=type(exc_info).__name__)

    error = warning = info = debug


def _headers(pairs: Pairs) -> list[tuple[str, str]]:
    kept = [(name, value) for name, value in pairs if name not in _FRAMING]
    kept.append(("server", _SERVER))
    return kept


def _response(answer: Response) -> web.Response:
    return web.Response(status=answer.status, headers=_headers(answer.headers), body=answer.body)


def _certificate(incoming: web.BaseRequest) -> Pairs:
    """What the verified certificate of the client says about it, as headers."""
    transport = incoming.transport
    found = transport.get_extra_info("peercert") if transport is not None else None
    subject = found.get("subject", ()) if found else ()
    return tuple(
        (_SUBJECT[key], value) for part in subject for key, value in part if key in _SUBJECT
    )
