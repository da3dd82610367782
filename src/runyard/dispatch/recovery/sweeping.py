"""Sweeps overdue slots: asks the one question of each slot's state and applies the answer.

Every state has a deadline, so every slot is swept at some time and no kind of leak needs a loop of its own. After an
outage of the server, deadlines that passed during it start again, and each tick sweeps a limited number of slots.

Two edges can be switched to off or to a dry run: the offer's (`stale_claims`), and those of a runner that is armed or
executes (`orphaned_runners`).
"""

import asyncio

import msgspec

from runyard.db.contract import DatabaseError, Row, Tx
from runyard.dispatch.deps import Deps
from runyard.dispatch.machine.events import Inconclusive, PodGone, SlotEvent
from runyard.dispatch.machine.table import (
    Question,
    after_outage,
    due,
    question,
    time_limit,
)
from runyard.dispatch.machine.values import Slot, SlotState
from runyard.dispatch.modes import Reconciler
from runyard.dispatch.plans.kinds import of_slot
from runyard.dispatch.recovery.fencing import Fencer
from runyard.dispatch.recovery.proofs import Prover
from runyard.dispatch.recovery.reading import Reader
from runyard.dispatch.recovery.report import Finding, ReconcilerReport, fields
from runyard.dispatch.recovery.safe_delete import SafeDelete
from runyard.dispatch.recovery.unstamping import Unstamper
from runyard.dispatch.store import SQL, Store, to_slot
from runyard.http.errors import TransportError
from runyard.kube.errors import KubeError
from runyard.telemetry.catalogue import RUNYARD_ACTIONS_TOTAL, TUIST_RUNNERS_RECOVERY_COUNT
from runyard.telemetry.names import Component, slug_of
from runyard.wire.reasons import Reason
from runyard.wire.reasons_dispatch import Deleting, Found


class Overdue(msgspec.Struct, frozen=True, kw_only=True):
    """A slot whose deadline has passed, not counting outages."""

    slot: Slot
    era: str  # of the database in which it was read
    age: float  # seconds since its Pod was claimed, or since it first polled


