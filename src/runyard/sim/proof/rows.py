"""Between the proof's cells and the machine's own rows.

`Database.commit` builds the `View` that the store would load, calls `dispatch.machine.transition`, and writes the decision
back. Since cells are few, each distinct question is put to the machine once and remembered.
"""

import msgspec

from runyard.dispatch.machine.changes import Context
from runyard.dispatch.machine.events import (
    Event,
    JobEnded,
    JobQueued,
    JobStarted,
    JobStillQueued,
)
from runyard.dispatch.machine.table import budget_states
from runyard.dispatch.machine.transition import transition
from runyard.dispatch.machine.values import Decision, Job, JobState, Room, Slot, View
from runyard.sim.proof.world import JOBS, PODS, Cell, JobCell, Rows

TENANT = "t"
FRESH = 5  # a generation that no row or task of a tidy world carries
JobFact = JobQueued | JobStarted | JobEnded | JobStillQueued


def runner_name(pod: int) -> str:
    """The name of a Pod's runner in the proof."""
    return f"p{pod}"


class Database:
    """Commits events to rows by asking the machine."""

    def __init__(self, ctx: Context, *, limit: int) -> None:
        self.ctx = ctx
        self.limit = limit
        self._budget = budget_states(ctx.rules)
        self._asked: dict[tuple[Rows, int | None, Event], Rows | None] = {}

    def commit(self, rows: Rows, pod: int | None, event: Event) -> Rows | None:
        """The rows after the event, or None if the machine refused it."""
        question = (rows, pod, event)
        if question not in self._asked:
            self._asked[question] = self._commit(rows, pod, event)
        return self._asked[question]

    def _commit(self, rows: Rows, pod: int | None, event: Event) -> Rows | None:
        view = self._view(rows, pod, event)
        decision = transition(view, event, self.ctx)
        if decision.refused or not (decision.slots or decision.jobs):
            return None
        return _write(rows, decision)

    def _view(self, rows: Rows, pod: int | None, event: Event) -> View:
        slot = None if pod is None else to_slot(pod, rows.slots[pod])
        rival = None
        if isinstance(event, JobStarted | JobEnded | JobStillQueued):
            holder = next(
                (i for i in PODS if i != pod and _intends(rows.slots[i], event.job_id)), None
            )
            rival = None if holder is None else to_slot(holder, rows.slots[holder])
        used = sum(1 for cell in rows.slots if cell is not None and cell.state in self._budget)
        return View(
            slot=slot,
            rival=rival,
            jobs=tuple(job for job in (to_job(rows, index) for index in JOBS) if job is not None),
            room=Room(vcpus=self.limit - used, memory_gb=self.limit - used),
        )


def to_slot(pod: int, cell: Cell | None) -> Slot | None:
    """The machine's row for a cell."""
    if cell is None:
        return None
    return Slot(
        pod_uid=runner_name(pod),
        pod_name=runner_name(pod),
        pool="pool",
        generation=cell.generation,
        state=cell.state,
        tenant=TENANT if cell.known else "",
        vcpus=1,
        memory_gb=1,
        intended_job=cell.intended,
        executing_job=cell.executing,
        runner_name=runner_name(pod) if cell.known else "",
        jit=b"jit" if cell.jit else None,
        fence=cell.fence,
    )


def to_job(rows: Rows, index: int) -> Job | None:
    """The machine's row for a job's cell."""
    cell = rows.jobs[index]
    if cell is None:
        return None
    return Job(job_id=index, tenant=TENANT, state=cell.state, verified=cell.verified)


def _intends(cell: Cell | None, job: int) -> bool:
    return cell is not None and cell.intended == job


def _write(rows: Rows, decision: Decision) -> Rows:
    slots, jobs = list(rows.slots), list(rows.jobs)
    for change in decision.slots:
        slot = change.slot
        bumped = change.before is None or slot.generation != change.before
        slots[int(slot.pod_uid[1:])] = Cell(
            state=slot.state,
            intended=slot.intended_job,
            executing=slot.executing_job,
            fence=slot.fence,
            jit=slot.jit is not None,
            known=bool(slot.runner_name),
            generation=FRESH if bumped else slot.generation,
        )
    for written in decision.jobs:
        job = written.job
        jobs[job.job_id] = JobCell(state=job.state, verified=job.verified)
    return Rows((slots[0], slots[1]), (jobs[0], jobs[1]))


def requeued(old: Rows, new: Rows) -> tuple[int, ...]:
    """Jobs that this commit gave back to the queue."""
    return tuple(
        index
        for index in JOBS
        if _state(old, index) is JobState.BOUND and _state(new, index) is JobState.QUEUED
    )


def _state(rows: Rows, index: int) -> JobState | None:
    cell = rows.jobs[index]
    return None if cell is None else cell.state


def with_slot(rows: Rows, pod: int, cell: Cell | None) -> Rows:
    """Rows with one slot exchanged; only for forgetting a closed one."""
    slots = (cell, rows.slots[1]) if pod == 0 else (rows.slots[0], cell)
    return msgspec.structs.replace(rows, slots=slots)
