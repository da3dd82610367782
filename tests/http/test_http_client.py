"""A request that may have been carried out is never reported as not sent, and no write is sent twice."""

import asyncio
import socket

import pytest
from tests.http.peers import CHUNKED, OK, answer, carried, read_request, scripted, stream

from runyard.http.client import HttpTransport
from runyard.http.errors import NotSent, OutcomeUnknown
from runyard.http.messages import Request, Response, Stream

METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
WATCH = Request(method="GET", path="/w", query=(("watch", "true"),))


def ask(method: str = "POST") -> Request:
    return Request(method=method, path="/x", body=b"" if method == "GET" else b"{}")


async def close_unread(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
    pass


async def close_read(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await read_request(reader)


async def half_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_request(reader)
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-le")


async def half_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_request(reader)
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf")


async def half_chunked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_request(reader)
    writer.write(CHUNKED + b"4\r\nhalf\r\n")


async def not_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_request(reader)
    writer.write(b"220 mail.example ESMTP\r\n")


async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_request(reader)
    writer.transport.abort()


BAD_PEERS = [close_unread, close_read, half_head, half_body, half_chunked, not_http, reset]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("script", BAD_PEERS, ids=lambda script: script.__name__)
def test_every_failure_after_the_connection_was_made_is_an_unknown_outcome(script, method) -> None:
    async def scenario() -> None:
        async with scripted(script) as (url, peer), carried(url) as transport:
            with pytest.raises(OutcomeUnknown):
                await transport.send(ask(method), timeout=20)
            assert peer.connections == 1  # not even a read is repeated on a new connection

    asyncio.run(scenario())


@pytest.mark.parametrize("method", METHODS)
def test_a_refused_connection_is_not_sent(method: str) -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        async with carried(f"http://127.0.0.1:{port}") as transport:
            with pytest.raises(NotSent, match=r"/x: connection refused$"):
                await transport.send(ask(method), timeout=20)

    asyncio.run(scenario())


def test_a_name_that_does_not_resolve_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    async def scenario() -> None:
        async with carried("http://nowhere.invalid:1") as transport:
            with pytest.raises(NotSent):
                await transport.send(ask(), timeout=20)

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    asyncio.run(scenario())


def test_a_peer_that_accepts_and_never_answers_is_an_unknown_outcome() -> None:
    async def scenario() -> None:
        gone = asyncio.Event()

        async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
            await read_request(reader)
            with pytest.raises(ConnectionResetError):  # what the kernel still holds is discarded
                await reader.read()
            gone.set()

        async with scripted(silent) as (url, peer), carried(url) as transport:
            with pytest.raises(OutcomeUnknown, match="no answer within"):
                await transport.send(ask(), timeout=0.05)
            await gone.wait()
            assert peer.connections == 1

    asyncio.run(scenario())


def test_a_connection_timeout_is_not_sent() -> None:
    async def scenario() -> None:
        # Nothing accepts, and the backlog is full: the TCP handshake cannot end.
        with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            for sock in (first, second):
                sock.setblocking(False)
                sock.connect_ex(listener.getsockname())
            async with carried(f"http://127.0.0.1:{listener.getsockname()[1]}") as transport:
                with pytest.raises(NotSent, match="no answer within"):
                    await transport.send(ask(), timeout=0.1)

    asyncio.run(scenario())


def test_waiting_for_a_pooled_connection_is_not_sent() -> None:
    async def scenario() -> None:
        asked = asyncio.Event()

        async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
            await read_request(reader)
            asked.set()
            await reader.read()

        async with scripted(silent) as (url, peer):
            transport = HttpTransport(url, pool=1)
            first = asyncio.ensure_future(transport.send(ask(), timeout=60))
            await asked.wait()
            with pytest.raises(NotSent):
                await transport.send(ask(), timeout=0.05)
            assert peer.connections == 1
            first.cancel()
            await asyncio.wait([first])
            await transport.close()

    asyncio.run(scenario())


def test_open_watches_do_not_use_up_the_connections_of_writes() -> None:
    async def scenario() -> None:
        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked = await read_request(reader)
            writer.write(CHUNKED if asked.startswith(b"GET") else OK)
            await reader.read()

        async with scripted(script) as (url, _):
            transport = HttpTransport(url, pool=1)
            watch = await stream(transport, WATCH)
            assert (await answer(transport, ask())).body == b"ok"
            await watch.aclose()
            await transport.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("path", ["x", "", "/\ud800"], ids=["no slash", "empty", "no text"])
def test_a_request_that_cannot_be_written_is_not_sent(path: str) -> None:
    async def scenario() -> None:
        async with scripted(close_unread) as (url, peer), carried(url) as transport:
            with pytest.raises(NotSent):
                await transport.send(Request(method="GET", path=path), timeout=20)
            with pytest.raises(NotSent):
                bad = Request(method="GET", path="/", headers=(("x", "a\r\nb: c"),))
                await transport.send(bad, timeout=20)
            assert peer.connections == 0

    asyncio.run(scenario())


def test_after_close_nothing_is_sent() -> None:
    async def scenario() -> None:
        transport = HttpTransport("http://127.0.0.1:1")
        await transport.close()
        with pytest.raises(NotSent, match="closed"):
            await transport.send(ask(), timeout=20)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:80", "ftp://host", "http://", "http://u:p@h", "http://h/?a=b"]
)
def test_an_invalid_address_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="address"):
        HttpTransport(url)


