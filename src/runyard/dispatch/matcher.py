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
    Proposal,
    Snapshot,
    TenantQueue,
    Vacancy,
    Waiting,
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
            try:
                if self._waiters.uids():
                    await self.step(spawn)
                self._meter.set(
                    RUNYARD_LOOP_LAST_SUCCESS_SECONDS, self._clock.now(), loop="matcher"
                )
            except DatabaseError as error:
                kind = type(error).__name__
                self._meter.inc(RUNYARD_LOOP_FAILURES_TOTAL, loop="matcher", kind=kind)
                self._log.warning("matcher could not read or claim", error=str(error))
                await self._clock.sleep(1.0)
            try:
                async with self._clock.timeout(self._settings.match_every):
                    await self._waiters.bell.wait()
            except TimeoutError:
                pass

    async def step(self, spawn: Spawn) -> None:
        """One snapshot, its proposals, their claims."""
        snapshot = await self._database.transact(self._snapshot, name="match")
        for proposal in match(snapshot):
            if proposal.pod_uid not in self._waiters.uids() and isinstance(proposal.event, Offer):
                continue  # the client hung up meanwhile
            decision = await self._store.transact(
                partial(self._claim, proposal=proposal), name="claim"
            )
            self._count(snapshot, proposal, decision)
            if decision.slot is None or not isinstance(proposal.event, Offer):
                continue
            pool = self._pools.by_name(decision.slot.pool)
            if pool is not None:
                spawn(self._minter.complete(decision.slot, pool.mint_labels))

    async def _claim(self, tx: Tx, *, proposal: Proposal) -> Decision:
        decision = await self._store.slot_event(tx, proposal.pod_uid, proposal.event)
        if not decision.refused:
            await tx.run(SQL.tenant_charge, tenant=proposal.tenant, vtime=proposal.vtime)
        return decision

    async def _snapshot(self, tx: Tx) -> Snapshot:
        jobs = await tx.all(SQL.match_jobs, per_tenant=self._settings.match_per_tenant)
        if not jobs:
            return Snapshot(pools=(), waiting=(), vacancies=(), tenants=())
        waiting = await tx.all(SQL.match_slots, pod_uids=list(self._waiters.uids()))
        vacant = await tx.all(SQL.match_vacant)
        names = list(dict.fromkeys(row["tenant"] for row in jobs))
        rooms = await tx.all(SQL.match_rooms, tenants=names)
        floor = await tx.one(SQL.match_floor)
        return Snapshot(
            pools=self._pools.known,
            waiting=tuple(msgspec.convert(row, Waiting) for row in waiting),
            vacancies=tuple(msgspec.convert(row, Vacancy) for row in vacant),
            tenants=tuple(_queue(name, jobs, rooms) for name in names),
            floor=0.0 if floor is None else float(floor["floor"]),
        )

    def _count(self, snapshot: Snapshot, proposal: Proposal, decision: Decision) -> None:
        pool = next((s.pool for s in snapshot.waiting if s.pod_uid == proposal.pod_uid), "")
        outcome = "refused" if decision.refused else "claimed"
        self._meter.inc(TUIST_RUNNERS_JOB_CLAIM_COUNT, fleet=pool, outcome=outcome)


def _queue(tenant: str, jobs: list[Row], rooms: list[Row]) -> TenantQueue:
    own = [row for row in jobs if row["tenant"] == tenant]
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
