"""The server answers or closes the connection for any input, and closes every stream."""

import asyncio
import contextlib
import io
import socket
from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.http.peers import GET, Echo, answer, answered, carried, post, serving, stream

from runyard.http.addresses import decode_target, encode_target
from runyard.http.errors import OutcomeUnknown
from runyard.http.messages import Request, Response, Stream
from runyard.http.server import Timeouts, listen
from runyard.telemetry import log

WATCH = Request(method="GET", path="/w", query=(("watch", "true"),))


async def exchanged(request: Request) -> Request:
    """What the handler sees of a request."""
    echo = Echo()
    async with serving(echo) as server, carried(server.url) as transport:
        await answer(transport, request)
    return echo.seen[0]


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    lines = io.StringIO()
    log.configure(level="debug", stream=lines)
    yield lines
    log.configure(level="critical")


# ── requests ────────────────────────────────────────────────────────────────────────────────────────

PATHS = ["/", "/a b", "/ü/名", "/a%2Fb", "/a/../b/./c", "//x//", "/?#&=+", "/%", "/a;b=c,d:e@f"]


@pytest.mark.parametrize("path", PATHS)
def test_a_path_survives(path: str) -> None:
    assert asyncio.run(exchanged(Request(method="GET", path=path))).path == path


TEXT = st.text(st.characters(exclude_categories=("Cs",)))


@given(path=TEXT, query=st.lists(st.tuples(TEXT, TEXT)))
def test_every_target_survives(path: str, query: list[tuple[str, str]]) -> None:
    assert decode_target(encode_target("/" + path, tuple(query))) == ("/" + path, tuple(query))


def test_a_request_arrives_as_it_was_sent() -> None:
    sent = Request(
        method="PATCH",
        path="/x",
        query=(("z", "1"), ("a", "ü &=+"), ("z", ""), ("", "v")),
        headers=(("x-twice", "1"), ("x-twice", "2"), ("authorization", "Bearer x")),
        body=b"\x00\xff",
    )
    got = asyncio.run(exchanged(sent))
    assert (got.method, got.query, got.body) == (sent.method, sent.query, sent.body)
    assert [pair for pair in got.headers if pair in sent.headers] == list(sent.headers)
    assert all(name == name.lower() for name, _ in got.headers)


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        (b"/a%2Fb?x=%2f&x", "/a/b", (("x", "/"), ("x", ""))),
        (b"http://host:1/a?b=c", "/a", (("b", "c"),)),
        (b"http://host", "/", ()),
        (b"/a?b+c=d+e&&", "/a", (("b c", "d e"),)),
    ],
)
def test_unusual_valid_targets_are_parsed(target: bytes, path: str, query: object) -> None:
    echo = Echo()
    asyncio.run(answered(GET.replace(b" / ", b" " + target + b" "), echo))
    assert (echo.seen[0].path, echo.seen[0].query) == (path, query)


@pytest.mark.parametrize("target", [b"/%ff", b"/?a=%ff", b"*", b"/\xff"])
def test_a_target_that_is_not_utf8_is_refused(target: bytes) -> None:
    method = b"OPTIONS " if target == b"*" else b"GET "
    text = GET.replace(b"GET / ", method + target + b" ")
    got = asyncio.run(answered(text))
    assert got.split()[1] == b"400"
    assert b'{"error":' in got


def test_certificate_headers_of_a_client_are_removed() -> None:
    sent = Request(
        method="GET", path="/", headers=(("X-Runyard-Client-Cert-CN", "admin"), ("x-other", "kept"))
    )
    got = asyncio.run(exchanged(sent))
    assert not got.header("x-runyard-client-cert-cn")
    assert got.header("x-other") == "kept"


# ── answers ─────────────────────────────────────────────────────────────────────────────────────────


async def got_from(given: Response, method: str = "GET") -> Response:
    async def handler(_: Request) -> Response:
        return given

    async with serving(handler) as server, carried(server.url) as transport:
        return await answer(transport, Request(method=method, path="/"))


BODIES = pytest.mark.parametrize(
    "body", [b"\x00\xff", bytes(range(256)) * 4099], ids=["small", "large"]
)


@BODIES
def test_an_answer_arrives_as_it_was_given(body: bytes) -> None:
    given_ = Response(
        status=418,
        headers=(("content-type", "x/y"), ("set-cookie", "a=1"), ("set-cookie", "b=2")),
        body=body,
    )
    got = asyncio.run(got_from(given_))
    assert (got.status, got.body) == (418, given_.body)
    assert [pair for pair in got.headers if pair in given_.headers] == list(given_.headers)
    assert got.header("server") == "runyard"


@BODIES
def test_a_handler_cannot_break_the_framing(body: bytes) -> None:
    lies = (("content-length", "999"), ("transfer-encoding", "chunked"), ("connection", "close"))
    assert asyncio.run(got_from(Response(status=200, headers=lies, body=body))).body == body


@BODIES
@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_that_must_be_empty_is_empty(status: int, body: bytes) -> None:
    got = asyncio.run(got_from(Response(status=status, body=body)))
    assert (got.status, got.body) == (status, b"")


