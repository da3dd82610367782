"""Clients that send or read too slowly are refused or cut off; slow but honest ones, and a slow server, are not."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Self

import msgspec
import pytest
from tests.http.peers import post, serving
from tests.http.steppedloop import SteppedLoop, connections, run_stepped, step, turn, until

from runyard.clock import RealClock
from runyard.http import tls
from runyard.http.intake import SMALL
from runyard.http.messages import Request, Response, Stream
from runyard.http.pace import LeastRate, Pace
from runyard.http.problems import Problem
from runyard.http.server import Timeouts
from runyard.http.sse import Broadcast
from runyard.wire.problem_codes import ProblemCode

LEAST = LeastRate()
BRIEF = Timeouts(linger=0.0, close=0.5)
LARGE = 8 << 20  # more than the sockets of both sides buffer
LONG = 32 << 20  # so long that only the rate counts, and no buffer
GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


async def echo(request: Request) -> Response:
    return Response(status=200, body=b"%d" % len(request.body))


@pytest.mark.parametrize("first", [b"x", b"x" * (SMALL + 100)], ids=["small", "large"])
@pytest.mark.parametrize("head", [b"content-length: 900000", b"transfer-encoding: chunked"])
def test_a_whole_body_that_trickles_is_refused_before_its_deadline(
    head: bytes, first: bytes
) -> None:
    chunked = b"chunked" in head

    def framed(text: bytes) -> bytes:
        return b"%x\r\n%s\r\n" % (len(text), text) if chunked else text

    async def scenario(loop: SteppedLoop) -> None:
        async with serving(echo, timeouts=BRIEF) as server, connections(server.port) as connect:
            client = await connect()
            client.send(post(head, framed(first)))
            await turn()
            seconds = 0
            while not client.status:
                client.send(framed(b"x"))
                await step(5.0)
                seconds += 5
            assert (client.status, LEAST.grace <= seconds < Timeouts().body) == (408, True)
            body = client.got.partition(b"\r\n\r\n")[2]
            assert msgspec.json.decode(body, type=Problem).code == ProblemCode.BODY_SLOW

    run_stepped(scenario)


def test_a_head_that_trickles_is_ended_at_its_deadline() -> None:
    async def scenario(loop: SteppedLoop) -> None:
        async with serving(echo, timeouts=BRIEF) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"GET / HTTP/1.1\r\nx-slow: ")
            for _ in range(int(Timeouts().head) // 5):
                writer.write(b"x")
                await step(5.0)
            assert await reader.read() == b""
            writer.close()

    run_stepped(scenario)


def test_a_whole_body_at_the_least_rate_still_has_a_deadline() -> None:
    async def scenario(loop: SteppedLoop) -> None:
        async with serving(echo, timeouts=BRIEF) as server, connections(server.port) as connect:
            client = await connect()
            client.send(post(b"content-length: 3000000"))
            await turn()
            for _ in range(12):
                client.send(bytes(60_000))
                await step(5.0)
            assert client.status == 408
            body = client.got.partition(b"\r\n\r\n")[2]
            assert msgspec.json.decode(body, type=Problem).code == ProblemCode.BODY_LATE

    run_stepped(scenario)


def test_bytes_that_arrive_while_the_server_is_held_up_are_in_time() -> None:
    """The process is stopped for a minute: the deadline passes, but the client has sent its body."""

    async def scenario(loop: SteppedLoop) -> None:
        async with serving(echo, timeouts=BRIEF) as server, connections(server.port) as connect:
            client = await connect()
            client.send(post(b"content-length: 10", b"hello"))
            await turn()
            client.send(b"world")
            loop.ahead += LEAST.grace + 5
            assert await client.answered() == 200

    run_stepped(scenario)


class Slow:
    """A connection whose client reads only when the test says so."""

    def __init__(self, port: int, context: ssl.SSLContext | None = None) -> None:
        self._port = port
        self._context = context

    async def __aenter__(self) -> Self:
        sock = socket.socket()
        # The kernel's default; it would grow, because it sees the machine's time, in which this client is fast.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        sock.connect(("127.0.0.1", self._port))
        self.reader, self._writer = await asyncio.open_connection(
            sock=sock,
            limit=1 << 16,
            ssl=self._context,
            server_hostname="127.0.0.1" if self._context is not None else None,
        )
        self._writer.write(GET)
        await turn()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.transport.abort()

    async def whole(self) -> bytes:
        """All that the server sends until it closes the connection."""
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(20):
                return await self.reader.read()
        return b""


class Producer:
    """Answers with a large body or stream, and notes when that ended."""

    def __init__(self, kind: str, size: int = LARGE) -> None:
        self._kind = kind
        self._size = size
        self.ended = False
        self.broadcast = Broadcast(RealClock(), backlog=1000)

    async def __call__(self, _: Request) -> Response | Stream:
        if self._kind == "response":
            return Response(status=200, body=bytes(self._size))
        if self._kind == "events":
            return self.broadcast.subscribe(b"data: %s\n\n" % (b"x" * self._size))
        return Stream(self._chunks(), paced=self._kind == "download")

    async def _chunks(self) -> AsyncIterator[bytes]:
        try:
            for _ in range(self._size >> 20):
                yield bytes(1 << 20)
        finally:
            self.ended = True


@pytest.mark.parametrize("kind", ["response", "download", "events"])
def test_a_client_that_does_not_read_is_cut_off(kind: str) -> None:
    async def scenario(loop: SteppedLoop) -> None:
        producer = Producer(kind)
        async with serving(producer, timeouts=BRIEF) as server, Slow(server.port) as client:
            await step(LEAST.grace - 1)
            if kind != "response":
                assert not producer.ended
            await step(SMALL / LEAST.rate + 2)
            assert len(await client.whole()) < LARGE
            if kind == "download":
                assert producer.ended
            if kind == "events":
                assert len(producer.broadcast) == 0

    run_stepped(scenario)


async def read_at(client: Slow, rate: float, size: int = LONG) -> None:
    """Read a long response at so many bytes per second."""
    got = 0
    while got < size:
        part = await client.reader.read(1 << 16)
        got += len(part)
        assert part, f"cut off after {got} bytes"
        await step(len(part) / rate)


@pytest.mark.parametrize("rate", [11_000, 30_000, 50_000])
@pytest.mark.parametrize("kind", ["response", "download", "events"])
def test_a_client_that_reads_slowly_gets_everything(kind: str, rate: int) -> None:
    """The server's kernel takes megabytes at once, and then nothing for as long as the client needs for a third."""

    async def scenario(loop: SteppedLoop) -> None:
        async with (
            serving(Producer(kind, LONG), timeouts=BRIEF) as server,
            Slow(server.port) as client,
        ):
            await read_at(client, rate)

    run_stepped(scenario)


