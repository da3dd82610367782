"""Applies events about one slot or one job: locks the rows, calls the machine, writes the decision by generation.

This module decides nothing. Locks are taken in one order everywhere (tenant, jobs ascending, slots by uid), so
transactions cannot deadlock. A read without locks finds the rows that an event concerns; if the locked rows then
differ from that read, the transaction is rolled back and run again.

Only `claiming` reserves jobs; it uses the same order of locks. `writing` writes the decision and its log entries in the
same transaction.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TypeVar

import msgspec

from runyard.db.contract import (
    CommitUnknown,
    Constraint,
    Database,
    DatabaseError,
    Row,
    Statement,
    Tx,
    Unavailable,
)
from runyard.dispatch.machine.changes import Context
from runyard.dispatch.machine.events import (
    Arm,
    Event,
    JobFact,
    JobStillQueued,
    MintAbandoned,
    PodGone,
    Polled,
    SlotEvent,
)
from runyard.dispatch.machine.transition import transition
from runyard.dispatch.machine.values import Decision, Job, Slot, View, refuse
from runyard.dispatch.recorded_tx import JobTransition, Observer, RecordingTx
from runyard.dispatch.writing import SQL, JobInfo, RowsChanged, Writer
from runyard.wire.reasons_dispatch import Refused, Why

__all__ = ["SQL", "JobInfo", "Store", "to_slot"]

T = TypeVar("T")
_RETRIES = 12  # a fact waits for other facts of its tenant, and each of them may change its slot
_RACES = (
    "slots_",
    "jobs_",
    "generation",
)  # names of what a row that changed since its read violates
# Events that read and change only their slot: no other row is locked for them.
_SINGLE_SLOT_EVENTS = (Polled, Arm, MintAbandoned)
_FAILED_OVER = refuse(Refused.DATABASE_FAILED_OVER.because())


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What an event changed, and the rows of the statement that was run with the write."""

    decision: Decision
    beside: tuple[list[Row], ...] = ()


