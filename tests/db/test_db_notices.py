"""Notices between processes: many become one, a lost one loses no data, and a lost connection is restored."""

import asyncio
import contextlib
import random
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from runyard.clock import RealClock
from runyard.db.notices import GATHER, PostgresNotices
from runyard.embedded.postgres.server import EmbeddedPostgres
from runyard.telemetry.catalogue import RUNYARD_NOTIFICATIONS_TOTAL
from runyard.telemetry.log import get_logger
from runyard.telemetry.meter import Meter

GENEROUS = 30.0


class Process:
    """One process that sends and receives notices."""

    def __init__(self, url: str, seed: int) -> None:
        self.meter = Meter()
        self.notices = PostgresNotices(
            url,
            clock=RealClock(),
            rng=random.Random(seed),
            meter=self.meter,
            log=get_logger("notices"),
        )
        self.received = asyncio.Event()

    def count(self, outcome: str) -> float:
        return self.meter.get(RUNYARD_NOTIFICATIONS_TOTAL, outcome=outcome) or 0.0


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(GENEROUS):
        while not holds():
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def processes(url: str, number: int = 2) -> AsyncIterator[list[Process]]:
    all_of_them = [Process(url, seed) for seed in range(number)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each.notices.run(each.received.set)) for each in all_of_them]
        await until(lambda: all(each.notices.listening for each in all_of_them))
        try:
            yield all_of_them
        finally:
            for task in tasks:
                task.cancel()


def run(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(work())  # type: ignore[arg-type]  # a coroutine


def test_other_processes_are_notified_and_the_sender_is_not(database_url: str) -> None:
    async def scenario() -> None:
        async with processes(database_url, 3) as (first, second, third):
            for each in (first, second, third):
                each.received.clear()
            first.notices.notify()
            await until(lambda: second.received.is_set() and third.received.is_set())
            second.notices.notify()
            await until(first.received.is_set)
            assert (first.count("received"), second.count("received"), third.count("received")) == (
                1,
                1,
                2,
            )

    run(scenario)


def test_many_notifications_become_a_few_notices_and_the_last_is_not_lost(
    database_url: str,
) -> None:
    async def scenario() -> None:
        async with processes(database_url) as (first, second):
            began = asyncio.get_running_loop().time()
            for _ in range(2000):
                first.notices.notify()
                await asyncio.sleep(0)
            lasted = asyncio.get_running_loop().time() - began
            await until(lambda: first.count("sent") >= 1)
            await asyncio.sleep(3 * GATHER)  # whatever is under way
            assert first.count("sent") <= lasted / GATHER + 3
            second.received.clear()
            first.notices.notify()
            await until(second.received.is_set)

    run(scenario)


@pytest.mark.parametrize("what", ["listening", "telling"])
def test_a_connection_that_was_cut_is_restored(database_url: str, what: str) -> None:
    async def scenario() -> None:
        async with processes(database_url) as (first, second):
            first.notices.notify()
            await until(lambda: second.count("received") == 1)
            word = "LISTEN%" if what == "listening" else "NOTIFY%"
            with psycopg.connect(database_url, autocommit=True) as link:
                link.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name = 'runyard notices' AND query LIKE %s",
                    [word],
                )
            if what == "listening":
                await until(lambda: second.count("listen-failed") >= 1)
                await until(lambda: second.notices.listening)
            received = second.count("received")
            # The sender may detect it only now; its next connection sends the notice.
            first.notices.notify()
            await until(lambda: second.count("received") > received)

    run(scenario)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    owned = EmbeddedPostgres(tmp_path / "data", durable=False)
    yield owned
    owned.stop()
    shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.mark.slow
def test_without_a_connection_the_receiver_polls(server: EmbeddedPostgres) -> None:
    url = server.start()

    async def scenario() -> None:
        async with processes(url) as (first, second):
            await asyncio.to_thread(server.stop)
            await until(lambda: not second.notices.listening)
            for _ in range(3):
                second.received.clear()
                await until(second.received.is_set)
            first.notices.notify()
            await asyncio.to_thread(server.start)
            await until(lambda: first.notices.listening and second.notices.listening)
            await until(lambda: first.count("sent") >= 1)

    run(scenario)
