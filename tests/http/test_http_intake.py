"""Unknown clients may send only small bodies, and all bodies together hold a bounded number of bytes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from tests.http.peers import Echo, answer, carried, post, raw, serving

from runyard.http.intake import SMALL
from runyard.http.messages import Request, Response
from runyard.http.server import Timeouts

LARGE = SMALL + 1
NO = Response(status=401, headers=(("content-type", "text/plain"),), body=b"who are you?")
CHUNKED = b"transfer-encoding: chunked"


def known(head: Request) -> Response | None:
    assert head.body == b""
    return None if head.header("authorization") == "me" else NO


def chunk(size: int) -> bytes:
    return b"%x\r\n%s\r\n" % (size, b"x" * size)


UNKNOWN_CLIENTS = {
    "announced": post(b"content-length: %d" % LARGE),  # not a byte of it is waited for
    "asks first": post(b"content-length: %d\r\nexpect: 100-continue" % LARGE),
    "in pieces": post(CHUNKED, chunk(SMALL) + chunk(1)),
}


@pytest.mark.parametrize("text", UNKNOWN_CLIENTS.values(), ids=UNKNOWN_CLIENTS)
def test_a_large_body_of_an_unknown_client_is_refused(text: bytes) -> None:
    async def scenario() -> None:
        echo = Echo()
        async with serving(echo, admit=known, timeouts=Timeouts(linger=0.05)) as server:
            got = await raw(server.url, text)
            assert got.startswith(b"HTTP/1.1 401 ") and got.endswith(b"who are you?")
        assert echo.seen == []

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("size", "headers"),
    [
        pytest.param(SMALL, (), id="small"),
        pytest.param(LARGE, (("authorization", "me"),), id="known"),
    ],
)
def test_an_admitted_body_arrives(size: int, headers: tuple[tuple[str, str], ...]) -> None:
    async def scenario() -> None:
        echo = Echo()
        async with serving(echo, admit=known) as server, carried(server.url) as transport:
            request = Request(method="POST", path="/", headers=headers, body=b"x" * size)
            assert (await answer(transport, request)).status == 200
        assert [len(request.body) for request in echo.seen] == [size]

    asyncio.run(scenario())


class Slow:
    """Holds every request until the test releases it."""

    def __init__(self) -> None:
        self.arrived = asyncio.Event()
        self.go = asyncio.Event()

    async def __call__(self, request: Request) -> Response:
        self.arrived.set()
        await self.go.wait()
        return Response(status=200, body=b"%d" % len(request.body))


def of(size: int) -> Request:
    return Request(method="POST", path="/", body=b"x" * size)


def test_bodies_hold_a_bounded_number_of_bytes_until_they_are_answered() -> None:
    async def scenario() -> None:
        slow = Slow()
        async with (
            serving(slow, body_limit=LARGE, bodies=LARGE * 3 // 2) as server,
            carried(server.url) as transport,
            asyncio.TaskGroup() as group,
        ):
            first = group.create_task(answer(transport, of(LARGE)))
            await slow.arrived.wait()
            refused = await answer(transport, of(LARGE))
            assert (refused.status, refused.header("retry-after")) == (503, "1")
            slow.go.set()
            assert (await answer(transport, of(SMALL))).status == 200  # a small one always
            assert (await first).body == b"%d" % LARGE
            for _ in range(3):  # and then the budget is free again, each time
                assert (await answer(transport, of(LARGE))).status == 200

    asyncio.run(scenario())


@contextlib.asynccontextmanager
async def half_sent(port: int, text: bytes) -> AsyncIterator[asyncio.StreamReader]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(text)
    try:
        yield reader
    finally:
        writer.transport.abort()


def test_announcing_a_body_reserves_no_memory() -> None:
    async def scenario() -> None:
        async with serving(Echo(), bodies=LARGE, body_limit=LARGE) as server:
            announced = post(b"content-length: %d" % LARGE, b"x" * 100)
            async with half_sent(server.port, announced), half_sent(server.port, announced):
                got = await raw(server.url, post(b"content-length: %d" % LARGE, b"x" * LARGE))
                assert got.startswith(b"HTTP/1.1 200 ")

    asyncio.run(scenario())


def test_a_client_that_disconnects_frees_its_share() -> None:
    async def scenario() -> None:
        slow = Slow()
        async with serving(slow, bodies=LARGE, body_limit=LARGE) as server:
            whole = post(b"content-length: %d" % LARGE, b"x" * LARGE)
            async with half_sent(server.port, whole):
                await slow.arrived.wait()
            slow.go.set()
            async with asyncio.timeout(20), carried(server.url) as transport:
                while (await answer(transport, of(LARGE))).status != 200:
                    await asyncio.sleep(0)

    asyncio.run(scenario())
