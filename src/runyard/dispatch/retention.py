"""Deletes rows that are older than their retention, in small batches.

An open slot, a due fence, an unfinished job, and the log entries about them are kept whatever their age. Finished jobs
are kept for longer than GitHub can redeliver their webhooks: a job that was deleted too early could be queued again by
its own first webhook.

Batches are small, so that no locks are held for long. A step deletes one batch of each table, again and again, until
nothing is left or its time is over. So pruning keeps up with all writes, and a backlog of months neither starves a
table nor makes the loop look dead. Replicas may prune concurrently: each skips rows that another has locked.
"""

import msgspec

from runyard.clock import Clock
from runyard.db.contract import Database, Tx
from runyard.dispatch.settings import Retention
from runyard.dispatch.store import SQL
from runyard.telemetry.catalogue import RUNYARD_PRUNED_ROWS_TOTAL
from runyard.telemetry.meter import Meter


class _Rule(msgspec.Struct, frozen=True, kw_only=True):
    table: str
    sql: str
    older: float


class Pruner:
    """Deletes old rows."""

    def __init__(
        self, database: Database, *, clock: Clock, meter: Meter, settings: Retention
    ) -> None:
        self._database = database
        self._clock = clock
        self._meter = meter
        self._settings = settings

    async def step(self) -> None:
        """Delete batches of every table until none is full or the time is over; the next step continues."""
        end = self._clock.monotonic() + self._settings.within
        left = _rules(self._settings)
        while left:
            full = []
            for rule in left:
                if self._clock.monotonic() >= end:
                    return
                if await self._batch(rule) == self._settings.batch:
                    full.append(rule)
            left = tuple(full)

    async def _batch(self, rule: _Rule) -> int:
        async def delete(tx: Tx) -> int:
            return await tx.run(rule.sql, older=rule.older, limit=self._settings.batch)

        gone = await self._database.transact(delete, name=f"prune {rule.table}")
        if gone:
            self._meter.inc(RUNYARD_PRUNED_ROWS_TOTAL, gone, table=rule.table)
        return gone


def _rules(settings: Retention) -> tuple[_Rule, ...]:
    """The tables to prune; slots before jobs, because slots refer to jobs."""
    return (
        _Rule(table="slots", sql=SQL.prune_slots, older=settings.slots),
        _Rule(table="jobs", sql=SQL.prune_jobs, older=settings.jobs),
        _Rule(table="transitions", sql=SQL.prune_transitions, older=settings.transitions),
        _Rule(table="deliveries", sql=SQL.prune_deliveries, older=settings.deliveries),
        _Rule(table="samples", sql=SQL.prune_samples, older=settings.samples),
        _Rule(table="ghost_sightings", sql=SQL.prune_sightings, older=settings.sightings),
        _Rule(table="tenant_changes", sql=SQL.prune_changes, older=settings.changes),
    )
