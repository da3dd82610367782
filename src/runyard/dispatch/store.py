"""The only writer of slots and jobs: load and lock the rows, ask the machine, write the answer by generation.

Nothing is decided here. Locks are taken in one order everywhere (tenant, jobs ascending, slots by
uid), so two transitions can wait for each other but never in a circle. Which rows an event concerns
is learned by an unlocked look first; if a lock then shows other rows than the look did, the
transaction is rolled back and run again.

What was decided is written by `writing`, with the log, in the same transaction.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TypeVar

import msgspec

from runyard.db.contract import Constraint, Database, Row, Tx, Unavailable
from runyard.dispatch.machine.changes import Context
from runyard.dispatch.machine.events import (
    Arm,
    Event,
    JobFact,
    JobStillQueued,
    MintAbandoned,
    Offer,
    PodGone,
    Polled,
)
from runyard.dispatch.machine.transition import transition
from runyard.dispatch.machine.values import Decision, Job, Room, Slot, View, refuse
from runyard.dispatch.noting import JobMoved, Noting, Observer
from runyard.dispatch.writing import SQL, JobInfo, Moved, Writer

__all__ = ["SQL", "JobInfo", "Store", "to_slot"]

T = TypeVar("T")
_RETRIES = 12  # a fact waits behind its tenant's others, and each of them may move its slot
# Events that read and change their slot and nothing else: no other row is locked for them.
_ALONE = (Polled, Arm, MintAbandoned)
_FAILED_OVER = refuse("the database has failed over since this was asked")


class Store:
    """Applies events to the database."""

    def __init__(
        self, database: Database, *, ctx: Context, actor: str, observer: Observer | None = None
    ) -> None:
        self._database = database
        self._ctx = ctx
        self._writer = Writer(actor)
        self._observer = observer  # told of jobs that moved, after the commit

    async def about_slot(
        self, pod_uid: str, event: Event, *, name: str, asked_in: str = ""
    ) -> Decision:
        """Apply an event about one slot, in a transaction of its own.

        `asked_in` is the era of the database in which the question behind an answer was asked. A failover
        may give a slot an earlier generation back, and an answer of that time would fit although the world
        has moved on: what was asked before a failover is not committed after it.
        """

        async def work(tx: Tx) -> Decision:
            if isinstance(event, _ALONE):
                return await self._alone(tx, pod_uid, event, asked_in)
            if asked_in and asked_in != await self.era(tx):
                return _FAILED_OVER
            return await self.slot_event(tx, pod_uid, event)

        return await self.transact(work, name=name)

    async def era(self, tx: Tx) -> str:
        """Which incarnation of the database this transaction runs in."""
        row = await tx.one(SQL.era)
        return "" if row is None else str(row["era"])

    async def still(self, slot: Slot, *, asked_in: str) -> bool:
        """Is the slot as it was, in the same era: same state, same generation?"""
        return await self.unmoved(slot.pod_uid, slot.generation, asked_in=asked_in)

    async def unmoved(self, pod_uid: str, generation: int | None, *, asked_in: str) -> bool:
        """The same of a slot by its uid and generation; None says that there was none."""

        async def work(tx: Tx) -> bool:
            row = await tx.one(SQL.slot_lock, pod_uid=pod_uid)
            if (None if row is None else row["generation"]) != generation:
                return False
            era = await self.era(tx) if row is None else row["era"]
            return not asked_in or asked_in == era

        return await self.transact(work, name="still")

    async def job_read(self, event: JobFact, tenant: str, *, look_at: datetime) -> Decision:
        """Apply GitHub's answer about a job that we know, in a transaction of its own.

        `look_at` is the row's, from before GitHub was asked. "Still queued" is only true of that moment: a job
        that was given back meanwhile must be asked about once more. That a job runs or is over stays true.
        """

        async def work(tx: Tx) -> Decision:
            await tx.one(SQL.tenant_lock, tenant=tenant)
            row = await tx.one(SQL.job_look, job_id=event.job_id)
            moved = row is None or row["look_at"] != look_at
            if moved and isinstance(event, JobStillQueued):
                return refuse("the job has moved on since GitHub was asked")
            return await self.job_fact(tx, event, tenant, None)

        return await self.transact(work, name="job read")

    async def transact(self, work: Callable[[Tx], Awaitable[T]], *, name: str) -> T:
        """Run a transaction, again if the rows moved between look and lock."""
        for _ in range(_RETRIES):
            try:
                return await self._transact(work, name=name)
            except Moved:
                continue
            except Constraint as conflict:
                # Somebody else opened the same slot or took the same job in between.
                if not conflict.name.startswith(("slots_", "jobs_")):
                    raise
        try:
            return await self._transact(work, name=name)
        except Moved:
            raise Unavailable(f"{name}: the rows moved at every attempt") from None

    async def _transact(self, work: Callable[[Tx], Awaitable[T]], *, name: str) -> T:
        if self._observer is None:
            return await self._database.transact(work, name=name)

        async def noted(tx: Tx) -> tuple[T, list[JobMoved]]:
            noting = Noting(tx)
            return await work(noting), noting.moved

        result, moved = await self._database.transact(noted, name=name)
        for each in moved:
            self._observer(each)
        return result

    async def poll(self, event: Polled) -> Slot:
        """A Pod asked for work: open its slot or count the beat, and return the slot as it is now."""

        async def work(tx: Tx) -> Slot:
            row = await tx.one(SQL.slot_lock, pod_uid=event.pod_uid)
            if row is None:
                await self._close_predecessor(tx, event)
            slot = None if row is None else to_slot(row)
            decision = await self._apply(tx, View(slot=slot), event, None)
            after = decision.slot or slot
            if after is None:
                raise Moved
            return after

        return await self.transact(work, name="poll")

    async def look(self, pod_uid: str) -> Slot | None:
        """A Pod's slot as it is now."""

        async def work(tx: Tx) -> Slot | None:
            row = await tx.one(SQL.slot_read, pod_uid=pod_uid)
            return None if row is None else to_slot(row)

        return await self.transact(work, name="look at a slot")

    async def slot_event(self, tx: Tx, pod_uid: str, event: Event) -> Decision:
        """Apply an event about one slot within a transaction."""
        if isinstance(event, _ALONE):
            return await self._alone(tx, pod_uid, event)
        seen = await tx.one(SQL.slot_peek, pod_uid=pod_uid)
        tenant = event.tenant if isinstance(event, Offer) else _tenant(seen)
        room = None
        if tenant:
            await tx.one(SQL.tenant_lock, tenant=tenant)
        jobs = await self._lock_jobs(tx, getattr(event, "job_id", None), seen)
        slot = await self._lock_slot(tx, seen, answers=getattr(event, "generation", None))
        if isinstance(event, Offer):
            room = await self._room(tx, tenant, event.platform)
        view = View(slot=slot, jobs=jobs, room=room)
        return await self._apply(tx, view, event, None)

    async def _alone(self, tx: Tx, pod_uid: str, event: Event, asked_in: str = "") -> Decision:
        row = await tx.one(SQL.slot_lock, pod_uid=pod_uid)
        if asked_in and row is not None and row["era"] != asked_in:
            return _FAILED_OVER
        slot = None if row is None else to_slot(row)
        return await self._apply(tx, View(slot=slot), event, None)

    async def job_fact(self, tx: Tx, event: JobFact, tenant: str, info: JobInfo | None) -> Decision:
        """Apply GitHub's word about a job within a transaction. `info` is needed for an unknown job."""
        await tx.one(SQL.tenant_lock, tenant=tenant)
        runner = getattr(event, "runner_name", "")
        seen = None
        if runner:
            seen = await tx.one(SQL.slot_by_runner, tenant=tenant, runner_name=runner)
        rival = await tx.one(SQL.slot_by_intent, job_id=event.job_id)
        if rival is not None and seen is not None and rival["pod_uid"] == seen["pod_uid"]:
            rival = None
        jobs = await self._lock_jobs(tx, event.job_id, seen)
        slot, other = await self._lock_both(tx, seen, rival)
        view = View(slot=slot, rival=other, jobs=jobs)
        if view.job(event.job_id) is None and info is None:
            return refuse("unknown job")
        return await self._apply(tx, view, event, info)

    async def _close_predecessor(self, tx: Tx, event: Polled) -> None:
        """Another uid under the same Pod name proves that the earlier incarnation is gone.

        Only a uid that we have not seen yet is later than the one that we know: an old incarnation that asks
        once more says nothing about its successor. Looked for once more here, because a Pod may ask twice at once: what
        the other poll opened in between, or what came after that, must not be closed by this one.
        """
        other = await tx.one(SQL.slot_by_pod_name, pod_name=event.pod_name)
        if other is not None and await tx.one(SQL.slot_peek, pod_uid=event.pod_uid) is None:
            gone = PodGone(why="another uid under that name")
            await self.slot_event(tx, other["pod_uid"], gone)

    async def _lock_jobs(self, tx: Tx, job_id: int | None, seen: Row | None) -> tuple[Job, ...]:
        named = (job_id, *((seen["intended_job"], seen["executing_job"]) if seen else ()))
        wanted = sorted({job for job in named if job is not None})
        if not wanted:
            return ()
        rows = await tx.all(SQL.job_lock, job_ids=wanted)
        return tuple(msgspec.convert(row, Job) for row in rows)

    async def _lock_slot(
        self, tx: Tx, seen: Row | None, *, answers: int | None = None
    ) -> Slot | None:
        """Lock a slot that was looked at. `answers`: the generation that an answer is about.

        An answer that comes too late changes nothing, whatever the rows around it are by now: it is not tried again.
        Otherwise the offers of many replicas for the same few slots would run out of attempts.
        """
        if seen is None:
            return None
        row = await tx.one(SQL.slot_lock, pod_uid=seen["pod_uid"])
        late = row is not None and answers is not None and row["generation"] != answers
        if row is None or (not late and any(row[name] != value for name, value in seen.items())):
            raise Moved
        return to_slot(row)

    async def _lock_both(
        self, tx: Tx, first: Row | None, second: Row | None
    ) -> tuple[Slot | None, Slot | None]:
        """Two slots, locked in the order of their uids, returned in the order they were named."""
        if first is None or second is None or first["pod_uid"] < second["pod_uid"]:
            return await self._lock_slot(tx, first), await self._lock_slot(tx, second)
        other = await self._lock_slot(tx, second)
        return await self._lock_slot(tx, first), other

    async def _room(self, tx: Tx, tenant: str, platform: str) -> Room:
        row = await tx.one(SQL.tenant_room, tenant=tenant, platform=platform)
        return Room(vcpus=0, memory_gb=0) if row is None else msgspec.convert(row, Room)

    async def _apply(self, tx: Tx, view: View, event: Event, info: JobInfo | None) -> Decision:
        decision = transition(view, event, self._ctx)
        (written,) = await self._writer.write(tx, ((view, decision),), info)
        return written


def to_slot(row: Row) -> Slot:
    """A row as the machine's value."""
    return msgspec.convert(row, Slot, builtin_types=(bytes,))


def _tenant(seen: Row | None) -> str:
    return "" if seen is None else str(seen["tenant"])
