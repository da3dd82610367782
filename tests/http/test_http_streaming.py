"""Streamed bodies reach their handler as they arrive, at the reader's pace, or are refused before they are sent."""

import asyncio

from tests.http.peers import raw, serving

from runyard.http.messages import Request, Response
from runyard.http.server import Timeouts

PIECE = 100_000


def put(head: bytes, body: bytes = b"", path: bytes = b"/up") -> bytes:
    return b"PUT %s HTTP/1.1\r\nhost: x\r\nconnection: close\r\n%s\r\n\r\n%s" % (path, head, body)


def is_upload(head: Request) -> bool:
    assert head.body == b"" and head.content is None
    return head.method == "PUT" and head.path == "/up"


class Reader:
    """Reads the body, unless `reads` is false."""

    def __init__(self, *, reads: bool = True) -> None:
        self.sizes: list[int] = []
        self.failed = ""
        self._reads = reads

    async def __call__(self, request: Request) -> Response:
        if request.content is None:
            return Response(status=200, body=b"whole %d" % len(request.body))
        if not self._reads:
            return Response(status=403, body=b"no")
        try:
            async for piece in request.content:
                self.sizes.append(len(piece))
        except (ConnectionError, TimeoutError) as error:
            self.failed = type(error).__name__
            return Response(status=400, body=b"broken")
        return Response(status=200, body=b"streamed %d" % sum(self.sizes))


def test_a_body_larger_than_any_limit_arrives_in_pieces() -> None:
    async def scenario() -> None:
        reader = Reader()
        async with serving(reader, body_limit=1000, bodies=1000, streamed=is_upload) as server:
            got = await raw(
                server.url, put(b"content-length: %d" % (50 * PIECE), bytes(50 * PIECE))
            )
            assert got.endswith(b"streamed %d" % (50 * PIECE))
            assert max(reader.sizes) < 20 * PIECE
            chunks = b"".join(b"%x\r\n%s\r\n" % (PIECE, bytes(PIECE)) for _ in range(5))
            got = await raw(server.url, put(b"transfer-encoding: chunked", chunks + b"0\r\n\r\n"))
            assert got.startswith(b"HTTP/1.1 200 ")
            assert (await raw(server.url, put(b"content-length: 0"))).startswith(b"HTTP/1.1 200 ")

    asyncio.run(scenario())


def test_other_requests_keep_their_limit() -> None:
    async def scenario() -> None:
        async with serving(Reader(), body_limit=1000, streamed=is_upload) as server:
            got = await raw(server.url, put(b"content-length: 1001", bytes(1001), b"/other"))
            assert got.startswith(b"HTTP/1.1 413 ")
            got = await raw(server.url, put(b"content-length: 5", b"hello", b"/other"))
            assert got.endswith(b"whole 5")

    asyncio.run(scenario())


def test_a_refused_client_does_not_get_100_continue() -> None:
    async def scenario() -> None:
        reader = Reader(reads=False)
        timeouts = Timeouts(linger=0.05)
        async with serving(reader, streamed=is_upload, timeouts=timeouts) as server:
            waits = put(b"content-length: 5000000\r\nexpect: 100-continue")
            got = await raw(server.url, waits)
            assert got.startswith(b"HTTP/1.1 403 ") and b"100 Continue" not in got
            got = await raw(server.url, put(b"content-length: 5000000", bytes(300_000)))
            assert got.startswith(b"HTTP/1.1 403 ")

    asyncio.run(scenario())


def test_100_continue_is_sent_when_the_body_is_read() -> None:
    async def scenario() -> None:
        async with serving(Reader(), streamed=is_upload) as server:
            text = put(b"content-length: 5\r\nexpect: 100-continue", b"hello")
            got = await raw(server.url, text)
            assert got.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 ")

    asyncio.run(scenario())


def test_a_stalled_body_times_out() -> None:
    async def scenario() -> None:
        reader = Reader()
        timeouts = Timeouts(body=0.05, linger=0.05)
        async with serving(reader, streamed=is_upload, timeouts=timeouts) as server:
            got = await raw(server.url, put(b"content-length: 50", b"half"))
            assert got.startswith(b"HTTP/1.1 400 ") and reader.failed == "TooSlow"

    asyncio.run(scenario())


def test_a_malformed_body_raises() -> None:
    async def scenario() -> None:
        reader = Reader()
        timeouts = Timeouts(linger=0.05)
        async with serving(reader, streamed=is_upload, timeouts=timeouts) as server:
            await raw(server.url, put(b"transfer-encoding: chunked", b"zz\r\nnonsense"))
        assert reader.failed in ("ConnectionError", "") and sum(reader.sizes) == 0

    asyncio.run(scenario())