@BODIES
def test_a_connection_is_used_again_after_an_answer(body: bytes) -> None:
    async def handler(_: Request) -> Response:
        return Response(status=200, body=body)

    kept = GET.replace(b"connection: close\r\n", b"")
    text = asyncio.run(answered(kept + kept + GET, handler))
    assert text.count(b"HTTP/1.1 200 OK") == 3
    assert text.count(b"\r\n\r\n" + body) == 3 and text.endswith(body)


@BODIES
def test_head_is_a_get_without_the_body(body: bytes) -> None:
    async def handler(request: Request) -> Response:
        assert request.method == "GET"
        return Response(status=200, body=body)

    text = asyncio.run(answered(GET.replace(b"GET", b"HEAD"), handler)).lower()
    assert b"content-length: %d\r\n" % len(body) in text
    assert text.endswith(b"\r\n\r\n")


def test_head_of_a_stream_closes_it() -> None:
    async def scenario() -> None:
        closed = asyncio.Event()

        async def never() -> AsyncIterator[bytes]:
            await asyncio.Event().wait()
            yield b""

        async def handler(_: Request) -> Stream:
            return Stream(never(), on_close=closed.set)

        assert (await answered(GET.replace(b"GET", b"HEAD"), handler)).endswith(b"\r\n\r\n")
        assert closed.is_set()

    asyncio.run(scenario())


def test_a_handler_that_raises_is_a_500_without_a_trace_and_a_log_without_a_secret(
    logged: io.StringIO,
) -> None:
    async def handler(request: Request) -> Response:
        raise ValueError(f"cannot parse {request.body!r}")

    head = b"authorization: Basic hunter2\r\ncontent-length: 7"
    text = asyncio.run(answered(post(head, b"hunter2").replace(b" / ", b" /p?q=hunter2 "), handler))
    assert text.startswith(b"HTTP/1.1 500 ")
    assert b"Traceback" not in text and b"ValueError" not in text and b"cannot parse" not in text
    assert "handler failed" in logged.getvalue()
    assert "ValueError" in logged.getvalue()
    assert "test_http_server.py" in logged.getvalue()
    assert "hunter2" not in logged.getvalue()


@BODIES
def test_an_answer_that_cannot_be_written_is_a_500(logged: io.StringIO, body: bytes) -> None:
    bad = Response(status=200, headers=(("x", "a\r\nb: c"),), body=body)
    got = asyncio.run(got_from(bad))
    assert got.status == 500
    assert "answer cannot be written" in logged.getvalue()


@pytest.mark.parametrize(
    "text", [b"hunter2\r\n\r\n", GET.replace(b"host", b"hunter2 \x00: x\r\nhost")]
)
def test_an_unparseable_request_is_not_logged(text: bytes, logged: io.StringIO, capfd) -> None:
    assert b" 400 " in asyncio.run(answered(text))
    assert "hunter2" not in logged.getvalue()
    assert capfd.readouterr() == ("", "")


# ── streams ─────────────────────────────────────────────────────────────────────────────────────────


