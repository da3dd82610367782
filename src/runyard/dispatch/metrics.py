"""Exports gauges of queues, claims and pool sizes, and reports the health conditions that follow from them.

Every replica publishes the same numbers from the same rows; dashboards take the maximum. A pool that was deleted gets
one last zero.

Two health conditions are reported: jobs that could run wait for too long while a runner that fits is idle (always a
fault of the server, whatever the cause), and fences that stay unanswered.
"""

import msgspec

from runyard.db.contract import Database, Row, Tx
from runyard.dispatch.machine.values import Headroom
from runyard.dispatch.plans.queue import Figures, Headrooms, Waiting, figures, starving
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


class _Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    waiting: tuple[Waiting, ...]
    headrooms: Headrooms
    claims: dict[tuple[str, str], int]  # by pool and state
    clamped: dict[str, int]
    idle: tuple[tuple[str, int], ...]
    unfenced: str  # the tenants with unanswered fences, how many and for how long, as text


class Gauges:
    """Publishes the gauges from the database's rows."""

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
        snapshot = await self._database.transact(self._read, name="gauges")
        found = figures(self._pools.known, snapshot.waiting, snapshot.headrooms)
        names = tuple(each.pool for each in found)
        gone = tuple(Figures(pool=name) for name in self._published if name not in names)
        for each in (*found, *gone):
            self._publish(each, snapshot)
        self._published = names
        self._report_conditions(found, snapshot)

    def _report_conditions(self, found: tuple[Figures, ...], snapshot: _Snapshot) -> None:
        starved = starving(found, snapshot.idle, older=self._settings.starve_after)
        starving_pools = ", ".join(
            f"{each.pool}: a job waits for {round(each.age)} s while {each.idle} are idle"
            for each in starved
        )
        if starving_pools:
            self._log.warning("jobs starve", pools=starving_pools)
        for condition, message in (
            (JOBS_STARVE, starving_pools),
            (FENCES_UNANSWERED, snapshot.unfenced),
        ):
            if self._health is None:
                return
            if message:
                self._health.fail(condition.code, message)
            else:
                self._health.ok(condition.code)

    def _publish(self, each: Figures, snapshot: _Snapshot) -> None:
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
            claims = snapshot.claims.get((fleet, state), 0)
            meter.set(TUIST_RUNNERS_CLAIMS_COUNT, claims, fleet=fleet, lifecycle_state=state)
        meter.set(TUIST_RUNNERS_SESSION_CLAMPED_COUNT, snapshot.clamped.get(fleet, 0), fleet=fleet)
        size = self._pools.size(fleet) or Size()
        meter.set(TUIST_RUNNERS_POOL_REPLICAS_DESIRED, size.desired, fleet=fleet)
        meter.set(TUIST_RUNNERS_POOL_REPLICAS_OBSERVED, size.observed, fleet=fleet)
        meter.set(TUIST_RUNNERS_POOL_REPLICAS_MAX, size.most, fleet=fleet)

    async def _read(self, tx: Tx) -> _Snapshot:
        waiting, headrooms = await read_queue(tx)
        claims = await tx.all(SQL.claims_by_state)
        clamped = await tx.all(SQL.sessions_clamped)
        idle = await tx.all(SQL.slots_idle, silent_after=self._settings.asking_within)
        fences = await tx.all(SQL.fences_unanswered, older=self._settings.fence_patience)
        return _Snapshot(
            waiting=waiting,
            headrooms=headrooms,
            claims={(row["fleet_name"], row["lifecycle_state"]): row["claims"] for row in claims},
            clamped={row["pool"]: row["sessions"] for row in clamped},
            idle=tuple((row["pool"], row["idle"]) for row in idle),
            unfenced=", ".join(
                f"{row['tenant']}: {row['fences']} for up to {round(row['age'] / 60)} min"
                for row in fences
            ),
        )


async def read_queue(tx: Tx) -> tuple[tuple[Waiting, ...], Headrooms]:
    """Read the queued jobs and what is left of their tenants' budgets."""
    kinds = await tx.all(SQL.queue_kinds, most=_MOST, kinds=_KINDS)
    tenants = list(dict.fromkeys(row["tenant"] for row in kinds))
    headrooms: list[Row] = await tx.all(SQL.match_headroom, tenants=tenants) if tenants else []
    return (
        tuple(msgspec.convert(row, Waiting) for row in kinds),
        tuple(
            (
                row["tenant"],
                row["platform"],
                Headroom(vcpus=row["vcpus"], memory_gb=row["memory_gb"]),
            )
            for row in headrooms
        ),
    )
