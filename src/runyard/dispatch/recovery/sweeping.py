"""The sweeper: overdue slots are asked their one question.

No worker per kind of leak: every state has a deadline, so every slot comes by here sooner or later.
After an outage nothing is asked at once: a deadline that passed while nobody served starts anew,
and each tick asks about a limited number of slots.

Two edges have names by which they can be switched off or made to only speak: the offer's (`stale_claims`), and those
of a runner that is armed or executes (`orphaned_runners`).
"""

import asyncio

import msgspec

from runyard.db.contract import Database, DatabaseError, Row, Tx
from runyard.dispatch.machine.events import Event, Inconclusive, PodGone
from runyard.dispatch.machine.table import (
    SHIPPED,
    Question,
    Rules,
    after_outage,
    due,
    question,
    stay,
)
from runyard.dispatch.machine.values import Slot, SlotState
from runyard.dispatch.plans.kinds import of_slot
from runyard.dispatch.recovery.fencing import Fencer
from runyard.dispatch.recovery.modes import Reconciler
from runyard.dispatch.recovery.proofs import Prover
from runyard.dispatch.recovery.reading import Reader
from runyard.dispatch.recovery.reconciling import Desk, Finding, fields
from runyard.dispatch.recovery.safe_delete import SafeDelete
from runyard.dispatch.settings import Settings
from runyard.dispatch.store import SQL, Store, to_slot
from runyard.http.errors import TransportError
from runyard.kube.errors import KubeError
from runyard.telemetry.catalogue import RUNYARD_ACTIONS_TOTAL, TUIST_RUNNERS_RECOVERY_COUNT
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter


class Overdue(msgspec.Struct, frozen=True, kw_only=True):
    """A slot whose deadline has passed, also if no outage is counted."""

    slot: Slot
    era: str  # of the database in which it was read
    age: float  # seconds since its Pod was given to somebody, or since it first asked


