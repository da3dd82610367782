"""Uploads that trickle do not keep others waiting; honest ones on slow lines, or to slow storage, complete."""

import asyncio
import contextlib
import tracemalloc
from collections.abc import AsyncIterable, AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from tests.blobs.blobstores import directory
from tests.blobs.upload_server import UploadServer, upload_server
from tests.http.steppedloop import Client, SteppedLoop, run_stepped, step, turn, until

from runyard.blobs.contract import Blobs, Content
from runyard.blobs.plans.slots import Limits
from runyard.blobs.slots import STORE_WITHIN
from runyard.telemetry.catalogue import (
    RUNYARD_UPLOADS_ENDED_TOTAL,
    RUNYARD_UPLOADS_RUNNING,
    RUNYARD_UPLOADS_WAITING,
)
from runyard.wire.problem_codes import ProblemCode
from runyard.wire.reasons_results import Yielded

TRICKLE = 15  # seconds between two bytes
WHO: dict[str, Callable[[int], str]] = {
    "one client": lambda _: "slow",
    "many clients": lambda number: f"slow{number}",
    "the same client": lambda _: "honest",
}


class HeldStore:
    """A real store that reads on only while its gate is open, and counts the bytes that it has read."""

    def __init__(self, blobs: Blobs, *, is_open: bool = False) -> None:
        self._blobs = blobs
        self.read = 0
        self.gate = asyncio.Event()
        if is_open:
            self.gate.set()

    async def put(self, key: str, content: Content, *, limit: int | None = None) -> int:
        assert not isinstance(content, bytes | Path)
        return await self._blobs.put(key, self._held(content), limit=limit)

    async def _held(self, content: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
        async for piece in content:
            self.read += len(piece)
            await self.gate.wait()
            yield piece


@contextlib.asynccontextmanager
async def held_server(
    path: Path, *, is_open: bool = False, **options: Any
) -> AsyncIterator[tuple[UploadServer, HeldStore]]:
    store = HeldStore(directory(path), is_open=is_open)
    async with upload_server(path, around=lambda _: cast(Blobs, store), **options) as server:
        yield server, store


async def seconds_until_read(honest: Client, tricklers: list[Client], longest: int = 200) -> int:
    """How many seconds pass until the server reads the honest upload, while the others trickle."""
    for second in range(longest):
        if honest.status == 100:
            return second
        if second % TRICKLE == 0:
            for client in tricklers:
                client.send(b"x")
        await step(1.0)
    return longest


@pytest.mark.parametrize("account", WHO.values(), ids=WHO)
@pytest.mark.parametrize(("count", "longest"), [(16, 15), (64, 45)])
def test_uploads_that_trickle_keep_an_honest_one_waiting_for_seconds_only(
    tmp_path: Path, count: int, longest: int, account: Callable[[int], str]
) -> None:
    async def scenario(_: SteppedLoop) -> None:
        async with upload_server(tmp_path) as server:
            tricklers = await server.many(count, account)
            await turn()
            assert sum(each.status == 100 for each in tricklers) == 16
            honest = await server.begin("honest", size=2_000_000)
            await turn()
            assert await seconds_until_read(honest, tricklers) <= longest
            honest.send(bytes(2_000_000))
            assert await honest.answered() == 200

    run_stepped(scenario)


def test_an_upload_that_trickles_is_ended_also_while_no_other_waits(tmp_path: Path) -> None:
    async def scenario(_: SteppedLoop) -> None:
        async with upload_server(tmp_path) as server:
            fast_first = await server.begin("acme")
            fast_first.send(bytes(900_000))  # 90 s at the least rate
            slow = await server.begin("acme")
            for _ in range(3):
                for client in (slow, fast_first):
                    client.send(b"x")
                await step(TRICKLE)
            assert await slow.answered() == 408 and await fast_first.answered() == 408
            assert ProblemCode.UPLOAD_SLOW.encode() in slow.got
            ended = {"reason": ProblemCode.UPLOAD_SLOW.value}
            assert server.meter.get(RUNYARD_UPLOADS_ENDED_TOTAL, **ended) == 2
            await until(lambda: server.meter.get(RUNYARD_UPLOADS_RUNNING) == 0)

    run_stepped(scenario)


def test_a_slow_but_honest_line_completes_while_others_wait(tmp_path: Path) -> None:
    async def scenario(_: SteppedLoop) -> None:
        limits = Limits(slots=1, wait=1000.0)
        async with held_server(tmp_path, limits=limits, is_open=True) as (server, store):
            size = 3_000_000
            slow = await server.begin("acme", size)
            await turn()
            other = await server.begin("other", 5)
            for second in range(size // 50_000):
                if second in range(20, 24):
                    await step(1.0)  # the line drops for some seconds
                slow.send(bytes(50_000))
                await until(partial(lambda size: store.read == size, (second + 1) * 50_000))
                await step(1.0)
            assert await slow.answered() == 200
            await until(lambda: other.status == 100)
            other.send(b"hello")
            assert await other.answered() == 200

    run_stepped(scenario)


def test_a_large_bundle_on_a_slow_line_may_take_longer_than_an_hour(tmp_path: Path) -> None:
    async def scenario(_: SteppedLoop) -> None:
        async with held_server(tmp_path, is_open=True) as (server, store):
            slow = await server.begin("acme", 150 * 300_000)
            for sent in range(1, 151):
                slow.send(bytes(300_000))
                await until(partial(lambda size: store.read == size, sent * 300_000))
                await step(25.0)
            assert await slow.answered() == 200

    run_stepped(scenario)


def test_an_upload_that_never_ends_is_ended_at_its_limit(tmp_path: Path) -> None:
    async def scenario(_: SteppedLoop) -> None:
        async with upload_server(tmp_path, limits=Limits(longest=100.0)) as server:
            client = await server.begin("acme")
            for _ in range(11):
                client.send(bytes(200_000))
                await step(10.0)
            assert await client.answered() == 408
            assert ProblemCode.UPLOAD_LATE.encode() in client.got

    run_stepped(scenario)


def test_slow_storage_ends_no_honest_upload(tmp_path: Path) -> None:
    async def scenario(_: SteppedLoop) -> None:
        limits = Limits(slots=1, wait=10_000.0)
        async with held_server(tmp_path, limits=limits) as (server, store):
            client = await server.begin("acme", 4_000_000)
            await turn()
            other = await server.begin("other", 5)
            client.send(bytes(2_000_000))
            await turn()
            for _ in range(28):
                await step(STORE_WITHIN / 30)
            assert (client.status, other.status) == (100, 0)
            store.gate.set()
            client.send(bytes(2_000_000))
            assert await client.answered() == 200

    run_stepped(scenario)


def test_storage_that_hangs_does_not_hold_a_slot_for_ever(tmp_path: Path) -> None:
    async def scenario(_: SteppedLoop) -> None:
        limits = Limits(slots=1, wait=10_000.0)
        async with held_server(tmp_path, limits=limits) as (server, _):
            client = await server.begin("acme", 4_000_000)
            client.send(bytes(2_000_000))
            await turn()
            other = await server.begin("other", 5)
            await step(STORE_WITHIN + 1)
            assert await client.answered() == 503
            assert ProblemCode.STORAGE_UNAVAILABLE.encode() in client.got
            await until(lambda: other.status == 100)

    run_stepped(scenario)


def test_an_upload_without_a_slot_is_refused_with_retry_after(tmp_path: Path) -> None:
    async def scenario(_: SteppedLoop) -> None:
        limits = Limits(slots=1)
        async with upload_server(tmp_path, limits=limits) as server:
            busy = await server.begin("acme")
            await turn()
            waiting = await server.begin("other")
            for _ in range(int(limits.wait) + 2):
                busy.send(bytes(100_000))
                await step(1.0)
            assert await waiting.answered() == 503
            assert b"\r\nretry-after: 10\r\n" in waiting.got.lower()
            assert Yielded.UPLOAD_NOT_STARTED.encode() in waiting.got
            assert b"100 Continue" not in waiting.got  # its body was not asked for
            assert busy.status == 100

    run_stepped(scenario)


def test_a_client_with_all_slots_yields_to_another_one(tmp_path: Path) -> None:
    async def scenario(_: SteppedLoop) -> None:
        async with upload_server(tmp_path) as server:
            greedy = await server.many(16, lambda _: "greedy")
            await turn()
            honest = await server.begin("honest", 5)
            for _ in range(6):
                for number, client in enumerate(greedy):
                    client.send(bytes(60_000 + number))
                await step(1.0)
            await until(lambda: honest.status == 100)
            honest.send(b"hello")
            assert await honest.answered() == 200
            assert [each.status for each in greedy].count(503) == 1
            assert greedy[0].status == 503  # the slowest
            assert Yielded.UPLOAD_DISPLACED.encode() in greedy[0].got

    run_stepped(scenario)


def test_a_client_that_disconnects_while_it_waits_or_runs_frees_its_place(tmp_path: Path) -> None:
    async def scenario(_: SteppedLoop) -> None:
        async with upload_server(tmp_path, limits=Limits(slots=1)) as server:
            first = await server.begin("acme")
            await turn()
            second, third = await server.begin("acme"), await server.begin("acme", 5)
            await turn()
            assert server.meter.get(RUNYARD_UPLOADS_WAITING) == 2
            await second.close()
            await first.close()
            await until(lambda: third.status == 100)
            third.send(b"hello")
            assert await third.answered() == 200
            await until(lambda: server.meter.get(RUNYARD_UPLOADS_RUNNING) == 0)
            assert server.meter.get(RUNYARD_UPLOADS_WAITING) == 0

    run_stepped(scenario)


def test_many_waiting_uploads_hold_a_bounded_amount_of_memory(tmp_path: Path) -> None:
    limits = Limits(slots=1, queue=8)

    async def fill(server: UploadServer) -> list[Client]:
        """Uploads that send without being asked to, as many as the server takes."""
        found = []
        for number in range(60):
            client = await server.begin(f"a{number % 3}")
            client.send(bytes(2_000_000))
            found.append(client)
            await turn()
        return found

    async def scenario(_: SteppedLoop) -> None:
        async with upload_server(tmp_path, limits=limits) as server:
            await server.begin("acme")
            await turn()
            tracemalloc.start()
            clients = await fill(server)
            await turn()
            snapshot = tracemalloc.take_snapshot()
            tracemalloc.stop()
            assert server.meter.get(RUNYARD_UPLOADS_WAITING) == limits.queue
            assert [each.status for each in clients].count(503) == 60 - limits.queue
            kept = snapshot.filter_traces((tracemalloc.Filter(True, "*/aiohttp/*"),))
            held = sum(each.size for each in kept.statistics("filename"))
            assert held < limits.queue * (1 << 20)

    run_stepped(scenario)
