"""Requests that are too large, malformed or too slow are refused with a problem, at a bounded cost."""

import asyncio
import contextlib

import msgspec
import pytest
from tests.http.peers import GET, Echo, answer, answered, carried, post, raw, serving

from runyard.http.messages import Request
from runyard.http.problems import Problem
from runyard.http.server import Timeouts
from runyard.wire.problem_codes import ProblemCode
from runyard.wire.reasons import render


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (post(b"content-length: 4", b"abcd"), 200),
        (post(b"content-length: 5", b"abcde"), 413),
        (post(b"content-length: 99999999999"), 413),  # not a byte of it is waited for
        (post(b"transfer-encoding: chunked", b"4\r\nabcd\r\n0\r\n\r\n"), 200),
        (post(b"transfer-encoding: chunked", b"4\r\nabcd\r\n1\r\ne\r\n"), 413),
        (post(b"transfer-encoding: chunked", b"zzz\r\n"), 400),
        (post(b"content-length: -1"), 400),
        (post(b"content-length: 1\r\ntransfer-encoding: chunked", b"0\r\n\r\n"), 400),
        (
            post(b"transfer-encoding: chunked", b"4\r\nabcdXX0\r\n\r\n"),
            400,
        ),  # a chunk with a wrong size
        (post(b"transfer-encoding: gzip", b"abcd"), 400),
        (post(b"content-length: 1\r\ncontent-length: 2", b"ab"), 400),
        (post(b"content-length: two", b"ab"), 400),
        (b"nonsense\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),  # a TLS handshake
        (b"\x00\xff" * 100 + b"\r\n\r\n", 400),
        (GET.replace(b"host", b"x: " + b"y" * 20000 + b"\r\nhost"), 400),
        (GET.replace(b"host", b"".join(b"x-%d: y\r\n" % n for n in range(500)) + b"host"), 400),
        (GET.replace(b" / ", b" /" + b"a" * 20000 + b" "), 400),
    ],
    ids=lambda value: repr(value[:70]) if isinstance(value, bytes) else None,
)
def test_a_too_large_or_malformed_request_is_refused(text: bytes, status: int) -> None:
    got = asyncio.run(answered(text, body_limit=4, timeouts=Timeouts(linger=0.05)))
    assert got.split()[1] == b"%d" % status
    if status != 200:
        head, _, body = got.partition(b"\r\n\r\n")
        assert b"\r\ncontent-type: application/json\r\n" in head.lower() + b"\r\n"
        assert msgspec.json.decode(body, type=Problem).error


def test_a_refusal_has_its_reason_in_json() -> None:
    async def scenario() -> None:
        async with serving(Echo(), body_limit=4) as server, carried(server.url) as transport:
            got = await answer(transport, Request(method="POST", path="/", body=b"abcde"))
            assert got.status == 413
            assert got.json() == {
                "error": render(ProblemCode.BODY_TOO_LARGE.because()),
                "code": ProblemCode.BODY_TOO_LARGE,
                "reason": "at most 4 bytes are accepted",
            }

    asyncio.run(scenario())


def test_a_large_refused_body_still_gets_its_refusal() -> None:
    async def scenario() -> None:
        async with serving(Echo()) as server, carried(server.url) as transport:
            got = await answer(transport, Request(method="POST", path="/", body=b"x" * (20 << 20)))
            assert got.status == 413

    asyncio.run(scenario())


HUGE = 100 << 20


def test_a_huge_body_is_refused_before_it_is_sent() -> None:
    async def scenario() -> None:
        echo = Echo()
        async with serving(echo, timeouts=Timeouts(linger=0.05)) as server:
            reader, writer = await asyncio.open_connection(server.host, server.port)
            writer.write(post(b"content-length: %d" % HUGE, b"x" * 1000))
            got = (
                await reader.read()
            )  # ends with the connection, although nearly all is still to come
            assert got.split()[1] == b"413"
            assert msgspec.json.decode(got.partition(b"\r\n\r\n")[2], type=Problem).reason
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        assert echo.seen == []

    asyncio.run(scenario())


@pytest.mark.parametrize("head", [b"content-length: %d" % HUGE, b"transfer-encoding: chunked"])
def test_a_client_that_sends_without_end_is_cut_off(head: bytes) -> None:
    """A timeout alone does not bound what a fast client sends, so there is a limit on bytes as well."""

    async def scenario() -> None:
        sent = 0
        async with serving(Echo(), timeouts=Timeouts(linger=3600)) as server:
            _, writer = await asyncio.open_connection(server.host, server.port)
            writer.write(post(head))
            piece = b"x" * (1 << 20)
            framed = piece if b"length" in head else b"%x\r\n%s\r\n" % (len(piece), piece)
            with contextlib.suppress(ConnectionError):
                while sent < HUGE:
                    writer.write(framed)
                    await writer.drain()
                    sent += len(piece)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        assert sent < HUGE

    asyncio.run(scenario())


def test_bytes_after_the_announced_length_are_another_request() -> None:
    async def scenario() -> None:
        echo = Echo()
        async with serving(echo) as server:
            reader, writer = await asyncio.open_connection(server.host, server.port)
            writer.write(post(b"content-length: 2", b"ab").replace(b"connection: close\r\n", b""))
            assert (await reader.readuntil(b"\r\n\r\nok")).startswith(b"HTTP/1.1 200 ")
            writer.write(b"cdefgh\r\n\r\n")
            assert (await reader.read()).split()[1] == b"400"
            writer.close()
            await writer.wait_closed()
        assert [request.body for request in echo.seen] == [b"ab"]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("text", "start"),
    [
        (b"", b""),
        (b"GET / HTTP/1.1\r\nhost: x\r\nx-slow", b""),
        (post(b"content-length: 4", b"ab"), b"HTTP/1.1 408 "),
        (post(b"transfer-encoding: chunked", b"4\r\nab"), b"HTTP/1.1 408 "),
    ],
    ids=["silence", "half a head", "half a body", "half a chunk"],
)
def test_a_slow_client_is_disconnected_at_the_deadline(text: bytes, start: bytes) -> None:
    got = asyncio.run(answered(text, timeouts=Timeouts(head=0.05, body=0.05, linger=0.05)))
    assert got[: len(start) or None] == start


@pytest.mark.parametrize(
    "text",
    [post(b"content-length: 4", b"ab"), post(b"transfer-encoding: chunked", b"2\r\nab\r\n")],
    ids=["length", "chunked"],
)
def test_half_a_body_never_reaches_the_handler(text: bytes) -> None:
    async def scenario() -> None:
        echo = Echo()
        async with serving(echo) as server:
            _, writer = await asyncio.open_connection(server.host, server.port)
            writer.write(text)
            writer.close()
            await writer.wait_closed()
            assert (await raw(server.url, GET)).startswith(b"HTTP/1.1 200 ")
        assert [request.method for request in echo.seen] == ["GET"]

    asyncio.run(scenario())


def test_a_client_that_expects_100_continue_gets_it() -> None:
    async def scenario() -> None:
        async with serving(Echo()) as server:
            reader, writer = await asyncio.open_connection(server.host, server.port)
            writer.write(post(b"content-length: 2\r\nexpect: 100-continue"))
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(b"ab")
            assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
            writer.close()
            await writer.wait_closed()

    asyncio.run(scenario())