class Tap:
    """A stream that yields what the test puts into it, and records its end."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self.closed = asyncio.Event()
        self.taken = 0

    def __aiter__(self) -> "Tap":
        return self

    async def __anext__(self) -> bytes:
        item = await self.queue.get()
        self.taken += 1
        if item is None:
            raise StopAsyncIteration
        if isinstance(item, Exception):
            raise item
        return item

    async def handle(self, _: Request) -> Stream:
        return Stream(self, headers=(("content-type", "x/y"),), on_close=self.closed.set)


def test_a_stream_is_not_held_back_and_ends_well() -> None:
    async def scenario() -> None:
        tap = Tap()
        async with serving(tap.handle) as server, carried(server.url) as transport:
            got = await stream(transport, WATCH)
            assert ("content-type", "x/y") in got.headers
            chunks = got.__aiter__()
            for line in (b"1\n", b"2\n"):
                tap.queue.put_nowait(line)
                assert await anext(chunks) == line
            tap.queue.put_nowait(None)
            assert await anext(chunks, None) is None
            await tap.closed.wait()
            await got.aclose()

    asyncio.run(scenario())


def test_a_stream_whose_producer_fails_is_cut(logged: io.StringIO) -> None:
    async def scenario() -> None:
        tap = Tap()
        async with serving(tap.handle) as server, carried(server.url) as transport:
            got = await stream(transport, WATCH)
            tap.queue.put_nowait(RuntimeError("hunter2"))
            with pytest.raises(OutcomeUnknown):
                await anext(got.__aiter__())
            await tap.closed.wait()
            await got.aclose()

    asyncio.run(scenario())
    assert "stream failed" in logged.getvalue()
    assert "hunter2" not in logged.getvalue()


@pytest.mark.parametrize("how", ["aclose", "reset"])
def test_a_reader_that_disconnects_closes_a_silent_stream(how: str) -> None:
    async def scenario() -> None:
        tap = Tap()
        async with serving(tap.handle) as server:
            if how == "aclose":
                async with carried(server.url) as transport:
                    await (await stream(transport, WATCH)).aclose()
                    await tap.closed.wait()
            else:
                reader, writer = await asyncio.open_connection(server.host, server.port)
                writer.write(GET)
                await reader.readuntil(b"\r\n\r\n")
                writer.transport.abort()
                await tap.closed.wait()

    asyncio.run(scenario())


def test_a_generator_behind_a_stream_is_ended_with_it() -> None:
    async def scenario() -> None:
        ended = asyncio.Event()

        async def endless() -> AsyncIterator[bytes]:
            try:
                while True:
                    yield b"x" * 100_000  # full buffers: the cancellation happens during the write
            finally:
                ended.set()

        async def handler(_: Request) -> Stream:
            return Stream(endless())

        async with serving(handler) as server, carried(server.url) as transport:
            got = await stream(transport, WATCH)
            await anext(got.__aiter__())
            await got.aclose()
            await ended.wait()

    asyncio.run(scenario())


def test_a_slow_reader_slows_the_producer() -> None:
    async def scenario() -> None:
        tap = Tap()
        for _ in range(10_000):
            tap.queue.put_nowait(b"x" * 65536)
        async with serving(tap.handle) as server, carried(server.url) as transport:
            got = await stream(transport, WATCH)
            before = -1
            while before != tap.taken:  # until the producer makes no progress while the loop turns
                before = tap.taken
                for _ in range(200):
                    await asyncio.sleep(0)
            assert 0 < tap.taken < 1000
            await got.aclose()
            await tap.closed.wait()

    asyncio.run(scenario())


def test_a_client_that_disconnects_cancels_its_handler() -> None:
    async def scenario() -> None:
        asked, cancelled = asyncio.Event(), asyncio.Event()

        async def handler(_: Request) -> Response:
            asked.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise
            return Response(status=200)

        async with serving(handler) as server, carried(server.url) as transport:
            sending = asyncio.ensure_future(transport.send(WATCH, timeout=60))
            await asked.wait()
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sending
            await cancelled.wait()

    asyncio.run(scenario())


# ── the end ─────────────────────────────────────────────────────────────────────────────────────────


def test_closing_cuts_streams_and_lets_requests_end() -> None:
    async def scenario() -> None:
        tap, asked, go = Tap(), asyncio.Event(), asyncio.Event()

        async def handler(request: Request) -> Response | Stream:
            if request.query:
                return await tap.handle(request)
            asked.set()
            await go.wait()
            return Response(status=200, body=b"done")

        server = await listen(handler)
        async with carried(server.url) as transport:
            watch = await stream(transport, WATCH)
            working = asyncio.ensure_future(answer(transport, Request(method="POST", path="/")))
            await asked.wait()
            closing = asyncio.ensure_future(server.close())
            with pytest.raises(OutcomeUnknown):
                await anext(watch.__aiter__())
            await tap.closed.wait()
            assert not closing.done()
            go.set()
            assert (await working).body == b"done"
            await closing
            await watch.aclose()

    asyncio.run(scenario())


def test_closing_does_not_wait_for_ever() -> None:
    async def scenario() -> None:
        asked, cancelled = asyncio.Event(), asyncio.Event()

        async def handler(_: Request) -> Response:
            asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
            return Response(status=200)

        server = await listen(handler, timeouts=Timeouts(close=0.01))
        async with carried(server.url) as transport:
            sending = asyncio.ensure_future(
                transport.send(Request(method="POST", path="/"), timeout=60)
            )
            await asked.wait()
            await server.close()
            assert cancelled.is_set()
            with pytest.raises(OutcomeUnknown):
                await sending

    asyncio.run(scenario())


def test_closing_ends_idle_connections_at_once() -> None:
    async def scenario() -> None:
        server = await listen(Echo())
        async with carried(server.url) as transport:
            await answer(transport, Request(method="GET", path="/"))
            await server.close()

    asyncio.run(scenario())


def test_a_bound_socket_is_served_and_its_address_reported() -> None:
    async def scenario() -> None:
        sock = socket.create_server(("127.0.0.1", 0))
        server = await listen(Echo(), sock=sock)
        assert (server.host, server.port) == sock.getsockname()[:2]
        assert server.url == f"http://127.0.0.1:{server.port}"
        async with carried(server.url) as transport:
            assert (await answer(transport, Request(method="GET", path="/"))).status == 200
        await server.close()

    asyncio.run(scenario())


def test_the_next_server_takes_over_the_same_socket() -> None:
    """A restarted child serves on the socket that its parent kept open."""

    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as kept:
            for _ in range(2):
                server = await listen(Echo(), sock=kept.dup())
                async with carried(server.url) as transport:
                    got = await answer(transport, Request(method="GET", path="/"))
                    assert got.status == 200
                await server.close()

    asyncio.run(scenario())


def test_every_address_of_the_machine_is_reached_by_loopback() -> None:
    async def scenario() -> None:
        server = await listen(Echo(), host="0.0.0.0")
        assert server.url == f"http://127.0.0.1:{server.port}"
        await server.close()

    asyncio.run(scenario())
