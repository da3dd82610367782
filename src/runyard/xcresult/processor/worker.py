"""A processor: takes runs as long as it has slots and room for them, and sees to those of dead workers.

Loops, each with its own rhythm: *take* (wakes when a slot becomes free or work may have come), *consumer* (says that we
are alive), *mend* (rescues and brings rows and queue together), *sweep* (the scratch), *gauges*.

The end: nothing more is taken; runs in work have a while to finish; what is not finished then is given back, without
costing the run an attempt.

Invariants:
- A database that does not answer stops nothing that is in work, and costs no attempt.
- While the scratch has no room, nothing is taken: other processors shall.
"""

import asyncio
import contextlib

import msgspec

from runyard.db.contract import DatabaseError
from runyard.telemetry import conditions
from runyard.telemetry.catalogue import RUNYARD_LOOP_FAILURES_TOTAL, RUNYARD_PROCESSOR_BUSY
from runyard.telemetry.freshness import Freshness, due_within
from runyard.telemetry.health import Health
from runyard.xcresult.metrics import Numbers
from runyard.xcresult.plans.attempts import Decision, Outcome, rest
from runyard.xcresult.processor.attempt import Attempt, Tools
from runyard.xcresult.store import Claim

TAKE = "xcresult take"
_LONGEST_WAIT = 5.0
_RELEASE_WITHIN = 5.0


class Worker:
    """Takes runs and carries them through."""

    def __init__(
        self, tools: Tools, *, numbers: Numbers, health: Health, freshness: Freshness
    ) -> None:
        self._tools = tools
        self._numbers = numbers
        self._health = health
        self._freshness = freshness
        self._wake = asyncio.Event()
        self._working: dict[asyncio.Task[None], Claim] = {}
        self._pause_until = 0.0
        self._ending = False
        freshness.expect(TAKE, due_within(every=_LONGEST_WAIT, deadline=30.0))

    async def run(self, stop: asyncio.Event, *, finish_within: float) -> None:
        """Work until `stop`, and then `finish_within` seconds more on what is in work."""
        async with asyncio.TaskGroup() as group:
            take = group.create_task(self._take(group))
            await stop.wait()
            self._ending = True
            self._wake.set()
            await take  # what it is just taking is carried through, or given back, like the rest
            if self._working:
                await asyncio.wait(self._working, timeout=finish_within)
            for task in list(self._working):
                task.cancel()
        with contextlib.suppress(DatabaseError):
            await self._tools.ledger.leave()

    async def _take(self, group: asyncio.TaskGroup) -> None:
        clock, failures = self._tools.clock, 0
        while not self._ending:
            self._wake.clear()
            try:
                await self._fill(group)
            except DatabaseError as error:
                failures += 1
                self._tools.meter.inc(
                    RUNYARD_LOOP_FAILURES_TOTAL, loop=TAKE, kind=type(error).__name__
                )
                self._tools.log.warning("no work could be taken", error=str(error))
            else:
                failures = 0
                self._freshness.succeeded(TAKE)
            wait = min(_LONGEST_WAIT, self._tools.settings.poll * 2 ** min(failures, 10))
            with contextlib.suppress(TimeoutError):
                async with clock.timeout(wait):
                    await self._wake.wait()

    async def _fill(self, group: asyncio.TaskGroup) -> None:
        """Take runs until there is none, or no slot for it."""
        slots = self._tools.settings.slots
        while not self._ending and len(self._working) < slots and self._has_room():
            claim = await self._tools.ledger.next()
            if claim is None:
                return
            task = group.create_task(self._carry(claim))
            self._working[task] = claim
            task.add_done_callback(self._done)
            self._tools.meter.set(RUNYARD_PROCESSOR_BUSY, float(len(self._working)))

    def _has_room(self) -> bool:
        try:
            free = self._tools.scratch.free()
        except OSError as error:
            self._health.fail(conditions.SCRATCH_FULL.code, f"it cannot be used: {error}")
            return False
        if free < self._tools.settings.reserve:
            self._health.fail(conditions.SCRATCH_FULL.code, f"{free} bytes are free")
            return False
        self._health.ok(conditions.SCRATCH_FULL.code)
        return self._tools.clock.monotonic() >= self._pause_until

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._working.pop(task, None)
        self._tools.meter.set(RUNYARD_PROCESSOR_BUSY, float(len(self._working)))
        self._wake.set()

    async def _carry(self, claim: Claim) -> None:
        attempt = Attempt(claim, self._tools)
        started = self._tools.clock.monotonic()
        log = self._tools.log.bind(run=claim.run_id, shard=claim.shard, attempt=claim.attempt)
        log.info("taken", account=claim.account, project=claim.project)
        try:
            decision = await attempt.run()
        except asyncio.CancelledError:
            decision = await self._give_back(attempt)
            if not self._ending:
                raise
        took = self._tools.clock.monotonic() - started
        self._numbers.ended(claim, decision, took=took)
        if decision is None:
            log.warning("taken away: another worker has it")
            return
        log.info("ended", took=round(took, 3), **msgspec.to_builtins(decision))
        self._judge_storage(decision)
        pause = rest(decision, claims=claim.claims, settings=self._tools.settings.retrying)
        self._pause_until = max(self._pause_until, self._tools.clock.monotonic() + pause)

    def _judge_storage(self, decision: Decision) -> None:
        """Object storage is known by what attempts met there."""
        code = conditions.OBJECTS_UNREACHABLE.code
        if decision.code in ("storage_unavailable", "storage_refused"):
            self._health.fail(code, decision.reason)
        elif decision.verdict == "processed":
            self._health.ok(code)

    async def _give_back(self, attempt: Attempt) -> Decision | None:
        """Told to end: the run is another worker's. If that cannot be said, its lease runs out."""
        outcome = Outcome(end="released", code="released", reason="its worker was told to end")
        try:
            async with self._tools.clock.timeout(_RELEASE_WITHIN):
                return await attempt.release(outcome)
        except (DatabaseError, TimeoutError):
            return None
