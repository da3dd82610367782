"""The signals that an autoscaler sizes a pool by: what is occupied, what could run, and what it needed lately.

All pools are read at once and remembered for a moment: autoscalers ask for each pool every few seconds, and each
answer needs the same rows. The concurrency of the last hour changes by the minute, and is remembered longer.

Invariants:
- `queued` counts only what could run now; what waits for a tenant's budget is `withheld`.
- `occupied` is never less than `claimed`.
- A pool that is not known (yet) is told its claims, and no demand.
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

_REMEMBER = 1.0
_REMEMBER_P95 = 30.0


class _Picture(msgspec.Struct, frozen=True, kw_only=True):
    until: float
    figures: tuple[Figures, ...]
    claims: tuple[tuple[str, int, int], ...]  # pool, claimed, occupied


class Signals:
    """Answers for one pool at a time."""

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
        self._picture: _Picture | None = None
        self._p95: dict[str, tuple[float, int]] = {}

    async def of(self, fleet: str) -> ScalingSignals:
        """The signals of one pool; raises `DatabaseError`."""
        picture = await self._look()
        queue = next((each for each in picture.figures if each.pool == fleet), Figures(pool=fleet))
        claimed, occupied = next(
            ((claimed, occupied) for pool, claimed, occupied in picture.claims if pool == fleet),
            (0, 0),
        )
        return ScalingSignals(
            fleet=fleet,
            claimed=claimed,
            occupied=max(claimed, occupied),
            queued=queue.dispatchable if self._guards.dispatchable_only else queue.length,
            withheld=queue.withheld,
            p95_concurrent_last_hour=await self._lately(fleet),
        )

    async def _look(self) -> _Picture:
        now = self._clock.monotonic()
        if self._picture is not None and self._picture.until > now:
            return self._picture

        async def read(tx: Tx) -> _Picture:
            waiting, rooms = await read_queue(tx)
            claims = await tx.all(SQL.claims_by_pool)
            return _Picture(
                until=now + _REMEMBER,
                figures=figures(self._pools.known, waiting, rooms),
                claims=tuple((row["pool"], row["claimed"], row["occupied"]) for row in claims),
            )

        self._picture = await self._database.transact(read, name="signals")
        return self._picture

    async def _lately(self, fleet: str) -> int:
        """The concurrency that the pool reached lately; 0 if it cannot be told, which holds nobody back."""
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
        if self._pools.by_name(fleet) is not None:  # only what exists is remembered
            self._p95[fleet] = (now + _REMEMBER_P95, found)
        return found
