"""The server's gauges: the queue as each pool sees it, and the claims.

Every replica publishes the same figures from the same rows; dashboards take the largest. A pool
that vanished gets one last zero.
"""

import msgspec

from runyard.db.contract import Database, Row, Tx
from runyard.dispatch.machine.values import Room
from runyard.dispatch.plans.queue import Figures, Waiting, figures
from runyard.dispatch.pools import Pools
from runyard.dispatch.store import SQL
from runyard.telemetry.catalogue import (
    TUIST_RUNNERS_CLAIMS_COUNT,
    TUIST_RUNNERS_QUEUE_LENGTH,
    TUIST_RUNNERS_QUEUE_OLDEST_AGE_SECONDS,
    TUIST_RUNNERS_QUEUE_OLDEST_DISPATCHABLE_AGE_SECONDS,
    TUIST_RUNNERS_QUEUE_WITHHELD,
)
from runyard.telemetry.meter import Meter

_LIFECYCLE = ("claimed", "running")


class Gauges:
    """Publishes what the rows say, now and then."""

    def __init__(self, database: Database, *, pools: Pools, meter: Meter) -> None:
        self._database = database
        self._pools = pools
        self._meter = meter
        self._published: tuple[str, ...] = ()

    async def step(self) -> None:
        """Read the rows once and publish."""
        waiting, rooms, claims = await self._database.transact(_read, name="gauges")
        found = figures(self._pools.known, waiting, rooms)
        names = tuple(each.pool for each in found)
        gone = tuple(Figures(pool=name) for name in self._published if name not in names)
        for each in (*found, *gone):
            self._publish(each, claims)
        self._published = names

    def _publish(self, each: Figures, claims: list[Row]) -> None:
        meter, fleet = self._meter, each.pool
        meter.set(TUIST_RUNNERS_QUEUE_LENGTH, each.length, fleet=fleet)
        meter.set(TUIST_RUNNERS_QUEUE_WITHHELD, each.withheld, fleet=fleet)
        meter.set(TUIST_RUNNERS_QUEUE_OLDEST_AGE_SECONDS, each.oldest, fleet=fleet)
        meter.set(
            TUIST_RUNNERS_QUEUE_OLDEST_DISPATCHABLE_AGE_SECONDS,
            each.oldest_dispatchable,
            fleet=fleet,
        )
        counts = {
            row["lifecycle_state"]: row["claims"] for row in claims if row["fleet_name"] == fleet
        }
        for state in _LIFECYCLE:
            meter.set(
                TUIST_RUNNERS_CLAIMS_COUNT, counts.get(state, 0), fleet=fleet, lifecycle_state=state
            )


async def _read(
    tx: Tx,
) -> tuple[tuple[Waiting, ...], tuple[tuple[str, str, Room], ...], list[Row]]:
    kinds = await tx.all(SQL.queue_kinds)
    tenants = list(dict.fromkeys(row["tenant"] for row in kinds))
    rooms = await tx.all(SQL.match_rooms, tenants=tenants) if tenants else []
    claims = await tx.all(SQL.claims_by_state)
    return (
        tuple(msgspec.convert(row, Waiting) for row in kinds),
        tuple(
            (row["tenant"], row["platform"], Room(vcpus=row["vcpus"], memory_gb=row["memory_gb"]))
            for row in rooms
        ),
        claims,
    )
