"""Both databases report an outage of the server and work again after it."""

import asyncio
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.db.dbsupport import FrozenClock

from runyard.db.contract import Database, Tx, Unavailable
from runyard.db.inline import InlineDatabase
from runyard.db.pooled import open_pool
from runyard.embedded.postgres.server import EmbeddedPostgres


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    owned = EmbeddedPostgres(tmp_path / "data", durable=False)
    yield owned
    owned.stop()
    shutil.rmtree(tmp_path, ignore_errors=True)


async def beat(tx: Tx) -> int:
    row = await tx.one("SELECT 42 AS answer")
    assert row is not None
    return int(row["answer"])


async def outage(server: EmbeddedPostgres, database: Database, *, immediate: bool) -> None:
    assert await database.transact(beat, name="before") == 42
    server.stop(immediate=immediate)
    for _ in range(3):
        with pytest.raises(Unavailable):
            await database.transact(beat, name="during")
    server.start()
    assert await database.transact(beat, name="after") == 42


@pytest.mark.slow
@pytest.mark.parametrize("immediate", [False, True], ids=["stopped", "crashed"])
@pytest.mark.parametrize("direct", [True, False], ids=["direct", "behind a pooler"])
def test_the_pool_recovers_from_an_outage(
    server: EmbeddedPostgres, *, immediate: bool, direct: bool
) -> None:
    async def scenario() -> None:
        pool = open_pool(
            server.start(),
            clock=FrozenClock(),
            rng=random.Random(1),
            min_size=3,
            patience=3.0,
            direct=direct,
        )
        async with pool as database:
            await outage(server, database, immediate=immediate)

    asyncio.run(scenario())


def test_the_single_connection_recovers_from_an_outage(server: EmbeddedPostgres) -> None:
    with InlineDatabase(server.start(), clock=FrozenClock()) as database:
        asyncio.run(outage(server, database, immediate=False))


@pytest.mark.slow
@pytest.mark.parametrize("direct", [True, False], ids=["direct", "behind a pooler"])
def test_a_pool_may_be_opened_before_its_server(server: EmbeddedPostgres, *, direct: bool) -> None:
    conninfo = server.start()
    server.stop()

    async def scenario() -> None:
        pool = open_pool(
            conninfo, clock=FrozenClock(), rng=random.Random(1), patience=3.0, direct=direct
        )
        async with pool as database:
            with pytest.raises(Unavailable):
                await database.transact(beat, name="early")
            server.start()
            assert await database.transact(beat, name="late") == 42

    asyncio.run(scenario())
