"""The numbers of test results: the queue as its rows say, attempts as they end, the scratch, the pool.

`QueueWatch` is looked through by processors and by the server: a fleet whose processors cannot reach the database must
be seen by somebody who can. *Runs wait and nobody is alive to take them* is a health condition.
"""

import asyncio
from collections import deque

from runyard.db.contract import Database, Tx
from runyard.db.pooled import PooledDatabase
from runyard.telemetry import conditions
from runyard.telemetry.catalogue import (
    RUNYARD_PROCESSOR_ATTEMPTS_TOTAL,
    RUNYARD_PROCESSOR_CONSUMERS,
    RUNYARD_PROCESSOR_DISCARDS_TOTAL,
    RUNYARD_PROCESSOR_MENDED_TOTAL,
    RUNYARD_PROCESSOR_SCRATCH_BYTES,
    RUNYARD_PROCESSOR_SCRATCH_FREE_BYTES,
    RUNYARD_PROCESSOR_SCRATCH_SWEPT_TOTAL,
    TUIST_OBAN_JOB_PROCESSING_DURATION_MILLISECONDS,
    TUIST_OBAN_JOB_QUEUE_TIME_MILLISECONDS,
    TUIST_OBAN_QUEUE_LENGTH_COUNT,
    TUIST_OBAN_QUEUE_OLDEST_AVAILABLE_AGE_SECONDS,
    TUIST_REPO_POOL_CHECKOUT_QUEUE_STARVED_SAMPLES,
    TUIST_REPO_POOL_READY_CONN_COUNT,
    TUIST_REPO_POOL_SIZE,
)
from runyard.telemetry.health import Health
from runyard.telemetry.meter import Meter
from runyard.xcresult import store
from runyard.xcresult.plans.attempts import Decision
from runyard.xcresult.processor.queue import delivery
from runyard.xcresult.processor.queue.delivery import Consumers
from runyard.xcresult.processor.scratch import Scratch
from runyard.xcresult.settings import QUEUE
from runyard.xcresult.store import Backlog, Claim

WATCH_EVERY = 5.0
HEARD_WITHIN = 30.0
WAITED = 10.0
"""Seconds that a run may wait before it is asked who is there to take it."""
_REPO = "postgres"
_SAMPLES = 60
_STATES = {
    "processed": "completed",
    "failed": "discarded",
    "retry": "retryable",
    "released": "released",
    "lost": "retryable",
}


class QueueWatch:
    """Publishes how much work there is, and says when nobody is there to do it."""

    def __init__(self, database: Database, *, meter: Meter, health: Health | None) -> None:
        self._database = database
        self._meter = meter
        self._health = health

    async def step(self) -> None:
        """Look once."""
        backlog, alive = await self._database.transact(_look, name="xcresult watch")
        for state in ("available", "retryable", "scheduled", "executing"):
            value = float(getattr(backlog, state))
            self._meter.set(TUIST_OBAN_QUEUE_LENGTH_COUNT, value, queue=QUEUE, state=state)
        self._meter.set(TUIST_OBAN_QUEUE_OLDEST_AVAILABLE_AGE_SECONDS, backlog.oldest, queue=QUEUE)
        self._meter.set(RUNYARD_PROCESSOR_CONSUMERS, float(alive.alive))
        if self._health is None:
            return
        if wrong := unattended(backlog, alive):
            self._health.fail(conditions.NO_CONSUMER.code, wrong)
        else:
            self._health.ok(conditions.NO_CONSUMER.code)


def unattended(backlog: Backlog, alive: Consumers) -> str:
    """What is wrong if runs wait and nobody takes them; else nothing."""
    if alive.alive or not backlog.waiting or backlog.oldest < WAITED:
        return ""
    return (
        f"{backlog.waiting} runs wait, the oldest for {backlog.oldest:.0f} s,"
        f" and no processor was heard of for {HEARD_WITHIN:.0f} s"
    )


async def _look(tx: Tx) -> tuple[Backlog, Consumers]:
    return await store.backlog(tx), await delivery.consumers(tx, within=HEARD_WITHIN)


class Numbers:
    """Counts what this processor does."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def ended(self, claim: Claim, decision: Decision | None, *, took: float) -> None:
        """An attempt is over; with no decision, its run was somebody else's."""
        state = "fenced" if decision is None else _STATES[decision.verdict]
        milliseconds = took * 1000.0
        self._meter.observe(
            TUIST_OBAN_JOB_PROCESSING_DURATION_MILLISECONDS, milliseconds, queue=QUEUE, state=state
        )
        if claim.claims == 1 and claim.queued_at is not None and claim.started_at is not None:
            waited = (claim.started_at - claim.queued_at).total_seconds() * 1000.0
            self._meter.observe(TUIST_OBAN_JOB_QUEUE_TIME_MILLISECONDS, waited, queue=QUEUE)
        outcome = "fenced" if decision is None else decision.verdict
        code = "" if decision is None else decision.code
        self._meter.inc(RUNYARD_PROCESSOR_ATTEMPTS_TOTAL, outcome=outcome, code=code)
        if decision is not None and decision.verdict == "failed":
            self._meter.inc(RUNYARD_PROCESSOR_DISCARDS_TOTAL, code=code)

    def mended(self, what: dict[str, int]) -> None:
        """Rows and queue were brought together."""
        for name, count in what.items():
            self._meter.inc(RUNYARD_PROCESSOR_MENDED_TOTAL, float(count), what=name)
        if what.get("given_up"):
            self._meter.inc(
                RUNYARD_PROCESSOR_DISCARDS_TOTAL, float(what["given_up"]), code="worker_lost"
            )


class ScratchWatch:
    """Sweeps the scratch and publishes how full it is."""

    def __init__(self, scratch: Scratch, *, meter: Meter) -> None:
        self._scratch = scratch
        self._meter = meter

    async def step(self) -> None:
        """Sweep, and look."""
        gone, used = await asyncio.to_thread(self._look)
        self._meter.inc(RUNYARD_PROCESSOR_SCRATCH_SWEPT_TOTAL, float(gone))
        self._meter.set(RUNYARD_PROCESSOR_SCRATCH_BYTES, float(used))
        self._meter.set(RUNYARD_PROCESSOR_SCRATCH_FREE_BYTES, float(self._scratch.free()))

    def _look(self) -> tuple[int, int]:
        return len(self._scratch.sweep()), self._scratch.used()


class PoolWatch:
    """Publishes the state of a pool of connections, once a second."""

    def __init__(self, *pools: PooledDatabase, meter: Meter) -> None:
        self._pools = pools
        self._meter = meter
        self._starved: deque[bool] = deque(maxlen=_SAMPLES)

    async def step(self) -> None:
        """Take a sample."""
        found = [pool.stats() for pool in self._pools]
        self._starved.append(any(each.starved for each in found))
        ready, size = sum(each.ready for each in found), sum(each.size for each in found)
        self._meter.set(TUIST_REPO_POOL_READY_CONN_COUNT, float(ready), repo=_REPO)
        self._meter.set(TUIST_REPO_POOL_SIZE, float(size), repo=_REPO)
        self._meter.set(
            TUIST_REPO_POOL_CHECKOUT_QUEUE_STARVED_SAMPLES, float(sum(self._starved)), repo=_REPO
        )
