"""The matcher: one per replica, claims for all Pods that wait here, and starts their mints.

Woken by the bell (a Pod began to wait, a job arrived) and by a short tick, for what other replicas
did. Reads a snapshot, asks `matching`, applies the proposals one by one: each is a transaction that
checks rows and budget again under their locks.
"""

from collections.abc import Callable, Coroutine
from functools import partial

import msgspec

from runyard.clock import Clock
from runyard.db.contract import Database, DatabaseError, Row, Tx
from runyard.dispatch.machine.events import Offer
from runyard.dispatch.machine.values import Decision, Room
from runyard.dispatch.matching.match import (
    Candidate,
    PoolView,
    Proposal,
    Snapshot,
    TenantQueue,
    Vacancy,
    Waiting,
    fits,
    match,
)
from runyard.dispatch.minting.mint import Minter
from runyard.dispatch.pools import Pools
from runyard.dispatch.settings import Settings
from runyard.dispatch.store import SQL, Store
from runyard.dispatch.waiting import Waiters
from runyard.telemetry.catalogue import (
    RUNYARD_LOOP_FAILURES_TOTAL,
    RUNYARD_LOOP_LAST_SUCCESS_SECONDS,
    TUIST_RUNNERS_JOB_CLAIM_COUNT,
)
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter

SEPARATOR = "\x1f"  # between labels, in a list of sets of labels; no label contains it
Spawn = Callable[[Coroutine[object, object, None]], object]


class Matcher:
    """Turns waiting Pods and queued jobs into offers."""

    def __init__(
        self,
        *,
        database: Database,
        store: Store,
        pools: Pools,
        waiters: Waiters,
        minter: Minter,
        clock: Clock,
        meter: Meter,
        log: Logger,
        settings: Settings,
    ) -> None:
        self._database = database
        self._store = store
        self._pools = pools
        self._waiters = waiters
        self._minter = minter
        self._clock = clock
        self._meter = meter
        self._log = log
        self._settings = settings

    async def run(self, spawn: Spawn) -> None:
        """Match for ever. `spawn` starts a mint in the server's own task group."""
        while True:
            self._waiters.bell.clear()
            claimed = 0
            try:
                if self._waiters.uids():
                    claimed = await self.step(spawn)
                self._meter.set(
                    RUNYARD_LOOP_LAST_SUCCESS_SECONDS, self._clock.now(), loop="matcher"
                )
            except DatabaseError as error:
                kind = type(error).__name__
                self._meter.inc(RUNYARD_LOOP_FAILURES_TOTAL, loop="matcher", kind=kind)
                self._log.warning("matcher could not read or claim", error=str(error))
                await self._clock.sleep(1.0)
            if claimed:
                await self._clock.sleep(0)  # there may be more than one snapshot shows
                continue
            try:
                async with self._clock.timeout(self._settings.match_every):
                    await self._waiters.bell.wait()
            except TimeoutError:
                pass

    async def step(self, spawn: Spawn) -> int:
        """One snapshot, its proposals, their claims; returns how many succeeded."""
        claimed = 0
        snapshot = await self._database.transact(self._snapshot, name="match")
        for proposal in match(snapshot):
            if isinstance(proposal.event, Offer) and not self._waiters.waits(proposal.pod_uid):
                continue  # the client hung up meanwhile
            decision, era = await self._store.transact(
                partial(self._claim, proposal=proposal, floor=snapshot.floor), name="claim"
            )
            self._count(snapshot, proposal, decision)
            if decision.slot is None:
                continue
            claimed += 1
            if not isinstance(proposal.event, Offer):
                continue
            pool = next((each for each in snapshot.pools if each.name == decision.slot.pool), None)
            if pool is not None:
                spawn(self._minter.complete(decision.slot, pool.mint_labels, era=era))
        return claimed

    async def _claim(self, tx: Tx, *, proposal: Proposal, floor: float) -> tuple[Decision, str]:
        decision = await self._store.slot_event(tx, proposal.pod_uid, proposal.event)
        if not decision.refused and proposal.cost:
            await tx.run(SQL.tenant_charge, tenant=proposal.tenant, floor=floor, cost=proposal.cost)
        return decision, await self._store.era(tx)

    async def _snapshot(self, tx: Tx) -> Snapshot:
        nothing = Snapshot(pools=(), waiting=(), vacancies=(), tenants=())
        kinds = await tx.all(SQL.match_kinds, limit=self._settings.match_kinds)
        if not kinds:
            return nothing
        pools = self._pools.known
        waiting = await tx.all(SQL.match_slots, pod_uids=list(self._waiters.uids()))
        vacant = await tx.all(SQL.match_vacant)
        supplied = dict.fromkeys(row["pool"] for row in (*waiting, *vacant))
        jobs = await self._jobs(tx, kinds, tuple(pool for pool in pools if pool.name in supplied))
        if not jobs:
            return nothing
        by_tenant: dict[str, list[Row]] = {}
        for row in jobs:
            by_tenant.setdefault(row["tenant"], []).append(row)
        rooms = await tx.all(SQL.match_rooms, tenants=list(by_tenant))
        floor = await tx.one(SQL.match_floor)
        return Snapshot(
            pools=pools,
            waiting=tuple(msgspec.convert(row, Waiting) for row in waiting),
            vacancies=tuple(msgspec.convert(row, Vacancy) for row in vacant),
            tenants=tuple(_queue(name, own, rooms) for name, own in by_tenant.items()),
            floor=0.0 if floor is None else float(floor["floor"]),
        )

    async def _jobs(self, tx: Tx, kinds: list[Row], supplied: tuple[PoolView, ...]) -> list[Row]:
        """The oldest jobs that somebody who waits could take.

        Of the different sets of labels that are queued, only those that fit are read: however many jobs wait
        for something that is not here, they stand in nobody's way.
        """
        wanted = [
            row for row in kinds if any(fits(pool, tuple(row["labels"])) for pool in supplied)
        ]
        if not wanted:
            return []
        return await tx.all(
            SQL.match_jobs,
            tenants=[row["tenant"] for row in wanted],
            kinds=[SEPARATOR.join(row["labels"]) for row in wanted],
            per_kind=self._settings.match_per_kind,
        )

    def _count(self, snapshot: Snapshot, proposal: Proposal, decision: Decision) -> None:
        pool = next((s.pool for s in snapshot.waiting if s.pod_uid == proposal.pod_uid), "")
        outcome = "refused" if decision.refused else "claimed"
        self._meter.inc(TUIST_RUNNERS_JOB_CLAIM_COUNT, fleet=pool, outcome=outcome)


def _queue(tenant: str, own: list[Row], rooms: list[Row]) -> TenantQueue:
    return TenantQueue(
        tenant=tenant,
        installation_id=own[0]["installation_id"],
        kind=own[0]["kind"],
        weight=own[0]["weight"],
        vtime=own[0]["vtime"],
        jobs=tuple(msgspec.convert(row, Candidate) for row in own),
        rooms=tuple(
            (row["platform"], Room(vcpus=row["vcpus"], memory_gb=row["memory_gb"]))
            for row in rooms
            if row["tenant"] == tenant
        ),
    )
