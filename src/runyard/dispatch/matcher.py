"""Matches queued jobs to the Pods that poll this replica: claims jobs for them and starts their mints.

Each replica runs one matcher. It runs when it is woken (a Pod began to wait, a job arrived) and at a short interval,
for changes made by other replicas. It reads a snapshot, computes proposals with `matching`, and claims them in batches:
each batch is a transaction that checks rows and budgets again under their locks (`claiming`). It reads again at once
only if the snapshot did not contain every job, or not every job of it was claimed.
"""

from collections.abc import Callable, Coroutine

from runyard.db.contract import DatabaseError, Tx
from runyard.dispatch.claiming import Claimed, Claims
from runyard.dispatch.deps import Deps
from runyard.dispatch.machine.events import Offer
from runyard.dispatch.machine.values import Slot
from runyard.dispatch.matching.match import match
from runyard.dispatch.matching.values import Kind, Matching, Proposal, Snapshot
from runyard.dispatch.minting.marking import Marker
from runyard.dispatch.minting.mint import Minter
from runyard.dispatch.pools import Pools
from runyard.dispatch.snapshot import Reading, read
from runyard.dispatch.store import Store
from runyard.dispatch.waiters import Waiters
from runyard.telemetry.catalogue import (
    RUNYARD_LOOP_FAILURES_TOTAL,
    RUNYARD_LOOP_LAST_SUCCESS_SECONDS,
    TUIST_RUNNERS_JOB_CLAIM_COUNT,
)
from runyard.telemetry.names import Loop, error_slug

Spawn = Callable[[Coroutine[object, object, None]], object]


class Matcher:
    """Turns waiting Pods and queued jobs into offers."""

    def __init__(
        self,
        deps: Deps,
        *,
        store: Store,
        claims: Claims,
        pools: Pools,
        waiters: Waiters,
        minter: Minter,
        marker: Marker,
    ) -> None:
        self._guards = deps.guards
        self._database = deps.database
        self._store = store
        self._claims = claims
        self._pools = pools
        self._waiters = waiters
        self._minter = minter
        self._marker = marker
        self._clock = deps.clock
        self._meter = deps.meter
        self._log = deps.log
        self._settings = deps.settings
        self._resume_after: tuple[
            Kind, ...
        ] = ()  # tenants with very many kinds of jobs: where the last snapshot ended
        self._claimed_all = (
            False  # the last step left no job that its snapshot could have contained
        )

    async def run(self, spawn: Spawn) -> None:
        """Match until cancelled. `spawn` starts a mint in the server's task group."""
        expect = False
        while True:
            self._waiters.wakeup.clear()
            again = False
            try:
                again = await self.step(spawn, expect=expect) > 0 and not self._claimed_all
                self._meter.set(
                    RUNYARD_LOOP_LAST_SUCCESS_SECONDS, self._clock.now(), loop=Loop.MATCHER
                )
            except DatabaseError as error:
                kind = error_slug(error)
                self._meter.inc(RUNYARD_LOOP_FAILURES_TOTAL, loop=Loop.MATCHER, error=kind)
                self._log.warning("matcher could not read or claim", error=str(error))
                await self._clock.sleep(1.0)
            if again:
                await self._clock.sleep(0)  # there may be more jobs than one snapshot contains
                expect = True
                continue
            expect = await self._woken()

    async def _woken(self) -> bool:
        """Wait until something may match; False if the interval passed without a wakeup."""
        try:
            async with self._clock.timeout(self._settings.match_every):
                await self._waiters.wakeup.wait()
        except TimeoutError:
            return False
        return True

    async def step(self, spawn: Spawn, *, expect: bool = True) -> int:
        """Read one snapshot and claim its proposals; returns how many claims succeeded.

        `expect`: there is probably a job, so that what a match needs is read in the same round trip.
        """
        self._waiters.jobs_waiting = True
        self._claimed_all = False
        expected = self._waiters.take_expected()
        if not len(self._waiters):
            return 0
        uids = self._waiters.idle_uids(self._settings.match_waiting)
        likely = expected if uids else ()  # without an idle runner, read them only if wanted
        reading = await self._database.transact(
            lambda tx: self._read(tx, uids, expect=expect, expected=likely), name="match"
        )
        self._waiters.jobs_waiting, self._resume_after = reading.jobs_waiting, reading.resume_after
        for uid in reading.not_idle:
            self._waiters.wake(uid)  # its slot is not idle: let its poll read the slot
        proposals = match(reading.snapshot, guards=self._guards).proposals
        size, claimed = self._settings.match_batch, 0
        for start in range(0, len(proposals), size):
            batch = proposals[start : start + size]
            claimed += await self._claim(spawn, reading.snapshot, batch)
        self._claimed_all = not reading.cut and claimed == reading.jobs
        return claimed

    async def _claim(
        self, spawn: Spawn, snapshot: Snapshot, proposals: tuple[Proposal, ...]
    ) -> int:
        valid: tuple[Proposal, ...] = ()

        async def work(tx: Tx) -> Claimed:
            nonlocal valid
            valid = tuple(each for each in proposals if self._still_polled(each))
            if not valid:
                return Claimed()
            within = self._settings.deadlines.offered
            return await self._claims.claim(tx, valid, trial_within=within)

        result = await self._store.transact(work, name="claim")
        claimed = 0
        for proposal, decision in zip(valid, result.decisions, strict=True):
            outcome = "refused" if decision.refused else "claimed"
            self._meter.inc(TUIST_RUNNERS_JOB_CLAIM_COUNT, fleet=proposal.pool, outcome=outcome)
            if decision.slot is None:
                continue
            claimed += 1
            if isinstance(proposal.event, Offer):
                self._waiters.mark_busy(proposal.pod_uid)
                paid = proposal.event.job_id in result.paid
                self._mint(spawn, snapshot, proposal, decision.slot, result.era, paid=paid)
            else:
                spawn(self._marker.mark(decision.slot.pod_uid))  # its runner has a new job
        return claimed

    def _still_polled(self, proposal: Proposal) -> bool:
        """A new runner is minted only for a Pod whose poll is still open."""
        return not isinstance(proposal.event, Offer) or self._waiters.is_waiting(proposal.pod_uid)

    async def preview(self) -> Matching:
        """Compute what would be matched now on all replicas, and what holds the other jobs. Changes nothing."""

        async def everything(tx: Tx) -> Reading:
            return await self._read(tx, (), thorough=True)

        reading = await self._database.transact(everything, name="match preview")
        found = match(reading.snapshot, thorough=True)
        return Matching(
            proposals=found.proposals,
            held=(*reading.selection.held, *found.held),
            pools_read=self._pools.was_read,
        )

    def _mint(
        self,
        spawn: Spawn,
        snapshot: Snapshot,
        proposal: Proposal,
        slot: Slot,
        era: str,
        *,
        paid: bool,
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
            paid=paid,
        )
        spawn(work)

    async def _read(
        self,
        tx: Tx,
        uids: tuple[str, ...],
        *,
        thorough: bool = False,
        expect: bool = True,
        expected: tuple[Kind, ...] = (),
    ) -> Reading:
        return await read(
            tx,
            pools=self._pools.known,
            uids=uids,
            kinds=self._settings.match_kinds,
            per_kind=self._settings.match_per_kind,
            silent=self._settings.asking_within,
            after=() if thorough else self._resume_after,
            thorough=thorough,
            expect=expect,
            expected=expected,
        )
