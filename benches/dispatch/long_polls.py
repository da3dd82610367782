"""Measures very many polls waiting at one server: memory, runners woken by one job, and the time to release all."""

import asyncio
import time
import urllib.parse
import urllib.request
from collections.abc import Awaitable, Callable

import msgspec
import psycopg
from benches.dispatch.dependencies import LABELS, Dependencies
from benches.dispatch.load import Line, webhook
from benches.dispatch.processes import Processes, Server

from runyard.wire.paths import DISPATCH, GITHUB_WEBHOOK

_WITHIN = 900.0
_AT_ONCE = 50  # polls that are being opened at the same time
_WAKES = "runyard_poll_wakes_total"


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements."""

    megabytes: float  # of the whole process, while all polls wait
    woken: float
    all_seconds: float
    cpu_ms: float  # of the server, for one poll to begin


def until(true: Callable[[], bool], otherwise: str) -> None:
    """Wait until a condition is true."""
    end = time.monotonic() + _WITHIN
    while not true():
        if time.monotonic() > end:
            raise RuntimeError(otherwise)
        time.sleep(0.2)


class _Poll(asyncio.Protocol):
    """One poll: a request and its response. Kept small, because there are many."""

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
            if self.status >= 500:  # not served for a moment: a runner polls again
                self.status = 0
                self._transport.write(self._ask)
            else:
                self._done(self)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.status:
            self.status = -1
            self._done(self)


Waiting = Callable[[], Awaitable[int]]


class _Polls:
    def __init__(self, waiting: Waiting, server: Server, count: int) -> None:
        self._waiting = waiting  # counts the polls that the server holds
        self._server = server
        self._count = count
        self._polls: list[_Poll] = []
        self.answers: dict[int, int] = {}
        self._ring = asyncio.Event()

    def _answered(self, poll: _Poll) -> None:
        self.answers[poll.status] = self.answers.get(poll.status, 0) + 1
        self._ring.set()

    async def open_all(self, dependencies: Dependencies) -> None:
        """Open a poll for every runner; returns when all of them wait."""
        loop, url = asyncio.get_running_loop(), urllib.parse.urlsplit(self._server.url)
        for runner in dependencies.runners[: self._count]:
            ask = (
                f"POST {DISPATCH} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {runner.token}\r\n"
                "prefer: wait=3600\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
            ).encode()
            poll = _Poll(ask, self._answered)
            await loop.create_connection(lambda poll=poll: poll, url.hostname, url.port)
            self._polls.append(poll)
            if len(self._polls) % _AT_ONCE == 0:
                await self._wait_for(len(self._polls) - _AT_ONCE)
        await self._wait_for(self._count)
        assert not self.answers, f"polls were answered before there was a job: {self.answers}"

    async def _wait_for(self, count: int) -> None:
        async with asyncio.timeout(_WITHIN):
            while await self._waiting() < count:  # noqa: ASYNC110  another process holds them
                await asyncio.sleep(0.05)

    async def answered(self, total: int) -> None:
        """Wait until so many polls are answered."""
        async with asyncio.timeout(_WITHIN):
            while sum(self.answers.values()) < total:
                self._ring.clear()
                await self._ring.wait()


async def _measure(rig: Processes, server: Server, count: int) -> Measured:
    dependencies = msgspec.json.decode(
        (rig.folder / "dependencies.json").read_bytes(), type=Dependencies
    )

    async def job(number: int, labels: tuple[str, ...]) -> None:
        headers, body = webhook(dependencies.accounts[0], number, labels)
        # A new connection: the server closes one that is idle for so long.
        line = Line(server.url)
        status, _ = await line.ask(GITHUB_WEBHOOK, headers, body)
        line.close()
        assert status == 200, status

    await job(1, ("nobody-has-this",))  # allocate what a server needs only once
    await asyncio.sleep(1.0)
    cpu = server.cpu()
    async with await psycopg.AsyncConnection.connect(rig.database, autocommit=True) as link:

        async def idle() -> int:
            cursor = await link.execute("SELECT count(*) FROM slots WHERE state = 'idle'")
            row = await cursor.fetchone()
            return 0 if row is None else int(str(row[0]))

        polls = _Polls(idle, server, count)
        await polls.open_all(dependencies)
    cost = (server.cpu() - cpu) * 1000 / count
    held = server.memory()
    wakes = server.metric(_WAKES)
    await job(2, LABELS)
    await polls.answered(1)
    await asyncio.sleep(1.0)  # enough time for other polls to be woken
    assert polls.answers == {200: 1}, polls.answers
    woken = server.metric(_WAKES) - wakes
    began = time.perf_counter()
    server.end()
    await polls.answered(count)
    spent = time.perf_counter() - began
    assert polls.answers == {200: 1, 204: count - 1}, polls.answers
    return Measured(megabytes=held, woken=woken, all_seconds=spent, cpu_ms=cost)


def measure(rig: Processes, server: Server, count: int) -> Measured:
    """Open so many polls, queue one job, and end the server."""
    return asyncio.run(_measure(rig, server, count))


async def _measure_bare(rig: Processes, server: Server, count: int) -> Measured:
    dependencies = msgspec.json.decode(
        (rig.folder / "dependencies.json").read_bytes(), type=Dependencies
    )

    async def held() -> int:
        line = urllib.request.Request(f"{server.url}/waiting")
        return int(await asyncio.to_thread(lambda: urllib.request.urlopen(line).read()))

    cpu = server.cpu()
    polls = _Polls(held, server, count)
    await polls.open_all(dependencies)
    cost, megabytes = (server.cpu() - cpu) * 1000 / count, server.memory()
    began = time.perf_counter()
    server.end()
    await polls.answered(count)
    spent = time.perf_counter() - began
    assert polls.answers == {204: count}, polls.answers
    return Measured(megabytes=megabytes, woken=0, all_seconds=spent, cpu_ms=cost)


def measure_bare(rig: Processes, server: Server, count: int) -> Measured:
    """Open so many polls at the bare server, and end it."""
    return asyncio.run(_measure_bare(rig, server, count))
