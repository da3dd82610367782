"""The server's gauges: the queue as each pool sees it, the claims, the pools' sizes; and the invariant that pages.

Every replica publishes the same figures from the same rows; dashboards take the largest. A pool
that vanished gets one last zero.

*The oldest job that could run is older than it may be, while a runner that fits is idle*: that is a fault of ours and
of nobody else, whatever its cause, and so a health condition. Another one are fences that stay unanswered.
"""

import msgspec

from runyard.db.contract import Database, Row, Tx
from runyard.dispatch.machine.values import Room
from runyard.dispatch.plans.queue import Figures, Rooms, Waiting, figures, starving
from runyard.dispatch.pools import Pools, Size
from runyard.dispatch.settings import Settings
from runyard.dispatch.store import SQL
from runyard.telemetry.catalogue import (
    TUIST_RUNNERS_CLAIMS_COUNT,
    TUIST_RUNNERS_POOL_REPLICAS_DESIRED,
    TUIST_RUNNERS_POOL_REPLICAS_MAX,
    TUIST_RUNNERS_POOL_REPLICAS_OBSERVED,
    TUIST_RUNNERS_QUEUE_LENGTH,
    TUIST_RUNNERS_QUEUE_OLDEST_AGE_SECONDS,
    TUIST_RUNNERS_QUEUE_OLDEST_DISPATCHABLE_AGE_SECONDS,
    TUIST_RUNNERS_QUEUE_WITHHELD,
    TUIST_RUNNERS_SESSION_CLAMPED_COUNT,
)
from runyard.telemetry.conditions import FENCES_UNANSWERED, JOBS_STARVE
from runyard.telemetry.health import Health
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter

_LIFECYCLE = ("claimed", "running")
_MOST = 10_000  # jobs of one kind that are counted, at most
_KINDS = 1_000  # sets of labels of one tenant


class _Picture(msgspec.Struct, frozen=True, kw_only=True):
    waiting: tuple[Waiting, ...]
    rooms: Rooms
    claims: dict[tuple[str, str], int]  # by pool and state
    clamped: dict[str, int]
    idle: tuple[tuple[str, int], ...]
    unfenced: str  # whose runners, how many and since when, in words


class Gauges:
    """Publishes what the rows say, now and then."""

    def __init__(
        self,
        database: Database,
        *,
        pools: Pools,
        meter: Meter,
        log: Logger,
        settings: Settings,
        health: Health | None = None,
    ) -> None:
        self._database = database
        self._pools = pools
        self._meter = meter
        self._log = log
        self._settings = settings
        self._health = health
        self._published: tuple[str, ...] = ()

    async def step(self) -> None:
        """Read the rows once and publish."""
        picture = await self._database.transact(self._read, name="gauges")
        found = figures(self._pools.known, picture.waiting, picture.rooms)
        names = tuple(each.pool for each in found)
        gone = tuple(Figures(pool=name) for name in self._published if name not in names)
        for each in (*found, *gone):
            self._publish(each, picture)
        self._published = names
        self._judge(found, picture)

    def _judge(self, found: tuple[Figures, ...], picture: _Picture) -> None:
        hungry = starving(found, picture.idle, older=self._settings.starve_after)
        told = ", ".join(
            f"{each.pool}: a job waits for {round(each.age)} s while {each.idle} are idle"
            for each in hungry
        )
        if told:
            self._log.warning("jobs starve", pools=told)
        for condition, message in ((JOBS_STARVE, told), (FENCES_UNANSWERED, picture.unfenced)):
            if self._health is None:
                return
            if message:
                self._health.fail(condition.code, message)
            else:
                self._health.ok(condition.code)

    def _publish(self, each: Figures, picture: _Picture) -> None:
        meter, fleet = self._meter, each.pool
        meter.set(TUIST_RUNNERS_QUEUE_LENGTH, each.length, fleet=fleet)
        meter.set(TUIST_RUNNERS_QUEUE_WITHHELD, each.withheld, fleet=fleet)
        meter.set(TUIST_RUNNERS_QUEUE_OLDEST_AGE_SECONDS, each.oldest, fleet=fleet)
        meter.set(
            TUIST_RUNNERS_QUEUE_OLDEST_DISPATCHABLE_AGE_SECONDS,
            each.oldest_dispatchable,
            fleet=fleet,
        )
        for state in _LIFECYCLE:
            claims = picture.claims.get((fleet, state), 0)
            meter.set(TUIST_RUNNERS_CLAIMS_COUNT, claims, fleet=fleet, lifecycle_state=state)
        meter.set(TUIST_RUNNERS_SESSION_CLAMPED_COUNT, picture.clamped.get(fleet, 0), fleet=fleet)
        size = self._pools.size(fleet) or Size()
        meter.set(TUIST_RUNNERS_POOL_REPLICAS_DESIRED, size.desired, fleet=fleet)
        meter.set(TUIST_RUNNERS_POOL_REPLICAS_OBSERVED, size.observed, fleet=fleet)
        meter.set(TUIST_RUNNERS_POOL_REPLICAS_MAX, size.most, fleet=fleet)

    async def _read(self, tx: Tx) -> _Picture:
        waiting, rooms = await read_queue(tx)
        claims = await tx.all(SQL.claims_by_state)
        clamped = await tx.all(SQL.sessions_clamped)
        idle = await tx.all(SQL.slots_idle, silent_after=self._settings.deadlines.idle)
        fences = await tx.all(SQL.fences_unanswered, older=self._settings.fence_patience)
        return _Picture(
            waiting=waiting,
            rooms=rooms,
            claims={(row["fleet_name"], row["lifecycle_state"]): row["claims"] for row in claims},
            clamped={row["pool"]: row["sessions"] for row in clamped},
            idle=tuple((row["pool"], row["idle"]) for row in idle),
            unfenced=", ".join(
                f"{row['tenant']}: {row['fences']} for up to {round(row['age'] / 60)} min"
                for row in fences
            ),
        )


async def read_queue(tx: Tx) -> tuple[tuple[Waiting, ...], Rooms]:
    """What waits, and what is left of the budgets of those who wait."""
    kinds = await tx.all(SQL.queue_kinds, most=_MOST, kinds=_KINDS)
    tenants = list(dict.fromkeys(row["tenant"] for row in kinds))
    rooms: list[Row] = await tx.all(SQL.match_rooms, tenants=tenants) if tenants else []
    return (
        tuple(msgspec.convert(row, Waiting) for row in kinds),
        tuple(
            (row["tenant"], row["platform"], Room(vcpus=row["vcpus"], memory_gb=row["memory_gb"]))
            for row in rooms
        ),
    )
