"""Pruning: what is over and old goes, a few rows at a time, and nothing that anybody still needs.

An open slot, a fence that is due, a job that is not over, and the entries of the log that tell of them stay however
old they are. Done jobs are kept longer than GitHub can repeat a delivery of them: a job that was forgotten too early
could be queued a second time by its own first webhook.

Batches are small: none holds locks for long. A step goes on, table by table and round by round, until nothing is
left or its time is spent. So pruning keeps up with whatever is written, and a backlog of months neither starves a
table nor keeps the loop from being seen alive. Replicas may prune side by side: each skips what another one has in
hand.
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
    """Deletes what has had its time."""

    def __init__(
        self, database: Database, *, clock: Clock, meter: Meter, settings: Retention
    ) -> None:
        self._database = database
        self._clock = clock
        self._meter = meter
        self._settings = settings

    async def step(self) -> None:
        """A batch of every table, again while there are full ones; what time does not allow waits for the next step."""
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
    """Slots before jobs: a slot may name one."""
    return (
        _Rule(table="slots", sql=SQL.prune_slots, older=settings.slots),
        _Rule(table="jobs", sql=SQL.prune_jobs, older=settings.jobs),
        _Rule(table="transitions", sql=SQL.prune_transitions, older=settings.transitions),
        _Rule(table="deliveries", sql=SQL.prune_deliveries, older=settings.deliveries),
        _Rule(table="samples", sql=SQL.prune_samples, older=settings.samples),
        _Rule(table="ghost_sightings", sql=SQL.prune_sightings, older=settings.sightings),
        _Rule(table="tenant_changes", sql=SQL.prune_changes, older=settings.changes),
    )
