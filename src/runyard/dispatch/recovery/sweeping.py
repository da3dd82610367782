"""The sweeper: overdue slots are asked their one question.

No worker per kind of leak: every state has a deadline, so every slot comes by here sooner or later.
After an outage nothing is asked at once: a deadline that passed while nobody served starts anew,
and each tick asks about a limited number of slots.
"""

import asyncio

import msgspec

from runyard.clock import Clock
from runyard.db.contract import Database, DatabaseError, Row, Tx
from runyard.dispatch.machine.events import Event, Inconclusive, PodGone
from runyard.dispatch.machine.table import Question, after_outage, due, question
from runyard.dispatch.machine.values import Slot, SlotState
from runyard.dispatch.recovery.fencing import Fencer
from runyard.dispatch.recovery.proofs import Prover
from runyard.dispatch.recovery.reading import Reader
from runyard.dispatch.recovery.reaping import Reaper
from runyard.dispatch.settings import Settings
from runyard.dispatch.store import SQL, Store, to_slot
from runyard.http.errors import TransportError
from runyard.kube.errors import KubeError
from runyard.telemetry.catalogue import RUNYARD_ACTIONS_TOTAL, TUIST_RUNNERS_RECOVERY_COUNT
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter


class Overdue(msgspec.Struct, frozen=True, kw_only=True):
    """A slot whose deadline has passed, and whether it may be asked already."""

    slot: Slot
    overdue: bool
    settled: bool
    era: str  # of the database in which it was read


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
        reaper: Reaper,
        clock: Clock,
        meter: Meter,
        log: Logger,
        settings: Settings,
    ) -> None:
        self._database = database
        self._store = store
        self._prover = prover
        self._fencer = fencer
        self._reader = reader
        self._reaper = reaper
        self._clock = clock
        self._meter = meter
        self._log = log
        self._settings = settings

    async def step(self) -> None:
        """One tick: ask a limited number of overdue slots."""
        found = await self._database.transact(self._find, name="sweep")
        gate = asyncio.Semaphore(self._settings.sweep_parallel)
        async with asyncio.TaskGroup() as group:
            for each in found:
                if due(each.slot, overdue=each.overdue, settled=each.settled):
                    group.create_task(self._ask_one(each.slot, each.era, gate))

    async def tick(self) -> None:
        """Say that the service is there; a loop of its own, so that a slow sweep is not taken for an outage."""

        async def work(tx: Tx) -> None:
            await tx.run(SQL.service_tick, outage=self._settings.outage_after)

        await self._database.transact(work, name="tick")

    async def close_if_gone(self, *, pod_name: str, pod_uid: str) -> bool:
        """A hint says that this Pod is gone: ask for the proof, and close its slot on it."""
        why = await self._prover.gone(pod_name=pod_name, pod_uid=pod_uid)
        if not why:
            return False
        decision = await self._store.about_slot(pod_uid, PodGone(why=why), name="pod gone")
        return not decision.refused

    async def _find(self, tx: Tx) -> tuple[Overdue, ...]:
        rows = await tx.all(
            SQL.sweep_candidates,
            limit=self._settings.sweep_limit,
            outage=self._settings.outage_after,
            states=[state.value for state in SlotState],
            stays=[after_outage(state, self._settings.deadlines) for state in SlotState],
        )
        return tuple(_overdue(row) for row in rows)

    async def _ask_one(self, slot: Slot, era: str, gate: asyncio.Semaphore) -> None:
        """Ask about one slot. What the world refuses is counted, and asked again later."""
        asked = question(slot)
        async with gate:
            try:
                event = await self._answer(slot, asked)
                decision = await self._store.about_slot(
                    slot.pod_uid, event, name="swept", asked_in=era
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
        if not isinstance(event, Inconclusive):
            self._meter.inc(TUIST_RUNNERS_RECOVERY_COUNT, kind=_KINDS[slot.state])

    async def _later(self, slot: Slot) -> None:
        """A slot that cannot be asked now goes to the back: it must not take the turn of others for ever."""
        try:
            later = Inconclusive(generation=slot.generation)
            await self._store.about_slot(slot.pod_uid, later, name="ask again")
        except DatabaseError as error:
            self._log.warning("slot not put off", pod=slot.pod_name, error=str(error))

    async def _answer(self, slot: Slot, asked: Question) -> Event:
        inconclusive = Inconclusive(generation=slot.generation)
        match asked:
            case Question.LOOK_AT_POD:
                why = await self._prover.gone(pod_name=slot.pod_name, pod_uid=slot.pod_uid)
                return PodGone(why=why) if why else inconclusive
            case Question.FENCE:
                return await self._fencer.fence(slot) or inconclusive
            case Question.ASK_JOB:
                return await self._ask_job(slot, slot.executing_job, inconclusive)
            case Question.ASK_INTENDED:
                if slot.intended_job is not None:
                    await self._reader.ask(slot.intended_job)
                return await self._fencer.fence(slot) or inconclusive
            case Question.REAP:
                return await self._reaper.reap(slot)
            case Question.NOTHING:
                return inconclusive

    async def _ask_job(self, slot: Slot, job_id: int | None, inconclusive: Inconclusive) -> Event:
        """Ask about the job, and look whether the Pod still exists: either may end the slot."""
        if job_id is not None:
            await self._reader.ask(job_id)
        why = await self._prover.gone(pod_name=slot.pod_name, pod_uid=slot.pod_uid)
        return PodGone(why=why) if why else inconclusive

    def _count(self, asked: Question, outcome: str) -> None:
        self._meter.inc(RUNYARD_ACTIONS_TOTAL, room="dispatch", action=asked.value, outcome=outcome)


_KINDS = {
    SlotState.IDLE: "pod_missing_claim",
    SlotState.OFFERED: "stale_claim",
    SlotState.ARMED: "orphan_requeued",
    SlotState.EXECUTING: "orphan_completed",
    SlotState.DRAINING: "finished_job_pod",
    SlotState.CLOSED: "completed_claim",
}


def _overdue(row: Row) -> Overdue:
    return Overdue(
        slot=to_slot(row), overdue=row["overdue"], settled=row["settled"], era=row["era"]
    )
