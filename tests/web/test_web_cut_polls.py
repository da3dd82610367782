"""A runner whose connection is cut while it polls is not shown as idle any more, on a real server; time is real."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from tests.dispatch.dispatchharness import Guest, Harness

from runyard.clock import RealClock
from runyard.components import server
from runyard.components.probing import NotReady
from runyard.components.server import ServerSocket
from runyard.db.pooled import open_pool
from runyard.embedded.github.identity import KeyPair
from runyard.http.client import HttpTransport
from runyard.http.messages import Request, Response
from runyard.http.sockets import bind
from runyard.telemetry.log import get_logger
from runyard.telemetry.meter import Meter
from runyard.web.settings import Settings
from runyard.wire.paths import DISPATCH

TOKEN = "correct-horse-battery-staple"
WITHIN = 30.0  # on a busy machine; how fast it is on an idle one is tested on virtual time


class Served:
    """A server on a socket, and a client of it."""

    def __init__(self, harness: Harness, url: str) -> None:
        self.harness = harness
        self._url = url
        self._client = HttpTransport(url)

    async def close(self) -> None:
        await self._client.close()

    async def get(self, path: str) -> Any:
        headers = (("authorization", f"Bearer {TOKEN}"),)
        request = Request(method="GET", path=path, headers=headers)
        answer = await self._client.send(request, timeout=WITHIN)
        assert isinstance(answer, Response) and answer.status == 200, answer
        return answer.json()

    async def poll(self, guest: Guest) -> asyncio.StreamWriter:
        """Begin a poll as the guest's script does; the connection stays open."""
        host, _, port = self._url.removeprefix("http://").partition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        lines = (
            f"POST {DISPATCH} HTTP/1.1",
            f"host: {host}",
            f"authorization: Bearer {guest.token}",
            "prefer: wait=25",
            "content-length: 2",
        )
        writer.write(("\r\n".join(lines) + "\r\n\r\n{}").encode())
        await writer.drain()
        return writer

    async def state(self, guest: Guest) -> tuple[str, str]:
        """What the dashboard and explain say of the runner."""
        overview = await self.get("/api/v1/overview")
        shown = [each["state"] for each in overview["runners"] if each["uid"] == guest.uid]
        explained = await self.get(f"/api/v1/explain/runner/{guest.name}")
        return "".join(shown), explained["binding"]["constraint"]


@contextlib.asynccontextmanager
async def serving(url: str, keys: KeyPair) -> AsyncIterator[Served]:
    clock, rng = RealClock(), random.Random(1)
    harness = Harness(url, keys, clock=clock)
    ending, ready = asyncio.Event(), asyncio.get_running_loop().create_future()

    async def at_once(_: NotReady) -> None:
        """The tables are there already."""

    async with contextlib.AsyncExitStack() as stack:
        stack.callback(harness.close)
        await harness.pool()
        database = await stack.enter_async_context(open_pool(url, clock=clock, rng=rng))
        group = await stack.enter_async_context(asyncio.TaskGroup())
        group.create_task(
            server.serve(
                harness.deps(database=database, rng=rng, log=get_logger("cut"), meter=Meter()),
                (
                    ServerSocket(
                        sock=bind("127.0.0.1", 0),
                        access=Settings(token=TOKEN, every=0.1, cluster_every=0.1),
                    ),
                ),
                prepare=at_once,
                ready=lambda urls: ready.set_result(urls[0]),
                ending=ending,
            )
        )
        stack.callback(ending.set)
        served = Served(harness, await ready)
        stack.push_async_callback(served.close)
        yield served


async def until(read: Callable[[], Awaitable[object]], expected: object) -> None:
    """Read until it is what was expected; fails with what was read last."""
    found: object = None
    try:
        async with asyncio.timeout(WITHIN):
            while (found := await read()) != expected:
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"{found} after {WITHIN} s, not {expected}") from None


@pytest.mark.slow
def test_a_runner_whose_connection_is_cut_is_idle_for_no_more_than_three_seconds(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario() -> None:
        async with serving(database_url, app_keys) as served:
            harness = served.harness
            guest = await harness.pod()
            connection = await served.poll(guest)
            await until(lambda: served.state(guest), ("idle", "no-job"))
            connection.transport.abort()
            await until(lambda: served.state(guest), ("silent", "not-asking"))
            assert harness.slot(guest)["state"] == "idle"
            job = await harness.queued()
            explained = await served.get(f"/api/v1/explain/job/{job}")
            assert explained["binding"]["constraint"] != "next", "no runner is there to match it"
            again = await served.poll(guest)  # it lives, and gets the job
            with contextlib.closing(again):
                await until(lambda: _state(harness, guest), "armed")

    asyncio.run(scenario())


async def _state(harness: Harness, guest: Guest) -> object:
    return harness.slot(guest)["state"]