class Sweeper:
    """Sweeps overdue slots."""

    def __init__(
        self,
        deps: Deps,
        *,
        store: Store,
        prover: Prover,
        fencer: Fencer,
        unstamper: Unstamper,
        reader: Reader,
        deleter: SafeDelete,
    ) -> None:
        self._rules = deps.guards.rules
        self._database = deps.database
        self._store = store
        self._prover = prover
        self._fencer = fencer
        self._unstamper = unstamper
        self._reader = reader
        self._deleter = deleter
        self._meter = deps.meter
        self._log = deps.log
        self._settings = deps.settings
        self._edges = {
            state: ReconcilerReport(
                named, modes=deps.settings.modes, meter=deps.meter, log=deps.log
            )
            for state, named in _EDGES.items()
        }

    async def step(self) -> None:
        """Sweep a limited number of overdue slots."""
        found = await self._database.transact(self._find, name="sweep")
        gate = asyncio.Semaphore(self._settings.sweep_parallel)
        async with asyncio.TaskGroup() as group:
            for each in found:
                if due(each.slot, overdue=True, settled=True, rules=self._rules):
                    group.create_task(self._sweep_one(each, gate))

    async def tick(self) -> None:
        """Record that the server is running; in a loop of its own, so that a slow sweep does not count as an outage."""

        async def work(tx: Tx) -> None:
            await tx.run(SQL.service_tick, outage=self._settings.outage_after)

        await self._database.transact(work, name="tick")

    async def _find(self, tx: Tx) -> tuple[Overdue, ...]:
        swept = [state for state in SlotState if not self._is_off(state)]
        rows = await tx.all(
            SQL.sweep_candidates,
            limit=self._settings.sweep_limit,
            outage=self._settings.outage_after,
            states=[state.value for state in swept],
            stays=[after_outage(state, self._settings.deadlines, self._rules) for state in swept],
        )
        return tuple(_overdue(row) for row in rows)

    def _is_off(self, state: SlotState) -> bool:
        return state in self._edges and self._edges[state].off

    async def _sweep_one(self, each: Overdue, gate: asyncio.Semaphore) -> None:
        """Sweep one slot. A failed dependency is counted, and the slot is swept again later."""
        slot, asked = each.slot, question(each.slot)
        report = self._edges.get(slot.state)
        finding = Finding(
            pod=slot.pod_name,
            reason=Found.SLOT_OVERDUE.because(state=slot.state.value, question=asked.value),
            age=each.age,
            grace=time_limit(slot, self._settings.deadlines),
        )
        async with gate:
            if report is not None and report.dry:
                report.would(finding, asked)
                await self._defer(slot)
                return
            try:
                event = await self._answer(slot, asked, era=each.era)
                decision = await self._store.apply_to_slot(
                    slot.pod_uid, event, name="swept", in_era=each.era
                )
                if decision.refused:
                    # The answer does not apply: sweep the slot again later.
                    later = Inconclusive(generation=slot.generation)
                    await self._store.apply_to_slot(slot.pod_uid, later, name="slot deferred")
            except (KubeError, TransportError, DatabaseError) as error:
                self._count(asked, "failed")
                self._log.warning(
                    "slot not swept", pod=slot.pod_name, question=asked.value, error=str(error)
                )
                await self._defer(slot)
                return
        self._count(asked, slug_of(type(event).__name__))
        if kind := of_slot(slot, event, decision):
            self._healed(report, finding, kind)

    def _healed(self, report: ReconcilerReport | None, finding: Finding, kind: str) -> None:
        if report is not None:
            report.healed(finding, kind=kind)
        else:
            self._log.warning("healed", **fields(finding))
            self._meter.inc(TUIST_RUNNERS_RECOVERY_COUNT, kind=kind)

    async def _defer(self, slot: Slot) -> None:
        """Defer a slot that cannot be swept now, so that it does not block others."""
        try:
            later = Inconclusive(generation=slot.generation)
            await self._store.apply_to_slot(slot.pod_uid, later, name="slot deferred")
        except DatabaseError as error:
            self._log.warning("slot not deferred", pod=slot.pod_name, error=str(error))

    async def _answer(self, slot: Slot, asked: Question, *, era: str) -> SlotEvent:
        inconclusive = Inconclusive(generation=slot.generation)
        match asked:
            case Question.VERIFY_POD:
                return await self._verify(slot) or inconclusive
            case Question.FENCE:
                fenced = await self._fencer.fence(slot)
                return await self._unstamper.after_fence(slot, fenced, era=era)
            case Question.READ_JOB:
                return await self._read_job(slot, slot.executing_job, inconclusive)
            case Question.READ_INTENDED_JOB:
                if slot.intended_job is not None:
                    await self._reader.read_job(slot.intended_job)
                return await self._fencer.fence(slot)
            case Question.REAP_POD:
                return await self._reap(slot, era) or inconclusive
            case Question.NOTHING:
                return inconclusive

    async def _reap(self, slot: Slot, era: str) -> PodGone | None:
        """Delete the Pod: its job has ended or its runner was fenced, so nothing can be running there."""

        async def still_valid() -> bool:
            return await self._store.is_unchanged(slot, in_era=era)

        gone = await self._deleter.delete_runner(
            pod_name=slot.pod_name,
            pod_uid=slot.pod_uid,
            reason=_reap_reason(slot),
            still_valid=still_valid,
        )
        return None if gone is None else PodGone(reason=gone)

    async def _read_job(
        self, slot: Slot, job_id: int | None, inconclusive: Inconclusive
    ) -> SlotEvent:
        """Read the job, and verify that the Pod still exists: either may end the slot."""
        if job_id is not None:
            await self._reader.read_job(job_id)
        return await self._verify(slot) or inconclusive

    async def _verify(self, slot: Slot) -> PodGone | None:
        gone = await self._prover.gone(pod_name=slot.pod_name, pod_uid=slot.pod_uid)
        return None if gone is None else PodGone(reason=gone)

    def _count(self, asked: Question, outcome: str) -> None:
        self._meter.inc(
            RUNYARD_ACTIONS_TOTAL, component=Component.SERVER, action=asked.value, outcome=outcome
        )


_EDGES = {
    SlotState.OFFERED: Reconciler.STALE_CLAIMS,
    SlotState.ARMED: Reconciler.ORPHANED_RUNNERS,
    SlotState.EXECUTING: Reconciler.ORPHANED_RUNNERS,
}


def _reap_reason(slot: Slot) -> Reason:
    ended = slot.executing_job is not None
    return (Deleting.JOB_ENDED if ended else Deleting.RUNNER_FENCED).because()


def _overdue(row: Row) -> Overdue:
    # An App that was installed again also manages the runners of its earlier installation: they are the account's.
    slot = msgspec.structs.replace(to_slot(row), installation_id=row["installed_as"])
    return Overdue(
        slot=slot,
        era=row["era"],
        age=row["age"],
    )
