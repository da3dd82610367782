"""Publishes metrics of test results: the queue, attempts, the scratch directory, the connection pool.

`QueueWatch` runs in processors and in the server, because processors that cannot reach the database cannot report it.
Runs that wait while no processor is alive are a health condition.
"""

import asyncio
from collections import deque

from runyard.db.contract import Database, Tx
from runyard.db.pooled import PooledDatabase
from runyard.telemetry import conditions
from runyard.telemetry.catalogue import (
    NO_ERROR,
    RUNYARD_PROCESSOR_ATTEMPTS_TOTAL,
    RUNYARD_PROCESSOR_CONSUMERS,
    RUNYARD_PROCESSOR_DISCARDS_TOTAL,
    RUNYARD_PROCESSOR_REPAIRS_TOTAL,
    RUNYARD_PROCESSOR_SCRATCH_BYTES,
    RUNYARD_PROCESSOR_SCRATCH_FREE_BYTES,
    RUNYARD_PROCESSOR_SCRATCH_REMOVED_TOTAL,
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
from runyard.wire.reasons_results import Unprocessed
from runyard.xcresult import store
from runyard.xcresult.plans.attempts import Decision
from runyard.xcresult.processor.queue import delivery
from runyard.xcresult.processor.queue.delivery import Consumers
from runyard.xcresult.processor.scratch import Scratch
from runyard.xcresult.settings import QUEUE
from runyard.xcresult.store import Backlog, Claim

WATCH_EVERY = 5.0
HEARTBEAT_WITHIN = 30.0
WAITED = 10.0
"""Seconds that a run may wait before missing processors become a health condition."""
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
    """Publishes the number of runs in each state, and a health condition when no processor takes them."""

    def __init__(self, database: Database, *, meter: Meter, health: Health | None) -> None:
        self._database = database
        self._meter = meter
        self._health = health

    async def step(self) -> None:
        """Read and publish once."""
        backlog, alive = await self._database.transact(_read, name="xcresult watch")
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
    """What is wrong if runs wait and no processor takes them; else empty."""
    if alive.alive or not backlog.waiting or backlog.oldest < WAITED:
        return ""
    return (
        f"{backlog.waiting} runs wait, the oldest for {backlog.oldest:.0f} s,"
        f" and no processor sent a heartbeat for {HEARTBEAT_WITHIN:.0f} s"
    )


async def _read(tx: Tx) -> tuple[Backlog, Consumers]:
    return await store.backlog(tx), await delivery.consumers(tx, within=HEARTBEAT_WITHIN)


class ProcessorMetrics:
    """Counts the attempts and repairs of this processor."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def ended(self, claim: Claim, decision: Decision | None, *, took: float) -> None:
        """Count the end of an attempt; with no decision, another worker had taken its run."""
        state = "fenced" if decision is None else _STATES[decision.verdict]
        milliseconds = took * 1000.0
        self._meter.observe(
            TUIST_OBAN_JOB_PROCESSING_DURATION_MILLISECONDS, milliseconds, queue=QUEUE, state=state
        )
        if claim.claims == 1 and claim.queued_at is not None and claim.started_at is not None:
            waited = (claim.started_at - claim.queued_at).total_seconds() * 1000.0
            self._meter.observe(TUIST_OBAN_JOB_QUEUE_TIME_MILLISECONDS, waited, queue=QUEUE)
        outcome = "fenced" if decision is None else decision.verdict
        code = NO_ERROR if decision is None else decision.code or NO_ERROR
        self._meter.inc(RUNYARD_PROCESSOR_ATTEMPTS_TOTAL, outcome=outcome, code=code)
        if decision is not None and decision.verdict == "failed":
            self._meter.inc(RUNYARD_PROCESSOR_DISCARDS_TOTAL, code=code)

    def repaired(self, what: dict[str, int]) -> None:
        """Count repairs of rows and queue."""
        for name, count in what.items():
            repair = name.replace("_", "-")
            self._meter.inc(RUNYARD_PROCESSOR_REPAIRS_TOTAL, float(count), repair=repair)
        if what.get("given_up"):
            given_up, code = float(what["given_up"]), Unprocessed.WORKER_LOST.value
            self._meter.inc(RUNYARD_PROCESSOR_DISCARDS_TOTAL, given_up, code=code)


class ScratchWatch:
    """Sweeps the scratch directory and publishes its use."""

    def __init__(self, scratch: Scratch, *, meter: Meter) -> None:
        self._scratch = scratch
        self._meter = meter

    async def step(self) -> None:
        """Sweep, and publish."""
        gone, used = await asyncio.to_thread(self._sample)
        self._meter.inc(RUNYARD_PROCESSOR_SCRATCH_REMOVED_TOTAL, float(gone))
        self._meter.set(RUNYARD_PROCESSOR_SCRATCH_BYTES, float(used))
        self._meter.set(RUNYARD_PROCESSOR_SCRATCH_FREE_BYTES, float(self._scratch.free()))

    def _sample(self) -> tuple[int, int]:
        return len(self._scratch.sweep()), self._scratch.used()


class PoolWatch:
    """Publishes the state of a connection pool, once a second."""

    def __init__(self, *pools: PooledDatabase, meter: Meter) -> None:
        self._pools = pools
        self._meter = meter
        self._starved: deque[bool] = deque(maxlen=_SAMPLES)

    async def step(self) -> None:
        """Publish a sample."""
        found = [pool.stats() for pool in self._pools]
        self._starved.append(any(each.starved for each in found))
        ready, size = sum(each.ready for each in found), sum(each.size for each in found)
        self._meter.set(TUIST_REPO_POOL_READY_CONN_COUNT, float(ready), repo=_REPO)
        self._meter.set(TUIST_REPO_POOL_SIZE, float(size), repo=_REPO)
        self._meter.set(
            TUIST_REPO_POOL_CHECKOUT_QUEUE_STARVED_SAMPLES, float(sum(self._starved)), repo=_REPO
        )
