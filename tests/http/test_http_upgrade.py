"""An upgraded connection loses no bytes, buffers a bounded number, and is always closed."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from runyard.http.errors import NotSent, OutcomeUnknown
from runyard.http.exchange import MAX_ERROR_BODY, Fault, NotConnected, Peer, exchange
from runyard.http.loopback import Loopback
from runyard.http.messages import Request, Response, Stream, Upgraded
from runyard.http.server import Listening, listen
from runyard.http.tunnels import join

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]

PATIENCE = 20.0
ASK = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: raw\r\n\r\n"
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: raw\r\n\r\n"
UPGRADE = Request(method="GET", path="/", headers=(("upgrade", "raw"), ("connection", "Upgrade")))
HEADERS = (("connection", "Upgrade"), ("upgrade", "raw"))


@contextlib.asynccontextmanager
async def peer_that(serve: Serve) -> AsyncIterator[Peer]:
    """A server that reads one head and then calls `serve`."""
    tasks: dict[asyncio.Task[None], None] = {}

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks[task] = None
        with contextlib.suppress(OSError, EOFError, asyncio.CancelledError):
            await reader.readuntil(b"\r\n\r\n")
            await serve(reader, writer)
        writer.transport.abort()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield Peer(host="127.0.0.1", port=server.sockets[0].getsockname()[1], answer=PATIENCE)
    finally:
        server.close()
        for task in tasks:
            task.cancel()


@contextlib.asynccontextmanager
async def passing_to(peer: Peer) -> AsyncIterator[Listening]:
    """Our server, in front of that peer."""

    async def handler(request: Request) -> Response | Stream:
        pairs = tuple(pair for pair in request.headers if pair[0] in ("connection", "upgrade"))
        return await exchange(Request(method="GET", path="/", headers=pairs), peer)

    listening = await listen(handler)
    try:
        yield listening
    finally:
        await listening.close()


async def dial(listening: Listening) -> Ends:
    reader, writer = await asyncio.open_connection("127.0.0.1", listening.port)
    writer.write(ASK)
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
    return reader, writer


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(PATIENCE):
            await scenario()

    asyncio.run(main())


# ── tunnels ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_half_close_keeps_the_other_direction_open() -> None:
    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SWITCHED)
        received = await reader.read()  # until the client's end of file
        writer.write(b"%d bytes" % len(received))
        writer.write_eof()

    async def scenario() -> None:
        async with peer_that(count) as peer, passing_to(peer) as listening:
            reader, writer = await dial(listening)
            writer.write(b"x" * 1_000_000)
            writer.write_eof()
            assert await reader.read() == b"1000000 bytes"
            await close(writer)

    run(scenario)


def test_the_last_bytes_of_a_disconnecting_client_arrive() -> None:
    async def scenario() -> None:
        received_bytes: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def listen_to(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(SWITCHED)
            received_bytes.set_result(len(await reader.read()))

        async with peer_that(listen_to) as peer, passing_to(peer) as listening:
            _, writer = await dial(listening)
            writer.write(b"x" * 500_000)
            await close(writer)
            assert await received_bytes == 500_000

    run(scenario)


def test_an_end_that_does_not_read_stops_the_reading_of_the_other() -> None:
    """A node writes into a tunnel whose client does not read: the node must wait."""

    async def scenario() -> None:
        written = 0
        stuck, gone = asyncio.Event(), asyncio.Event()

        async def write_endlessly(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal written
            writer.write(SWITCHED)
            try:
                while True:
                    writer.write(b"x" * 65536)
                    if writer.transport.get_write_buffer_size() > 1 << 18:
                        stuck.set()
                    await writer.drain()
                    written += 65536
            finally:
                gone.set()

        async with peer_that(write_endlessly) as peer, passing_to(peer) as listening:
            _, writer = await dial(listening)
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # it is a socket's
            before = -1
            while before != written:  # until nothing moves any more
                before = written
                await asyncio.sleep(0.2)
            assert written < 32 << 20  # what sockets and two buffers hold, and no more
            writer.transport.abort()
            await gone.wait()  # and a client that disconnects ends it

    run(scenario)


def test_a_tunnel_of_a_disconnected_client_ends_although_the_node_reads_nothing() -> None:
    async def scenario() -> None:
        ended, leaves = asyncio.Event(), asyncio.Event()

        async def read_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(SWITCHED)
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # it is a socket's
            await leaves.wait()

        async with peer_that(read_nothing) as peer:

            async def handler(_: Request) -> Response | Stream:
                answer = await exchange(UPGRADE, peer)
                assert isinstance(answer, Upgraded)
                serve = answer.serve

                async def served(
                    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
                ) -> None:
                    try:
                        await serve(reader, writer)
                    finally:
                        ended.set()

                return Upgraded(served, headers=HEADERS, on_close=answer.close)

            listening = await listen(handler)
            _, writer = await dial(listening)
            for _ in range(200):  # more than all buffers on the way hold
                writer.write(b"x" * 65536)
            await asyncio.sleep(0.2)
            writer.transport.abort()
            leaves.set()
            await ended.wait()
            await listening.close()

    run(scenario)


def test_an_idle_tunnel_stays_open() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SWITCHED)
        while data := await reader.read(100):
            writer.write(data)

    async def scenario() -> None:
        async with peer_that(echo) as peer:
            answer = await exchange(UPGRADE, peer)
            assert isinstance(answer, Upgraded)
            front: asyncio.Future[Ends] = asyncio.get_running_loop().create_future()

            async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                front.set_result((reader, writer))

            server = await asyncio.start_server(accept, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            async with asyncio.TaskGroup() as group:
                joined = group.create_task(_serve(answer, await front))
                await asyncio.sleep(0.3)
                writer.write(b"still there?")
                assert await reader.readexactly(12) == b"still there?"
                assert not joined.done()
                await close(writer)
            server.close()

    async def _serve(answer: Upgraded, ends: Ends) -> None:
        await answer.serve(*ends)

    run(scenario)


def test_an_idle_half_closed_tunnel_is_closed() -> None:
    async def scenario() -> None:
        pairs: list[Ends] = []
        both = asyncio.Event()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            pairs.append((reader, writer))
            if len(pairs) == 2:
                both.set()

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        outer = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        await both.wait()
        outer[0][1].write_eof()
        await join(pairs[0], pairs[1], linger=0.1)
        for reader, writer in outer:
            with contextlib.suppress(OSError):
                assert await reader.read() == b""
            await close(writer)
        server.close()

    run(scenario)


@contextlib.asynccontextmanager
async def two_connections() -> AsyncIterator[tuple[list[Ends], list[Ends]]]:
    """Two connections: the ends that can be joined, and those of the client and of the node."""
    inner: list[Ends] = []
    both = asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner.append((reader, writer))
        if len(inner) == 2:
            both.set()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=1 << 16)
    port = server.sockets[0].getsockname()[1]
    outer = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
    await both.wait()
    if inner[0][1].get_extra_info("peername") != outer[0][1].get_extra_info("sockname"):
        inner.reverse()
    try:
        yield inner, outer
    finally:
        for _, writer in (*inner, *outer):
            writer.transport.abort()
        server.close()


async def _fill(joined: list[Ends], client: asyncio.StreamWriter) -> None:
    """Let the client write until the buffers are full."""
    sink, source = joined[1][1].transport, joined[0][1].transport
    while sink.get_write_buffer_size() == 0 or source.is_reading():  # type: ignore[attr-defined]  # a socket both reads and writes
        client.write(b"x" * 65536)
        await asyncio.sleep(0)


@pytest.mark.parametrize("how", ["reset", "ended"])
def test_a_tunnel_ends_when_its_client_disconnects_and_the_node_reads_nothing(how: str) -> None:
    """The node stays and reads nothing: only the closed client shows that the tunnel is over."""

    async def scenario() -> None:
        async with two_connections() as (inner, outer):
            (_, client), (_, node) = outer
            node.transport.pause_reading()  # type: ignore[attr-defined]  # it is a socket's
            async with asyncio.TaskGroup() as group:
                joined = group.create_task(join(inner[0], inner[1], linger=0.05))
                await _fill(inner, client)
                assert not joined.done()
                if how == "reset":
                    client.transport.abort()
                else:
                    client.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    run(scenario)


def test_an_idle_tunnel_stays_open_as_long_as_its_client() -> None:
    async def scenario() -> None:
        async with two_connections() as (inner, outer):
            (_, client), (reader, node) = outer
            node.transport.pause_reading()  # type: ignore[attr-defined]  # it is a socket's
            async with asyncio.TaskGroup() as group:
                joined = group.create_task(join(inner[0], inner[1], linger=0.001))
                await _fill(inner, client)
                for _ in range(50):  # many times the interval at which the client is checked
                    await asyncio.sleep(0.001)
                assert not joined.done()
                node.transport.resume_reading()  # type: ignore[attr-defined]  # it is a socket's
                assert await reader.read(10) == b"x" * 10
                client.transport.abort()
                node.transport.abort()

    run(scenario)


# ── the server ──────────────────────────────────────────────────────────────────────────────────────


def test_a_handler_can_take_over_the_connection() -> None:
    async def scenario() -> None:
        closed: list[bool] = []

        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            name = await reader.readexactly(5)
            writer.write(b"hello " + name)
            await writer.drain()
            writer.close()
            await writer.wait_closed()

        async def handler(_: Request) -> Response | Stream:
            return Upgraded(greet, headers=HEADERS, on_close=lambda: closed.append(True))

        listening = await listen(handler)
        reader, writer = await dial(listening)
        writer.write(b"world")
        assert await reader.read() == b"hello world"
        await close(writer)
        await listening.close()
        assert closed == [True]

    run(scenario)


@pytest.mark.parametrize("value", ["a\r\nb: c", "a\nb", "a\0"], ids=["crlf", "lf", "zero"])
def test_a_header_that_breaks_out_of_its_line_is_not_written(value: str) -> None:
    async def scenario() -> None:
        closed: list[bool] = []

        async def never(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
            raise AssertionError("served")

        async def handler(_: Request) -> Response | Stream:
            headers = (*HEADERS, ("x", value))
            return Upgraded(never, headers=headers, on_close=lambda: closed.append(True))

        listening = await listen(handler)
        reader, writer = await asyncio.open_connection("127.0.0.1", listening.port)
        writer.write(ASK)
        with contextlib.suppress(OSError):
            assert await reader.read() == b""
        await close(writer)
        await listening.close()
        assert closed == [True]

    run(scenario)


def test_a_server_that_stops_cuts_its_tunnels() -> None:
    async def scenario() -> None:
        begun, closed = asyncio.Event(), asyncio.Event()

        async def wait(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
            begun.set()
            await asyncio.Event().wait()

        async def handler(_: Request) -> Response | Stream:
            return Upgraded(wait, headers=HEADERS, on_close=closed.set)

        listening = await listen(handler)
        reader, writer = await dial(listening)
        await begun.wait()
        await listening.close()
        assert closed.is_set()
        with contextlib.suppress(OSError):
            assert await reader.read() == b""
        await close(writer)

    run(scenario)


def test_a_connection_that_was_refused_an_upgrade_serves_the_next_request() -> None:
    async def scenario() -> None:
        async def handler(request: Request) -> Response | Stream:
            return Response(status=400 if request.header("upgrade") else 200)

        listening = await listen(handler)
        reader, writer = await asyncio.open_connection("127.0.0.1", listening.port)
        for ask, code in ((ASK, b"400"), (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", b"200")):
            writer.write(ask)
            assert (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1] == code
        await close(writer)
        await listening.close()

    run(scenario)


def test_a_loopback_has_no_connection_to_hand_over() -> None:
    async def scenario() -> None:
        closed: list[bool] = []

        async def never(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
            raise AssertionError("served")

        async def handler(_: Request) -> Response | Stream:
            return Upgraded(never, headers=HEADERS, on_close=lambda: closed.append(True))

        answer = await Loopback(handler).send(UPGRADE, timeout=1)
        assert answer.status == 501 and closed == [True]

    run(scenario)


# ── one request over a connection of its own ────────────────────────────────────────────────────────


PLAIN = Request(method="GET", path="/")
WHOLE = {
    "a length": (b"content-length: 5\r\n\r\nhello and more", b"hello"),
    "chunks": (
        b"transfer-encoding: chunked\r\n\r\n2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        b"hello",
    ),
    "until the end": (b"connection: close\r\n\r\nhello", b"hello"),
    "nothing": (b"content-length: 0\r\n\r\n", b""),
}


async def answer_of(answer: bytes) -> Response | Stream:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()
        await close(writer)

    async with peer_that(serve) as peer:
        got = await exchange(PLAIN, peer)
        if isinstance(got, Response):
            return got
        try:
            return Response(status=got.status, body=b"".join([part async for part in got]))
        finally:
            await got.aclose()


@pytest.mark.parametrize(("rest", "body"), WHOLE.values(), ids=WHOLE)
def test_a_body_is_read_to_its_end_and_not_further(rest: bytes, body: bytes) -> None:
    async def scenario() -> None:
        answer = await answer_of(b"HTTP/1.1 100 Wait\r\n\r\nHTTP/1.1 200 OK\r\n" + rest)
        assert answer == Response(status=200, body=body)

    run(scenario)


BROKEN = {
    "no HTTP": b"SSH-2.0-OpenSSH\r\n\r\n",
    "no status": b"HTTP/1.1 two hundred\r\n\r\n",
    "no name": b"HTTP/1.1 200 OK\r\n: x\r\n\r\n",
    "no length": b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n",
    "nothing at all": b"",
    "half a head": b"HTTP/1.1 200 OK\r\n",
    "a head without end": b"HTTP/1.1 200 OK\r\nx: " + b"x" * 300_000,
    "an unwanted upgrade": SWITCHED,
    "half a body": b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf",
    "half a chunk": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\nhalf",
    "no chunk": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    "less than a chunk": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-1\r\n",
    "a chunk without end": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nxyz\r\n",
    "a size without end": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"1" * 300_000,
}


@pytest.mark.parametrize("answer", BROKEN.values(), ids=BROKEN)
def test_a_malformed_answer_is_an_unknown_outcome(answer: bytes) -> None:
    async def scenario() -> None:
        with pytest.raises(OutcomeUnknown):
            await answer_of(answer)

    run(scenario)


def test_only_the_beginning_of_an_error_body_is_read() -> None:
    async def scenario() -> None:
        answer = await answer_of(b"HTTP/1.1 500 No\r\n\r\n" + b"x" * 1_000_000)
        assert isinstance(answer, Response)
        assert (answer.status, len(answer.body)) == (500, MAX_ERROR_BODY)

    run(scenario)


def test_a_refused_connection_of_an_exchange_is_not_sent() -> None:
    async def scenario() -> None:
        with pytest.raises(NotSent, match="connection refused"):
            await exchange(PLAIN, Peer(host="127.0.0.1", port=1))

    run(scenario)


@pytest.mark.parametrize(
    ("host", "port", "fault"),
    [
        ("127.0.0.1", 70000, Fault.PORT),
        ("127.0.0.1", -1, Fault.PORT),
        ("127.0.0.1", 0, Fault.PORT),
        ("..", 1, Fault.HOST),
        ("", 1, Fault.HOST),
        ("a" * 70, 1, Fault.HOST),
        ("a" * 100_000, 1, Fault.HOST),
        ("a\0b", 1, Fault.HOST),
        ("a\r\nx: y", 1, Fault.HOST),
        ("a b", 1, Fault.HOST),
        ("xn--\u00e9", 1, Fault.HOST),
        ("\ud800", 1, Fault.HOST),
        ("[::1]", 1, Fault.HOST),
        ("a@127.0.0.1", 1, Fault.HOST),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_an_invalid_peer_is_not_sent(host: str, port: int, fault: Fault) -> None:
    async def scenario() -> None:
        with pytest.raises(NotConnected) as raised:
            await exchange(Request(method="GET", path="/"), Peer(host=host, port=port))
        assert raised.value.fault is fault

    run(scenario)


def test_a_peer_that_never_answers_times_out() -> None:
    async def scenario() -> None:
        async def wait(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
            await asyncio.Event().wait()

        async with peer_that(wait) as peer:
            hasty = Peer(host=peer.host, port=peer.port, answer=0.1)
            with pytest.raises(OutcomeUnknown, match="timeout"):
                await exchange(PLAIN, hasty)

    run(scenario)
