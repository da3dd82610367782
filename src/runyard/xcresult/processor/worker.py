"""A processor's worker: claims runs while it has free slots and disk space, and processes them.

Loops, each with its own interval: *take* (wakes when a slot becomes free or work may have arrived), *consumer* (writes
the heartbeat), *repair* (rescues runs of dead workers, makes rows and queue agree), *sweep* (the scratch directory),
*gauges*.

On shutdown no more runs are claimed; runs in progress may finish for a while; the others are given back without
costing an attempt.

Invariants:
- A database outage does not interrupt runs in progress and costs no attempt.
- While the scratch directory has too little space, no run is claimed: other processors get them.
"""

import asyncio
import contextlib

from runyard.db.contract import DatabaseError
from runyard.telemetry import conditions
from runyard.telemetry.catalogue import (
    RUNYARD_LOOP_FAILURES_TOTAL,
    RUNYARD_PROCESSOR_RUNS_IN_PROGRESS,
)
from runyard.telemetry.freshness import due_within
from runyard.telemetry.names import Loop, error_slug
from runyard.wire.reasons import render
from runyard.wire.reasons_results import STORAGE_FAILED, Unprocessed
from runyard.xcresult.plans.attempts import Decision, Outcome, pause_after
from runyard.xcresult.processor.attempt import Attempt, Tools
from runyard.xcresult.processor.deps import Deps
from runyard.xcresult.processor.metrics import ProcessorMetrics
from runyard.xcresult.store import Claim

TAKE = Loop.PROCESSOR_CLAIM
_LONGEST_WAIT = 5.0
_RELEASE_WITHIN = 5.0


class Worker:
    """Claims and processes runs."""

    def __init__(self, deps: Deps, tools: Tools, metrics: ProcessorMetrics) -> None:
        self._deps = deps
        self._tools = tools
        self._metrics = metrics
        self._wake = asyncio.Event()
        self._working: dict[asyncio.Task[None], Claim] = {}
        self._pause_until = 0.0
        self._ending = False
        deps.freshness.expect(TAKE, due_within(every=_LONGEST_WAIT, deadline=30.0))

    async def run(self, stop: asyncio.Event, *, finish_within: float) -> None:
        """Work until `stop` is set, then at most `finish_within` seconds more on the runs in progress."""
        async with asyncio.TaskGroup() as group:
            take = group.create_task(self._take(group))
            await stop.wait()
            self._ending = True
            self._wake.set()
            await take  # a claim in progress is processed or given back like the others
            if self._working:
                await asyncio.wait(self._working, timeout=finish_within)
            for task in list(self._working):
                task.cancel()
        with contextlib.suppress(DatabaseError):
            await self._tools.claims.leave()

    async def _take(self, group: asyncio.TaskGroup) -> None:
        clock, failures = self._deps.clock, 0
        while not self._ending:
            self._wake.clear()
            try:
                await self._fill(group)
            except DatabaseError as error:
                failures += 1
                self._deps.meter.inc(
                    RUNYARD_LOOP_FAILURES_TOTAL, loop=TAKE, error=error_slug(error)
                )
                self._deps.log.warning("no run could be claimed; retrying", error=str(error))
            else:
                failures = 0
                self._deps.freshness.succeeded(TAKE)
            wait = min(_LONGEST_WAIT, self._deps.settings.poll * 2 ** min(failures, 10))
            with contextlib.suppress(TimeoutError):
                async with clock.timeout(wait):
                    await self._wake.wait()

    async def _fill(self, group: asyncio.TaskGroup) -> None:
        """Claim runs until none is due or no slot is free."""
        slots = self._deps.settings.slots
        while not self._ending and len(self._working) < slots and self._has_room():
            claim = await self._tools.claims.next()
            if claim is None:
                return
            task = group.create_task(self._carry(claim))
            self._working[task] = claim
            task.add_done_callback(self._done)
            self._deps.meter.set(RUNYARD_PROCESSOR_RUNS_IN_PROGRESS, float(len(self._working)))

    def _has_room(self) -> bool:
        try:
            free = self._tools.scratch.free()
        except OSError as error:
            self._deps.health.fail(
                conditions.SCRATCH_FULL.code, f"the scratch directory cannot be used: {error}"
            )
            return False
        if free < self._deps.settings.reserve:
            self._deps.health.fail(
                conditions.SCRATCH_FULL.code, f"{free} bytes are free in the scratch directory"
            )
            return False
        self._deps.health.ok(conditions.SCRATCH_FULL.code)
        return self._deps.clock.monotonic() >= self._pause_until

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._working.pop(task, None)
        self._deps.meter.set(RUNYARD_PROCESSOR_RUNS_IN_PROGRESS, float(len(self._working)))
        self._wake.set()

    async def _carry(self, claim: Claim) -> None:
        attempt = Attempt(claim, self._deps, self._tools)
        started = self._deps.clock.monotonic()
        log = self._deps.log.bind(run=claim.run_id, shard=claim.shard, attempt=claim.attempt)
        log.info("taken", account=claim.account, project=claim.project)
        try:
            decision = await attempt.run()
        except asyncio.CancelledError:
            decision = await self._give_back(attempt)
            if not self._ending:
                raise
        took = self._deps.clock.monotonic() - started
        self._metrics.ended(claim, decision, took=took)
        if decision is None:
            log.warning("claim lost: another worker has the run")
            return
        log.info("ended", took=round(took, 3), **_logged(decision))
        self._report_storage(decision)
        pause = pause_after(decision, claims=claim.claims, settings=self._deps.settings.retrying)
        self._pause_until = max(self._pause_until, self._deps.clock.monotonic() + pause)

    def _report_storage(self, decision: Decision) -> None:
        """Set the health condition of object storage from the outcomes of attempts."""
        code = conditions.OBJECT_STORE_UNREACHABLE.code
        if decision.reason is not None and decision.reason.code in STORAGE_FAILED:
            self._deps.health.fail(code, render(decision.reason))
        elif decision.verdict == "processed":
            self._deps.health.ok(code)

    async def _give_back(self, attempt: Attempt) -> Decision | None:
        """Give the run back on shutdown. If that fails, its lease expires and another worker gets it."""
        outcome = Outcome(end="released", reason=Unprocessed.RELEASED.because())
        try:
            async with self._deps.clock.timeout(_RELEASE_WITHIN):
                return await attempt.release(outcome)
        except (DatabaseError, TimeoutError):
            return None


def _logged(decision: Decision) -> dict[str, object]:
    return {
        "verdict": decision.verdict,
        "delay": decision.delay,
        "spent": decision.spent,
        "code": decision.code,
        "reason": "" if decision.reason is None else render(decision.reason),
    }
