"""The matcher: one per replica, claims for all Pods that wait here, and starts their mints.

Woken by the bell (a Pod began to wait, a job arrived) and by a short tick, for what other replicas
did. Reads a snapshot, asks `matching`, applies the proposals one by one: each is a transaction that
checks rows and budget again under their locks.
"""

from collections.abc import Callable, Coroutine
from functools import partial

from runyard.clock import Clock
from runyard.db.contract import Database, DatabaseError, Tx
from runyard.dispatch.machine.events import Offer
from runyard.dispatch.machine.values import Decision
from runyard.dispatch.matching.match import match
from runyard.dispatch.matching.values import Matching, Proposal, Snapshot
from runyard.dispatch.minting.mint import Minter
from runyard.dispatch.pools import Pools
from runyard.dispatch.settings import Settings
from runyard.dispatch.snapshot import Reading, read
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
        reading = await self._database.transact(self._read, name="match")
        snapshot = reading.snapshot
        for proposal in match(snapshot).proposals:
            if isinstance(proposal.event, Offer) and not self._waiters.waits(proposal.pod_uid):
                continue  # the client hung up meanwhile
            decision, era = await self._store.transact(
                partial(self._claim, proposal=proposal, floor=snapshot.floor), name="claim"
            )
            outcome = "refused" if decision.refused else "claimed"
            self._meter.inc(TUIST_RUNNERS_JOB_CLAIM_COUNT, fleet=proposal.pool, outcome=outcome)
            if decision.slot is None:
                continue
            claimed += 1
            if isinstance(proposal.event, Offer):
                self._mint(spawn, snapshot, proposal, decision, era)
        return claimed

    async def look(self) -> Matching:
        """What would be matched now for everybody who waits anywhere, and what holds the rest. Changes nothing."""

        async def everything(tx: Tx) -> Reading:
            return await self._read(tx, thorough=True)

        reading = await self._database.transact(everything, name="look at the queue")
        found = match(reading.snapshot, thorough=True)
        return Matching(proposals=found.proposals, held=(*reading.selection.held, *found.held))

    def _mint(
        self, spawn: Spawn, snapshot: Snapshot, proposal: Proposal, decision: Decision, era: str
    ) -> None:
        pool = next((each for each in snapshot.pools if each.name == proposal.pool), None)
        if pool is None or decision.slot is None:
            return
        work = self._minter.complete(
            decision.slot,
            pool.mint_labels,
            repository=proposal.repository,
            era=era,
            trial=bool(proposal.trial),
        )
        spawn(work)

    async def _claim(self, tx: Tx, *, proposal: Proposal, floor: float) -> tuple[Decision, str]:
        decision = await self._store.slot_event(tx, proposal.pod_uid, proposal.event)
        if not decision.refused and proposal.cost:
            await self._charge(tx, proposal, floor)
        return decision, await self._store.era(tx)

    async def _charge(self, tx: Tx, proposal: Proposal, floor: float) -> None:
        tenant, cost = proposal.tenant, proposal.cost
        await tx.run(SQL.tenant_charge, tenant=tenant, floor=floor, cost=cost)
        await tx.run(
            SQL.repository_charge,
            tenant=tenant,
            repository=proposal.repository,
            floor=proposal.floor,
            cost=cost,
        )
        if proposal.trial:
            kind, _, name = proposal.trial.partition(":")
            within = self._settings.deadlines.offered
            await tx.run(SQL.exclusion_try, kind=kind, name=name, within=within)

    async def _read(self, tx: Tx, *, thorough: bool = False) -> Reading:
        return await read(
            tx,
            pools=self._pools.known,
            uids=self._waiters.uids(),
            kinds=self._settings.match_kinds,
            per_kind=self._settings.match_per_kind,
            silent=self._settings.deadlines.idle,
            thorough=thorough,
        )
