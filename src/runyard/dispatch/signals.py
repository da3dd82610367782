"""Computes the signals that an autoscaler sizes a pool by: occupied runners, dispatchable jobs, recent concurrency.

All pools are read at once and cached for a second: autoscalers request each pool every few seconds, and each response
needs the same rows. The concurrency of the last hour changes slowly and is cached for longer.

Invariants:
- `queued` counts only jobs that could run now; jobs that wait for a tenant's budget are `withheld`.
- `occupied` is never less than `claimed`.
- For a pool that is not known (yet), claims are returned and the demand is 0.
"""

import msgspec

from runyard.clock import Clock
from runyard.db.contract import Database, DatabaseError, Row, Tx
from runyard.dispatch.guards import SHIPPED, Guards
from runyard.dispatch.metrics import read_queue
from runyard.dispatch.plans.queue import Figures, figures
from runyard.dispatch.pools import Pools
from runyard.dispatch.store import SQL
from runyard.telemetry.log import Logger
from runyard.wire.bodies import ScalingSignals

_CACHE_SECONDS = 1.0
_CACHE_SECONDS_P95 = 30.0


class _Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    until: float
    figures: tuple[Figures, ...]
    claims: tuple[tuple[str, int, int], ...]  # pool, claimed, occupied


class Signals:
    """Returns the signals of one pool at a time."""

    def __init__(
        self,
        database: Database,
        *,
        pools: Pools,
        clock: Clock,
        log: Logger,
        guards: Guards = SHIPPED,
    ) -> None:
        self._guards = guards
        self._database = database
        self._pools = pools
        self._clock = clock
        self._log = log
        self._snapshot: _Snapshot | None = None
        self._p95: dict[str, tuple[float, int]] = {}

    async def of(self, fleet: str) -> ScalingSignals:
        """Return the signals of one pool; raises `DatabaseError`."""
        snapshot = await self._read_snapshot()
        queue = next((each for each in snapshot.figures if each.pool == fleet), Figures(pool=fleet))
        claimed, occupied = next(
            ((claimed, occupied) for pool, claimed, occupied in snapshot.claims if pool == fleet),
            (0, 0),
        )
        return ScalingSignals(
            fleet=fleet,
            claimed=claimed,
            occupied=max(claimed, occupied),
            queued=getattr(queue, self._guards.demand),
            withheld=queue.withheld,
            p95_concurrent_last_hour=await self._recent_p95(fleet),
        )

    async def _read_snapshot(self) -> _Snapshot:
        now = self._clock.monotonic()
        if self._snapshot is not None and self._snapshot.until > now:
            return self._snapshot

        async def read(tx: Tx) -> _Snapshot:
            waiting, headrooms = await read_queue(tx)
            claims = await tx.all(SQL.claims_by_pool)
            return _Snapshot(
                until=now + _CACHE_SECONDS,
                figures=figures(self._pools.known, waiting, headrooms),
                claims=tuple((row["pool"], row["claimed"], row["occupied"]) for row in claims),
            )

        self._snapshot = await self._database.transact(read, name="signals")
        return self._snapshot

    async def _recent_p95(self, fleet: str) -> int:
        """Return the 95th percentile of the pool's concurrency in the last hour; 0 if it cannot be read."""
        now = self._clock.monotonic()
        self._p95 = {pool: known for pool, known in self._p95.items() if known[0] > now}
        if fleet in self._p95:
            return self._p95[fleet][1]

        async def read(tx: Tx) -> Row | None:
            return await tx.one(SQL.sessions_p95, pool=fleet)

        try:
            row = await self._database.transact(read, name="concurrency of the last hour")
        except DatabaseError as error:
            self._log.warning("concurrency not known", fleet=fleet, error=str(error))
            return 0
        found = 0 if row is None else int(row["p95"])
        if (
            self._pools.by_name(fleet) is not None
        ):  # only existing pools are cached, so the cache stays small
            self._p95[fleet] = (now + _CACHE_SECONDS_P95, found)
        return found