# ── kept-alive connections ──────────────────────────────────────────────────────────────────────────


class Lingering:
    """A server that answers, waits for a signal of the test, and then closes its connections."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.answered: list[bytes] = []
        self.writers: list[asyncio.StreamWriter] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        while asked := await read_request(reader):
            if self.gate.is_set() and writer is self.writers[0]:
                return  # as a server does whose idle timer ran out while we were writing
            self.answered.append(asked.split()[0])
            writer.write(OK)


def test_a_read_on_a_connection_that_died_idle_is_repeated_on_another() -> None:
    async def scenario() -> None:
        server = Lingering()
        async with scripted(server) as (url, peer), carried(url) as transport:
            await answer(transport, ask("GET"))
            server.gate.set()
            assert (await answer(transport, ask("GET"))).body == b"ok"
            assert peer.connections == 2

    asyncio.run(scenario())


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_write_is_never_repeated(method: str) -> None:
    async def scenario() -> None:
        server = Lingering()
        async with scripted(server) as (url, peer), carried(url) as transport:
            await answer(transport, ask(method))
            server.gate.set()
            with pytest.raises(OutcomeUnknown):
                await transport.send(ask(method), timeout=20)
            assert peer.connections == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_write_does_not_use_a_connection_that_has_idled(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runyard.http.client._IDLE_WRITES", 0.0)

    async def scenario() -> None:
        server = Lingering()
        async with scripted(server) as (url, peer), carried(url) as transport:
            await answer(transport, ask(method))
            server.gate.set()
            assert (await answer(transport, ask(method))).body == b"ok"
            assert peer.connections == 2

    asyncio.run(scenario())


@pytest.mark.parametrize("method", METHODS)
def test_consecutive_requests_share_one_connection(method: str) -> None:
    async def scenario() -> None:
        server = Lingering()
        async with scripted(server) as (url, peer), carried(url) as transport:
            for _ in range(20):
                await answer(transport, ask(method))
            assert peer.connections == 1

    asyncio.run(scenario())


# ── what is carried ─────────────────────────────────────────────────────────────────────────────────


async def echo_one(request: Request, reply: bytes = OK) -> bytes:
    """What a request looks like on the wire."""
    seen: list[bytes] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await read_request(reader))
        writer.write(reply)

    async with scripted(script) as (url, _), carried(f"{url}/base/") as transport:
        await transport.send(request, timeout=20)
    return seen[0]


def test_a_request_is_written_as_it_was_given() -> None:
    request = Request(
        method="PATCH",
        path="/a b/ü/../%2F",
        query=(("z", "1"), ("a", "x y&=+"), ("z", "")),
        headers=(("x-twice", "1"), ("content-type", "text/x"), ("x-twice", "2")),
        body=b"\x00body",
    )
    head, _, body = asyncio.run(echo_one(request)).partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    assert head.startswith(
        b"PATCH /base/a%20b/%C3%BC/../%252F?z=1&a=x%20y%26%3D%2B&z= HTTP/1.1\r\n"
    )
    assert [line for line in lines if b"twice" in line] == [b"x-twice: 1", b"x-twice: 2"]
    assert b"content-type: text/x" in lines
    assert b"user-agent: runyard" in lines
    assert not [line for line in lines if line.startswith((b"accept-encoding", b"cookie"))]
    assert body == b"\x00body"


def test_a_body_without_a_type_is_given_none() -> None:
    assert b"content-type" not in asyncio.run(echo_one(ask())).lower()


def test_a_large_body_is_carried_whole() -> None:
    body = bytes(range(256)) * (5 << 12)
    wire = asyncio.run(echo_one(Request(method="PUT", path="/", body=body)))
    assert wire.endswith(b"\r\n\r\n" + body)


def test_an_answer_is_what_was_sent() -> None:
    async def scenario() -> None:
        reply = (
            b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n"
            b"Content-Encoding: gzip\r\nContent-Length: 6\r\n\r\nnotzip"
        )

        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while asked := await read_request(reader):
                assert b"cookie" not in asked.lower()
                writer.write(reply)

        async with scripted(script) as (url, _), carried(url) as transport:
            for _ in range(2):
                got = await answer(transport, ask())
                assert (got.status, got.body) == (302, b"notzip")
                assert [v for k, v in got.headers if k == "set-cookie"] == ["a=1", "b=2"]
                assert got.header("location") == "/elsewhere"

    asyncio.run(scenario())


def test_an_answer_over_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runyard.http.client.ANSWER_LIMIT", 1000)

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(CHUNKED)
        while True:
            writer.write(b"64\r\n" + b"x" * 100 + b"\r\n")
            await writer.drain()

    async def huge(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1001\r\n\r\n")
        await reader.read()

    async def scenario() -> None:
        for script in (endless, huge):
            async with scripted(script) as (url, _), carried(url) as transport:
                with pytest.raises(OutcomeUnknown, match="larger than"):
                    await transport.send(ask("GET"), timeout=20)

    asyncio.run(scenario())


# ── streams ─────────────────────────────────────────────────────────────────────────────────────────

STREAMING = {
    "watch=true": Request(method="GET", path="/", query=(("watch", "true"),)),
    "watch=1": Request(method="GET", path="/", query=(("watch", "1"),)),
    "follow=true": Request(method="GET", path="/", query=(("a", "b"), ("follow", "true"))),
    "events": Request(method="GET", path="/", headers=(("accept", "text/event-stream"),)),
}
ENDED = CHUNKED + b"2\r\nok\r\n0\r\n\r\n"


@pytest.mark.parametrize("name", STREAMING)
def test_a_request_for_a_stream_gets_a_stream(name: str) -> None:
    async def scenario() -> None:
        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            writer.write(ENDED)

        async with scripted(script) as (url, _), carried(url) as transport:
            got = await stream(transport, STREAMING[name])
            assert [chunk async for chunk in got] == [b"ok"]
            assert [chunk async for chunk in got] == []
            await got.aclose()
            await got.aclose()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("request_", "reply"),
    [
        (ask("GET"), ENDED),
        (Request(method="GET", path="/", query=(("watch", "false"),)), ENDED),
        (WATCH, OK),
        (WATCH, ENDED.replace(b"200 OK", b"410 Gone")),
    ],
    ids=["nobody asked", "watch=false", "of known length", "a refusal"],
)
def test_other_answers_are_read_whole(request_: Request, reply: bytes) -> None:
    async def scenario() -> None:
        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            writer.write(reply)

        async with scripted(script) as (url, _), carried(url) as transport:
            assert (await answer(transport, request_)).body == b"ok"

    asyncio.run(scenario())


def test_a_line_of_a_watch_arrives_before_the_next_is_written() -> None:
    async def scenario() -> None:
        seen = asyncio.Event()

        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            writer.write(CHUNKED + b"2\r\n1\n\r\n")
            await seen.wait()
            writer.write(b"2\r\n2\n\r\n0\r\n\r\n")

        async with scripted(script) as (url, _), carried(url) as transport:
            lines = (got := await stream(transport, WATCH)).__aiter__()
            assert await anext(lines) == b"1\n"
            seen.set()
            assert await anext(lines) == b"2\n"
            assert await anext(lines, None) is None
            await got.aclose()

    asyncio.run(scenario())


def test_a_stream_that_is_cut_raises_instead_of_ending() -> None:
    async def scenario() -> None:
        async with scripted(half_chunked) as (url, _), carried(url) as transport:
            got = await stream(transport, WATCH)
            for _ in range(3):  # the text may come first, and asking again changes nothing
                with pytest.raises(OutcomeUnknown, match="cut"):
                    async for _chunk in got:
                        pass
            await got.aclose()

    asyncio.run(scenario())


def test_closing_a_stream_cuts_the_connection_and_ends_its_reader() -> None:
    async def scenario() -> None:
        gone = asyncio.Event()

        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            writer.write(CHUNKED)
            await reader.read()
            gone.set()

        async with scripted(script) as (url, _), carried(url) as transport:
            got = await stream(transport, WATCH)
            reading = asyncio.ensure_future(anext(got.__aiter__(), None))
            await asyncio.sleep(0)
            await got.aclose()
            assert await reading is None
            await gone.wait()

    asyncio.run(scenario())


def test_a_slow_reader_slows_the_peer() -> None:
    async def scenario() -> None:
        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            writer.write(CHUNKED)
            while written[0] < 1 << 30:
                writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
                await writer.drain()
                written[0] += 0x10000
                stalled.set()

        written, stalled = [0], asyncio.Event()
        async with scripted(script) as (url, _), carried(url) as transport:
            got = await stream(transport, WATCH)
            before = -1
            while before != written[0]:  # until the peer makes no progress while the loop turns
                before = written[0]
                for _ in range(200):
                    await asyncio.sleep(0)
            assert written[0] < 64 << 20
            await got.aclose()

    asyncio.run(scenario())


def test_a_cancelled_send_ends_its_connection() -> None:
    async def scenario() -> None:
        asked, gone = asyncio.Event(), asyncio.Event()

        async def script(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
            await read_request(reader)
            asked.set()
            with pytest.raises(ConnectionResetError):
                await reader.read()
            gone.set()

        async with scripted(script) as (url, _), carried(url) as transport:
            sending = asyncio.ensure_future(transport.send(ask(), timeout=60))
            await asked.wait()
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            await gone.wait()

    asyncio.run(scenario())


def test_an_open_stream_is_cut_when_its_transport_is_closed() -> None:
    async def scenario() -> None:
        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            writer.write(CHUNKED)
            await reader.read()

        async with scripted(script) as (url, _):
            transport = HttpTransport(url)
            got: Response | Stream = await transport.send(WATCH, timeout=20)
            assert isinstance(got, Stream)
            await transport.close()
            with pytest.raises(OutcomeUnknown):
                await anext(got.__aiter__())
            await got.aclose()

    asyncio.run(scenario())