class Sweeper:
    """Asks overdue slots their question and applies the answer."""

    def __init__(
        self,
        *,
        database: Database,
        store: Store,
        prover: Prover,
        fencer: Fencer,
        reader: Reader,
        deleter: SafeDelete,
        meter: Meter,
        log: Logger,
        settings: Settings,
        rules: Rules = SHIPPED,
    ) -> None:
        self._rules = rules
        self._database = database
        self._store = store
        self._prover = prover
        self._fencer = fencer
        self._reader = reader
        self._deleter = deleter
        self._meter = meter
        self._log = log
        self._settings = settings
        self._edges = {
            state: Desk(named, modes=settings.modes, meter=meter, log=log)
            for state, named in _EDGES.items()
        }

    async def step(self) -> None:
        """One tick: ask a limited number of overdue slots."""
        found = await self._database.transact(self._find, name="sweep")
        gate = asyncio.Semaphore(self._settings.sweep_parallel)
        async with asyncio.TaskGroup() as group:
            for each in found:
                if due(each.slot, overdue=True, settled=True, rules=self._rules):
                    group.create_task(self._ask_one(each, gate))

    async def tick(self) -> None:
        """Say that the service is there; a loop of its own, so that a slow sweep is not taken for an outage."""

        async def work(tx: Tx) -> None:
            await tx.run(SQL.service_tick, outage=self._settings.outage_after)

        await self._database.transact(work, name="tick")

    async def _find(self, tx: Tx) -> tuple[Overdue, ...]:
        swept = [state for state in SlotState if not self._resting(state)]
        rows = await tx.all(
            SQL.sweep_candidates,
            limit=self._settings.sweep_limit,
            outage=self._settings.outage_after,
            states=[state.value for state in swept],
            stays=[after_outage(state, self._settings.deadlines, self._rules) for state in swept],
        )
        return tuple(_overdue(row) for row in rows)

    def _resting(self, state: SlotState) -> bool:
        return state in self._edges and self._edges[state].off

    async def _ask_one(self, each: Overdue, gate: asyncio.Semaphore) -> None:
        """Ask about one slot. What the world refuses is counted, and asked again later."""
        slot, asked = each.slot, question(each.slot)
        desk = self._edges.get(slot.state)
        finding = Finding(
            pod=slot.pod_name,
            reason=f"{slot.state} for too long: {asked}",
            age=each.age,
            grace=stay(slot, self._settings.deadlines),
        )
        async with gate:
            if desk is not None and desk.dry:
                desk.would(finding, asked.value)
                await self._later(slot)
                return
            try:
                event = await self._answer(slot, asked, era=each.era)
                decision = await self._store.about_slot(
                    slot.pod_uid, event, name="swept", asked_in=each.era
                )
                if decision.refused:
                    # Whatever was learned does not apply; make sure that it is asked again.
                    later = Inconclusive(generation=slot.generation)
                    await self._store.about_slot(slot.pod_uid, later, name="ask again")
            except (KubeError, TransportError, DatabaseError) as error:
                self._count(asked, "failed")
                self._log.warning(
                    "slot not asked", pod=slot.pod_name, question=asked.value, error=str(error)
                )
                await self._later(slot)
                return
        self._count(asked, type(event).__name__)
        if kind := of_slot(slot, event, decision):
            self._healed(desk, finding, kind)

    def _healed(self, desk: Desk | None, finding: Finding, kind: str) -> None:
        if desk is not None:
            desk.healed(finding, kind=kind)
        else:
            self._log.warning("healed", **fields(finding))
            self._meter.inc(TUIST_RUNNERS_RECOVERY_COUNT, kind=kind)

    async def _later(self, slot: Slot) -> None:
        """A slot that cannot be asked now goes to the back: it must not take the turn of others for ever."""
        try:
            later = Inconclusive(generation=slot.generation)
            await self._store.about_slot(slot.pod_uid, later, name="ask again")
        except DatabaseError as error:
            self._log.warning("slot not put off", pod=slot.pod_name, error=str(error))

    async def _answer(self, slot: Slot, asked: Question, *, era: str) -> Event:
        inconclusive = Inconclusive(generation=slot.generation)
        match asked:
            case Question.LOOK_AT_POD:
                why = await self._prover.gone(pod_name=slot.pod_name, pod_uid=slot.pod_uid)
                return PodGone(why=why) if why else inconclusive
            case Question.FENCE:
                return await self._fencer.fence(slot)
            case Question.ASK_JOB:
                return await self._ask_job(slot, slot.executing_job, inconclusive)
            case Question.ASK_INTENDED:
                if slot.intended_job is not None:
                    await self._reader.ask(slot.intended_job)
                return await self._fencer.fence(slot)
            case Question.REAP:
                return await self._reap(slot, era) or inconclusive
            case Question.NOTHING:
                return inconclusive

    async def _reap(self, slot: Slot, era: str) -> PodGone | None:
        """Its job is over or its runner was fenced, so nothing can be running there: that is the proof."""

        async def still() -> bool:
            return await self._store.still(slot, asked_in=era)

        why = await self._deleter.delete_runner(
            pod_name=slot.pod_name, pod_uid=slot.pod_uid, reason=_reap_reason(slot), still=still
        )
        return PodGone(why=why) if why else None

    async def _ask_job(self, slot: Slot, job_id: int | None, inconclusive: Inconclusive) -> Event:
        """Ask about the job, and look whether the Pod still exists: either may end the slot."""
        if job_id is not None:
            await self._reader.ask(job_id)
        why = await self._prover.gone(pod_name=slot.pod_name, pod_uid=slot.pod_uid)
        return PodGone(why=why) if why else inconclusive

    def _count(self, asked: Question, outcome: str) -> None:
        self._meter.inc(RUNYARD_ACTIONS_TOTAL, room="dispatch", action=asked.value, outcome=outcome)


_EDGES = {
    SlotState.OFFERED: Reconciler.STALE_CLAIMS,
    SlotState.ARMED: Reconciler.ORPHANED_RUNNERS,
    SlotState.EXECUTING: Reconciler.ORPHANED_RUNNERS,
}


def _reap_reason(slot: Slot) -> str:
    return "fenced" if slot.executing_job is None else "its job is over"


def _overdue(row: Row) -> Overdue:
    # An App that was installed again speaks for the runners of its last time, too: they are the account's.
    slot = msgspec.structs.replace(to_slot(row), installation_id=row["installed_as"])
    return Overdue(
        slot=slot,
        era=row["era"],
        age=row["age"],
    )
