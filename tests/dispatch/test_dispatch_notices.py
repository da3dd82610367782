"""A webhook at one replica wakes a runner that waits at another at once, without a poll of the database."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

from tests.dispatch.dispatchharness import Harness
from tests.dispatch.test_dispatch_intake import event, send

from runyard.clock import RealClock
from runyard.components import server
from runyard.db.inline import InlineDatabase
from runyard.db.notices import PostgresNotices
from runyard.embedded.github.identity import KeyPair
from runyard.http.messages import Request
from runyard.telemetry.log import get_logger
from runyard.telemetry.meter import Meter
from runyard.wire.paths import DISPATCH

GENEROUS = 30.0
SLOW = 600.0  # seconds: without a notification the matcher does not run


@contextlib.asynccontextmanager
async def replica(harness: Harness, name: str) -> AsyncIterator[server.Wired]:
    meter = Meter()
    notices = PostgresNotices(
        harness.url,
        clock=harness.clock,
        rng=random.Random(1),
        meter=meter,
        log=get_logger("notices"),
    )
    with InlineDatabase(harness.url, clock=harness.clock) as database:
        deps = harness.deps(name=name, database=database, notices=notices, meter=meter)
        wired = server.wire(deps)
        task = asyncio.create_task(server.run_wired(wired, ready=lambda: None))
        async with asyncio.timeout(GENEROUS):
            while not notices.listening:
                await asyncio.sleep(0.01)
        try:
            yield wired
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def test_a_webhook_at_one_replica_wakes_the_matcher_of_another(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario() -> None:
        harness = Harness(database_url, app_keys, clock=RealClock(), match_every=SLOW)
        try:
            await harness.pool()
            guest = await harness.pod()
            async with (
                replica(harness, "server-1") as first,
                replica(harness, "server-2") as second,
            ):
                await second.shared.pools.refresh()
                headers = (("authorization", f"Bearer {guest.token}"), ("prefer", "wait=25"))
                request = Request(method="POST", path=DISPATCH, headers=headers, body=b"{}")
                poll: asyncio.Task[Any] = asyncio.create_task(second.intake.api.handle(request))
                async with asyncio.timeout(GENEROUS):
                    # It waits, its matcher was woken, and there was no job.
                    while not harness.slot(guest) or second.shared.waiters.wakeup.is_set():
                        await asyncio.sleep(0.01)
                    harness.server = first
                    body = event("queued", installation={"id": harness.acme})
                    assert (await send(harness, body)).json() == {"outcome": "applied"}
                    answer = await poll
                assert answer.status == 200 and answer.json()["workflow_job_id"] == 5
        finally:
            harness.close()

    asyncio.run(scenario())
