"""Very many runners that wait at one server: what they cost, whom a job wakes, and how fast all are let go."""

import asyncio
import time
import urllib.parse
from collections.abc import Callable

import msgspec
import psycopg
from benches.dispatch.around import LABELS, Around
from benches.dispatch.load import Line, webhook
from benches.dispatch.world import Server, World

from runyard.wire.paths import DISPATCH, GITHUB_WEBHOOK

_WITHIN = 900.0
_AT_ONCE = 50  # polls that are on their way in; the rest waits or is still to come
_WAKES = "runyard_poll_wakes_total"


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What was found."""

    megabytes: float  # of the whole process, while all of them wait
    woken: float
    all_seconds: float
    cpu_ms: float  # of the server, for one poll to begin


def until(true: Callable[[], bool], otherwise: str) -> None:
    """Wait for something that another process does."""
    end = time.monotonic() + _WITHIN
    while not true():
        if time.monotonic() > end:
            raise RuntimeError(otherwise)
        time.sleep(0.2)


class _Poll(asyncio.Protocol):
    """One poll: a request that was sent, and whatever comes back. As little as possible, there are many."""

    __slots__ = ("_ask", "_done", "_transport", "status")

    def __init__(self, ask: bytes, done: Callable[["_Poll"], None]) -> None:
        self._ask = ask
        self._done = done
        self.status = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport
        transport.write(self._ask)

    def data_received(self, data: bytes) -> None:
        if not self.status:
            self.status = int(data[9:12])
            if self.status >= 500:  # for a moment it could not be served: a runner asks again
                self.status = 0
                self._transport.write(self._ask)
            else:
                self._done(self)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.status:
            self.status = -1
            self._done(self)


class _Crowd:
    def __init__(self, place: World, server: Server, count: int) -> None:
        self._place = place
        self._server = server
        self._count = count
        self._polls: list[_Poll] = []
        self.answers: dict[int, int] = {}
        self._ring = asyncio.Event()

    def _answered(self, poll: _Poll) -> None:
        self.answers[poll.status] = self.answers.get(poll.status, 0) + 1
        self._ring.set()

    async def come(self, around: Around) -> None:
        """Everybody polls; returns when all of them wait."""
        loop, url = asyncio.get_running_loop(), urllib.parse.urlsplit(self._server.url)
        async with await psycopg.AsyncConnection.connect(
            self._place.database, autocommit=True
        ) as link:
            for runner in around.runners[: self._count]:
                ask = (
                    f"POST {DISPATCH} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {runner.token}\r\n"
                    "prefer: wait=3600\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
                ).encode()
                poll = _Poll(ask, self._answered)
                await loop.create_connection(lambda poll=poll: poll, url.hostname, url.port)
                self._polls.append(poll)
                if len(self._polls) % _AT_ONCE == 0:
                    await self._wait_for(link, len(self._polls) - _AT_ONCE)
            await self._wait_for(link, self._count)
        assert not self.answers, f"polls were answered before there was a job: {self.answers}"

    async def _wait_for(
        self, link: "psycopg.AsyncConnection[tuple[object, ...]]", count: int
    ) -> None:
        async with asyncio.timeout(_WITHIN):
            while True:
                cursor = await link.execute("SELECT count(*) FROM slots WHERE state = 'idle'")
                row = await cursor.fetchone()
                if row is not None and int(str(row[0])) >= count:
                    return
                await asyncio.sleep(0.05)

    async def answered(self, total: int) -> None:
        """Until so many have an answer."""
        async with asyncio.timeout(_WITHIN):
            while sum(self.answers.values()) < total:
                self._ring.clear()
                await self._ring.wait()


async def _gather(place: World, server: Server, count: int) -> Seen:
    around = msgspec.json.decode((place.folder / "around.json").read_bytes(), type=Around)

    async def job(number: int, labels: tuple[str, ...]) -> None:
        headers, body = webhook(around.accounts[0], number, labels)
        # A line of its own: one that rests while all of them come is closed by the server.
        line = Line(server.url)
        status, _ = await line.ask(GITHUB_WEBHOOK, headers, body)
        line.close()
        assert status == 200, status

    await job(1, ("nobody-has-this",))  # what a server only needs once, it has now
    await asyncio.sleep(1.0)
    cpu = server.cpu()
    crowd = _Crowd(place, server, count)
    await crowd.come(around)
    cost = (server.cpu() - cpu) * 1000 / count
    held = server.memory()
    wakes = server.metric(_WAKES)
    await job(2, LABELS)
    await crowd.answered(1)
    await asyncio.sleep(1.0)  # were others woken, they would be by now
    assert crowd.answers == {200: 1}, crowd.answers
    woken = server.metric(_WAKES) - wakes
    began = time.perf_counter()
    server.end()
    await crowd.answered(count)
    spent = time.perf_counter() - began
    assert crowd.answers == {200: 1, 204: count - 1}, crowd.answers
    return Seen(megabytes=held, woken=woken, all_seconds=spent, cpu_ms=cost)


def gather(place: World, server: Server, count: int) -> Seen:
    """Let so many come, give one of them a job, and let all go."""
    return asyncio.run(_gather(place, server, count))
