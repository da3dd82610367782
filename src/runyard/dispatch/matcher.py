"""The matcher: one per replica, claims for all Pods that wait here, and starts their mints.

Woken by the bell (a Pod began to wait, a job arrived) and by a short tick, for what other replicas
did. Reads a snapshot, asks `matching`, and claims what it proposes, some at a time: each batch is a transaction
that checks rows and budgets again under their locks (`claiming`).
"""

from collections.abc import Callable, Coroutine

from runyard.clock import Clock
from runyard.db.contract import Database, DatabaseError, Tx
from runyard.dispatch.claiming import Claimed, Claims
from runyard.dispatch.guards import SHIPPED, Guards
from runyard.dispatch.machine.events import Offer
from runyard.dispatch.machine.values import Slot
from runyard.dispatch.matching.match import match
from runyard.dispatch.matching.values import Kind, Matching, Proposal, Snapshot
from runyard.dispatch.minting.mint import Minter
from runyard.dispatch.pools import Pools
from runyard.dispatch.settings import Settings
from runyard.dispatch.snapshot import Reading, read
from runyard.dispatch.store import Store
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
        claims: Claims,
        pools: Pools,
        waiters: Waiters,
        minter: Minter,
        clock: Clock,
        meter: Meter,
        log: Logger,
        settings: Settings,
        guards: Guards = SHIPPED,
    ) -> None:
        self._guards = guards
        self._database = database
        self._store = store
        self._claims = claims
        self._pools = pools
        self._waiters = waiters
        self._minter = minter
        self._clock = clock
        self._meter = meter
        self._log = log
        self._settings = settings
        self._cut: tuple[Kind, ...] = ()  # where the last look at very many kinds ended

    async def run(self, spawn: Spawn) -> None:
        """Match for ever. `spawn` starts a mint in the server's own task group."""
        while True:
            self._waiters.bell.clear()
            claimed = 0
            try:
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
        self._waiters.hungry = True
        if not len(self._waiters):
            return 0
        uids = self._waiters.uids(self._settings.match_waiting)
        reading = await self._database.transact(lambda tx: self._read(tx, uids), name="match")
        self._waiters.hungry, self._cut = reading.hungry, reading.cut
        for uid in reading.absent:
            self._waiters.wake(uid)  # its slot is not idle: its poll looks for itself
        proposals = match(reading.snapshot, guards=self._guards).proposals
        size, claimed = self._settings.match_batch, 0
        for start in range(0, len(proposals), size):
            batch = proposals[start : start + size]
            claimed += await self._claim(spawn, reading.snapshot, batch)
        return claimed

    async def _claim(
        self, spawn: Spawn, snapshot: Snapshot, proposals: tuple[Proposal, ...]
    ) -> int:
        asked: tuple[Proposal, ...] = ()

        async def work(tx: Tx) -> Claimed:
            nonlocal asked
            asked = tuple(each for each in proposals if self._waited_for(each))
            if not asked:
                return Claimed()
            within = self._settings.deadlines.offered
            return await self._claims.claim(tx, asked, trial_within=within)

        came = await self._store.transact(work, name="claim")
        claimed = 0
        for proposal, decision in zip(asked, came.decisions, strict=True):
            outcome = "refused" if decision.refused else "claimed"
            self._meter.inc(TUIST_RUNNERS_JOB_CLAIM_COUNT, fleet=proposal.pool, outcome=outcome)
            if decision.slot is None:
                continue
            claimed += 1
            if isinstance(proposal.event, Offer):
                self._waiters.taken(proposal.pod_uid)
                self._mint(spawn, snapshot, proposal, decision.slot, came.era)
        return claimed

    def _waited_for(self, proposal: Proposal) -> bool:
        """A runner that is to be made needs a client that has not hung up meanwhile."""
        return not isinstance(proposal.event, Offer) or self._waiters.waits(proposal.pod_uid)

    async def look(self) -> Matching:
        """What would be matched now for everybody who waits anywhere, and what holds the rest. Changes nothing."""

        async def everything(tx: Tx) -> Reading:
            return await self._read(tx, (), thorough=True)

        reading = await self._database.transact(everything, name="look at the queue")
        found = match(reading.snapshot, thorough=True)
        return Matching(proposals=found.proposals, held=(*reading.selection.held, *found.held))

    def _mint(
        self, spawn: Spawn, snapshot: Snapshot, proposal: Proposal, slot: Slot, era: str
    ) -> None:
        pool = next((each for each in snapshot.pools if each.name == proposal.pool), None)
        if pool is None:
            return
        work = self._minter.complete(
            slot,
            pool.mint_labels,
            repository=proposal.repository,
            era=era,
            trial=proposal.trial,
        )
        spawn(work)

    async def _read(self, tx: Tx, uids: tuple[str, ...], *, thorough: bool = False) -> Reading:
        return await read(
            tx,
            pools=self._pools.known,
            uids=uids,
            kinds=self._settings.match_kinds,
            per_kind=self._settings.match_per_kind,
            silent=self._settings.deadlines.idle,
            after=() if thorough else self._cut,
            thorough=thorough,
        )
