"""Tests of single exchanges with servers that keep their connection open."""

import asyncio

import pytest

from runyard.http.exchange import Peer, exchange
from runyard.http.messages import Request, Response, Stream


@pytest.mark.parametrize("status", [b"200 OK", b"404 Not Found"])
def test_the_body_that_head_announces_is_not_waited_for(status: bytes) -> None:
    async def scenario() -> None:
        closed = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 87\r\n\r\n")
            await reader.read()  # the client closes, not this server
            writer.close()
            closed.set()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            request = Request(method="HEAD", path="/")
            answer = await exchange(request, Peer(host="127.0.0.1", port=port, answer=5.0))
            if isinstance(answer, Stream):
                assert [part async for part in answer] == []
                await answer.aclose()
            else:
                assert isinstance(answer, Response)
                assert answer.body == b""
            await closed.wait()

    asyncio.run(scenario())