def test_a_client_that_reads_slowly_over_tls_is_not_cut_off(tmp_path: Path) -> None:
    now = RealClock().now()  # verification compares with the machine's own clock
    authority = tls.make_authority(now=now)
    files, _ = tls.ensure_server(tmp_path, authority, ("127.0.0.1",), now=now)
    context = tls.client_context(authority.certificate)

    async def scenario(loop: SteppedLoop) -> None:
        async with (
            serving(
                Producer("download", LONG), timeouts=BRIEF, tls=tls.server_context(files)
            ) as server,
            Slow(server.port, context) as client,
        ):
            await read_at(client, 11_000, LARGE)

    run_stepped(scenario)


def test_a_paused_log_is_not_cut_off() -> None:
    async def scenario(loop: SteppedLoop) -> None:
        producer = Producer("log")
        async with serving(producer, timeouts=BRIEF) as server, Slow(server.port) as client:
            await step(3600.0)
            assert not producer.ended
            assert len(await client.whole()) > LARGE
            await until(lambda: producer.ended)

    run_stepped(scenario)


def test_time_without_a_client_is_not_counted() -> None:
    pace = Pace(LEAST)
    pace.passed(0, 29.0)
    assert pace.allowed() == pytest.approx(1.0)
    pace.passed(100_000, 0.0)
    assert pace.allowed() == pytest.approx(11.0)
    pace.passed(10**9, 0.0)
    assert pace.allowed() == LEAST.grace  # a fast beginning does not pay for a trickle
    pace.passed(0, 100.0)
    assert pace.allowed() == 0.0