class Store:
    """Applies events to the database."""

    def __init__(
        self, database: Database, *, ctx: Context, actor: str, observer: Observer | None = None
    ) -> None:
        self._database = database
        self._ctx = ctx
        self._writer = Writer(actor)
        self._observer = observer  # called with each change of a job, after the commit

    async def apply_to_slot(
        self, pod_uid: str, event: SlotEvent, *, name: str, in_era: str = ""
    ) -> Decision:
        """Apply an event about one slot, in a transaction of its own.

        `in_era` is the era of the database in which the answer's question was asked. A failover may restore an
        earlier generation of a slot, and an answer from before it would match although it is outdated. So an answer
        to a question from before a failover is refused.
        """

        async def work(tx: Tx) -> Decision:
            if isinstance(event, _SINGLE_SLOT_EVENTS):
                return await self._apply_single_slot(tx, pod_uid, event, in_era, last=True)
            if in_era and in_era != await self.era(tx):
                return _FAILED_OVER
            return await self.apply_slot_event(tx, pod_uid, event, last=True)

        return await self.transact(work, name=name)

    async def apply_to_known(
        self, slot: Slot, event: SlotEvent, *, name: str, in_era: str
    ) -> Decision:
        """Apply an event that concerns only this slot, which was written here a moment ago, in one round trip.

        If the slot has changed since, or the database failed over, nothing is written, and the event is applied to the
        slot as it is now.
        """
        view = View(slot=slot)
        decision = transition(view, event, self._ctx)
        check = {"pod_uid": slot.pod_uid, "generation": slot.generation, "era": in_era}

        async def work(tx: Tx) -> Decision:
            written = await self._writer.write(
                tx, ((view, decision),), first=((SQL.slot_unchanged, check),), last=True
            )
            return written.decisions[0]

        if in_era and decision.refused is None and isinstance(event, _SINGLE_SLOT_EVENTS):
            try:
                return await self._transact(work, name=name)
            except (Unavailable, CommitUnknown):
                raise
            except DatabaseError:
                pass  # the check failed; whatever else it was, the transaction below reports it
        return await self.apply_to_slot(slot.pod_uid, event, name=name, in_era=in_era)

    async def era(self, tx: Tx) -> str:
        """Return the era: the start time of the database server, which a failover changes."""
        row = await tx.one(SQL.era)
        return "" if row is None else str(row["era"])

    async def is_unchanged(self, slot: Slot, *, in_era: str) -> bool:
        """Whether the slot still has the same generation, in the same era."""
        return await self.has_generation(slot.pod_uid, slot.generation, in_era=in_era)

    async def has_generation(self, pod_uid: str, generation: int | None, *, in_era: str) -> bool:
        """Whether the slot with that uid has this generation (None: does not exist), in the same era."""

        async def work(tx: Tx) -> bool:
            row = await tx.one(SQL.slot_lock, pod_uid=pod_uid)
            if (None if row is None else row["generation"]) != generation:
                return False
            era = await self.era(tx) if row is None else row["era"]
            return not in_era or in_era == era

        return await self.transact(work, name="slot unchanged")

    async def apply_job_read(self, event: JobFact, tenant: str, *, look_at: datetime) -> Decision:
        """Apply GitHub's answer about a known job, in a transaction of its own.

        `look_at` is the column's value from before the request to GitHub. "Still queued" is true only for that moment:
        a job that was requeued since must be read again. That a job runs or is over stays true.
        """

        async def work(tx: Tx) -> Decision:
            await tx.one(SQL.tenant_lock, tenant=tenant)
            row = await tx.one(SQL.job_recheck_time, job_id=event.job_id)
            changed = row is None or row["look_at"] != look_at
            if changed and isinstance(event, JobStillQueued):
                return refuse(Refused.READ_OUTDATED.because())
            return await self.apply_job_fact(tx, event, tenant, None, last=True)

        return await self.transact(work, name="job read")

    async def transact(self, work: Callable[[Tx], Awaitable[T]], *, name: str) -> T:
        """Run a transaction, again if rows changed between the read and the lock."""
        for attempt in range(_RETRIES + 1):
            try:
                return await self._transact(work, name=name)
            except (RowsChanged, Constraint) as conflict:
                # A constraint: another transaction opened that slot, took that job or changed that slot in between.
                if isinstance(conflict, Constraint) and not conflict.name.startswith(_RACES):
                    raise
                if attempt == _RETRIES:
                    raise Unavailable(
                        f"{name}: other transactions changed the rows at every attempt"
                    ) from None
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _transact(self, work: Callable[[Tx], Awaitable[T]], *, name: str) -> T:
        if self._observer is None:
            return await self._database.transact(work, name=name)

        async def recorded(tx: Tx) -> tuple[T, list[JobTransition]]:
            recording = RecordingTx(tx)
            return await work(recording), recording.job_transitions

        result, transitions = await self._database.transact(recorded, name=name)
        for each in transitions:
            self._observer(each)
        return result

    async def poll(self, event: Polled) -> Slot:
        """Apply a poll: open the Pod's slot or renew its deadline, and return the slot.

        A poll that a crash of the database loses is repeated by its Pod, so nothing waits for the disk here. A claim of
        the slot does, and what was written before it is then on the disk, too.
        """

        async def work(tx: Tx) -> Slot:
            rows, others = await tx.several(
                (SQL.slot_lock, {"pod_uid": event.pod_uid}),
                (SQL.slot_by_pod_name, {"pod_name": event.pod_name}),
            )
            slot = to_slot(rows[0]) if rows else None
            beside: tuple[Statement, ...] = ((SQL.commit_later, {}),)
            if slot is None and others:
                await self._close_predecessor(tx, event)
                beside = ()
            view = View(slot=slot)
            decision = transition(view, event, self._ctx)
            written = await self._writer.write(tx, ((view, decision),), beside=beside, last=True)
            decision = written.decisions[0]
            after = decision.slot or slot
            assert after is not None  # a poll opens a slot where there is none
            return after

        return await self.transact(work, name="poll")

    async def read_slot(self, pod_uid: str) -> Slot | None:
        """Read a Pod's slot without a lock."""

        async def work(tx: Tx) -> Slot | None:
            row = await tx.one(SQL.slot_read, pod_uid=pod_uid)
            return None if row is None else to_slot(row)

        return await self.transact(work, name="read slot")

    async def apply_slot_event(
        self, tx: Tx, pod_uid: str, event: SlotEvent, *, last: bool = False
    ) -> Decision:
        """Apply an event about one slot within a transaction; with `last`, commit it."""
        if isinstance(event, _SINGLE_SLOT_EVENTS):
            return await self._apply_single_slot(tx, pod_uid, event, last=last)
        seen = await tx.one(SQL.slot_peek, pod_uid=pod_uid)
        if seen is not None and seen["tenant"]:
            await tx.one(SQL.tenant_lock, tenant=seen["tenant"])
        jobs = await self._lock_jobs(tx, None, seen)
        slot = await self._lock_slot(tx, seen, answers=getattr(event, "generation", None))
        return await self._apply(tx, View(slot=slot, jobs=jobs), event, last=last)

    async def _apply_single_slot(
        self, tx: Tx, pod_uid: str, event: SlotEvent, in_era: str = "", *, last: bool = False
    ) -> Decision:
        row = await tx.one(SQL.slot_lock, pod_uid=pod_uid)
        if in_era and row is not None and row["era"] != in_era:
            return _FAILED_OVER
        slot = None if row is None else to_slot(row)
        return await self._apply(tx, View(slot=slot), event, last=last)

    async def apply_job_fact(
        self, tx: Tx, event: JobFact, tenant: str, info: JobInfo | None, *, last: bool = False
    ) -> Decision:
        """Apply GitHub's report about a job within a transaction. `info` is needed for an unknown job."""
        return (await self.apply_job_event(tx, event, tenant, info, last=last)).decision

    async def apply_job_event(
        self,
        tx: Tx,
        event: JobFact,
        tenant: str,
        info: JobInfo | None,
        *,
        first: Sequence[Statement] = (),
        beside: Callable[[Decision], Statement] | None = None,
        last: bool = False,
    ) -> Applied:
        """Apply a fact about a job, with other statements in the same round trips.

        `first` run before anything is locked; `beside` makes a statement that is run with the write; with `last`, the
        write commits.
        """
        runner = getattr(event, "runner_name", "")
        asked: list[Statement] = [
            *first,
            (SQL.tenant_lock, {"tenant": tenant}),
            (SQL.slot_by_intent, {"job_id": event.job_id}),
        ]
        if runner:
            asked.append((SQL.slot_by_runner, {"tenant": tenant, "runner_name": runner}))
        else:
            asked.append((SQL.job_lock, {"job_ids": [event.job_id]}))
        holders, found = (await tx.several(*asked))[-2:]
        holder, seen = next(iter(holders), None), next(iter(found), None) if runner else None
        if holder is not None and seen is not None and holder["pod_uid"] == seen["pod_uid"]:
            holder = None
        jobs = await self._lock_jobs(tx, event.job_id, seen) if runner else _jobs(found)
        slot, other = await self._lock_both(tx, seen, holder)
        view = View(slot=slot, holder=other, jobs=jobs)
        if view.job(event.job_id) is None and info is None:
            return Applied(decision=refuse(Refused.UNKNOWN_JOB.because()))
        decision = transition(view, event, self._ctx)
        more = () if beside is None else (beside(decision),)
        written = await self._writer.write(tx, ((view, decision),), info, beside=more, last=last)
        return Applied(decision=written.decisions[0], beside=written.beside)

    async def insert_job(
        self,
        event: JobFact,
        info: JobInfo,
        *,
        first: Sequence[Statement],
        beside: Callable[[Decision], Statement],
        name: str,
    ) -> Applied | None:
        """Apply the first event about a job in one round trip; None if it may have been applied before.

        The job needs no lock: inserting it fails if it exists, and a slot is never intended for a job that does not
        exist. `first` must lock the tenant, whose repositories have the priority that the job gets.
        """
        view = View()
        decision = transition(view, event, self._ctx)

        async def work(tx: Tx) -> Applied:
            written = await self._writer.write(
                tx, ((view, decision),), info, first=first, beside=(beside(decision),), last=True
            )
            return Applied(decision=written.decisions[0], beside=written.beside)

        try:
            return await self._transact(work, name=name)
        except CommitUnknown:
            return None  # perhaps the connection had died before; the event can be applied again
        except Constraint as conflict:
            if conflict.name.startswith("jobs_"):
                return None
            raise

    async def _close_predecessor(self, tx: Tx, event: Polled) -> None:
        """Close the slot of an earlier Pod with the same name: a new uid proves that it is gone.

        Only an unknown uid is newer than the known one: a late poll of an old Pod proves nothing about its
        successor. The uid is read again here because a Pod may poll twice at once: a slot that the other poll opened
        in between, or a later one, must not be closed.
        """
        other = await tx.one(SQL.slot_by_pod_name, pod_name=event.pod_name)
        if other is not None and await tx.one(SQL.slot_peek, pod_uid=event.pod_uid) is None:
            gone = PodGone(reason=Why.POD_REPLACED.because())
            await self.apply_slot_event(tx, other["pod_uid"], gone)

    async def _lock_jobs(self, tx: Tx, job_id: int | None, seen: Row | None) -> tuple[Job, ...]:
        named = (job_id, *((seen["intended_job"], seen["executing_job"]) if seen else ()))
        wanted = sorted({job for job in named if job is not None})
        if not wanted:
            return ()
        return _jobs(await tx.all(SQL.job_lock, job_ids=wanted))

    async def _lock_slot(
        self, tx: Tx, seen: Row | None, *, answers: int | None = None
    ) -> Slot | None:
        """Lock a slot that was read before. `answers`: the generation that an answer is about.

        A late answer changes nothing, so it is not tried again. Otherwise the late answers of many replicas about the
        same few slots would use up all attempts.
        """
        if seen is None:
            return None
        row = await tx.one(SQL.slot_lock, pod_uid=seen["pod_uid"])
        late = row is not None and answers is not None and row["generation"] != answers
        if row is None or (not late and any(row[name] != value for name, value in seen.items())):
            raise RowsChanged
        return to_slot(row)

    async def _lock_both(
        self, tx: Tx, first: Row | None, second: Row | None
    ) -> tuple[Slot | None, Slot | None]:
        """Lock two slots in the order of their uids; return them in the order of the arguments."""
        if first is None or second is None or first["pod_uid"] < second["pod_uid"]:
            return await self._lock_slot(tx, first), await self._lock_slot(tx, second)
        other = await self._lock_slot(tx, second)
        return await self._lock_slot(tx, first), other

    async def _apply(self, tx: Tx, view: View, event: Event, *, last: bool) -> Decision:
        decision = transition(view, event, self._ctx)
        return (await self._writer.write(tx, ((view, decision),), last=last)).decisions[0]


def _jobs(rows: list[Row]) -> tuple[Job, ...]:
    return tuple(msgspec.convert(row, Job) for row in rows)


def to_slot(row: Row) -> Slot:
    """Convert a row to a `Slot`."""
    return msgspec.convert(row, Slot, builtin_types=(bytes,))
