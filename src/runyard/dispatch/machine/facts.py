"""GitHub's word about jobs: waiting, queued, started, ended, still queued.

Webhooks, reads and audits all end here. Each fact is true whenever it arrives: in any order and any
number of times they lead to the same rows. A job that is done never comes back; a job that has
started is never given to anybody else by us, for GitHub itself fails it if its runner dies.

GitHub binds a job to a set of labels, not to our runner: the runner that was minted for A may get
B. Then A is given back, and another slot that was meant for B becomes vacant. The budget stays with
the slot that executes.
"""

import msgspec

from runyard.dispatch.machine.changes import Context, linger, move, requeue, vacate
from runyard.dispatch.machine.events import (
    JobEnded,
    JobQueued,
    JobStarted,
    JobStillQueued,
    JobWaiting,
)
from runyard.dispatch.machine.values import (
    Decision,
    Fence,
    Job,
    JobChange,
    JobState,
    Slot,
    SlotChange,
    SlotState,
    View,
    refuse,
)


def job_waiting(view: View, event: JobWaiting, ctx: Context) -> Decision:
    """A job that awaits somebody's approval: known from now on, and offered to nobody."""
    if view.job(event.job_id) is not None:
        return refuse("known already")
    if not ctx.rules.waiting_is_not_queued:
        return job_queued(view, JobQueued(job_id=event.job_id, tenant=event.tenant), ctx)
    job = Job(job_id=event.job_id, tenant=event.tenant, state=JobState.WAITING, verified=False)
    look = ctx.deadlines.job_waiting
    return Decision(jobs=(JobChange(job=job, source=None, look_in=look, why="awaits an approval"),))


def job_queued(view: View, event: JobQueued, ctx: Context) -> Decision:
    """A job that we did not know, or one that has been approved."""
    known = view.job(event.job_id)
    if known is not None and known.state is not JobState.WAITING:
        return refuse("known already")
    job = Job(job_id=event.job_id, tenant=event.tenant)
    source = None if known is None else known.state
    look = ctx.deadlines.job_queued
    return Decision(jobs=(JobChange(job=job, source=source, look_in=look, why="queued"),))


def job_started(view: View, event: JobStarted, ctx: Context) -> Decision:
    """GitHub gave the job to that runner."""
    job = view.job(event.job_id)
    if job is not None and job.state is JobState.DONE and ctx.rules.done_stays_done:
        return refuse("the job is over already")
    known = job or Job(job_id=event.job_id, tenant=event.tenant)
    running = msgspec.structs.replace(
        known, state=JobState.RUNNING, verified=False, runner_name=event.runner_name
    )
    started = JobChange(
        job=running,
        source=None if job is None else job.state,
        look_in=ctx.deadlines.job_running,
        why=f"started on {event.runner_name}",
    )
    slots, given_back = _executor(view, event, ctx)
    return Decision(
        slots=(*slots, *_rival_vacated(view, event.job_id)), jobs=(started, *given_back)
    )


def job_ended(view: View, event: JobEnded, ctx: Context) -> Decision:
    """The job is over; if a runner of ours ran it, that runner is spent and its Pod on its way out."""
    job = view.job(event.job_id)
    jobs: tuple[JobChange, ...] = ()
    if job is None or job.state is not JobState.DONE:
        known = job or Job(job_id=event.job_id, tenant=event.tenant)
        over = msgspec.structs.replace(
            known,
            state=JobState.DONE,
            verified=False,
            runner_name=event.runner_name or known.runner_name,
            conclusion=event.conclusion,
        )
        source = None if job is None else job.state
        jobs = (JobChange(job=over, source=source, look_in=None, why=event.conclusion or "ended"),)
    if view.rival is not None and not ctx.rules.end_by_runner:
        view = msgspec.structs.replace(view, slot=view.rival, rival=None)
    slots, given_back = _spent(view, event, ctx)
    slots = (*slots, *_rival_vacated(view, event.job_id))
    if not slots and not jobs and not given_back:
        return refuse("known already")
    return Decision(slots=slots, jobs=(*jobs, *given_back))


def job_still_queued(view: View, event: JobStillQueued, ctx: Context) -> Decision:
    """A fresh read found the job queued: it may be offered (again)."""
    job, holder = view.job(event.job_id), view.rival
    if job is None or job.state in (JobState.DONE, JobState.RUNNING):
        # RUNNING: the read is older than the start that we know of. Never back from there.
        return refuse("known to have gone on")
    look_in = ctx.deadlines.job_queued
    if job.state in (JobState.WAITING, JobState.QUEUED):
        fresh = msgspec.structs.replace(job, state=JobState.QUEUED, verified=True)
        return Decision(
            jobs=(JobChange(job=fresh, source=job.state, look_in=look_in, why="still queued"),)
        )
    if holder is None or holder.state is not SlotState.EXECUTING:
        same = JobChange(job=job, source=job.state, look_in=look_in, why="still queued")
        return Decision(jobs=(same,))
    # Its runner was busy before this read and the job is queued: the runner executes another one.
    free = msgspec.structs.replace(job, state=JobState.QUEUED, verified=True)
    why = "its runner executes another job"
    return Decision(
        slots=(vacate(holder, why=why),),
        jobs=(JobChange(job=free, source=job.state, look_in=look_in, why=why),),
    )


def _executor(
    view: View, event: JobStarted, ctx: Context
) -> tuple[tuple[SlotChange, ...], tuple[JobChange, ...]]:
    """What the start means for the slot whose runner was named."""
    slot = view.slot
    if slot is None or slot.executing_job not in (None, event.job_id):
        return (), ()
    if slot.state is SlotState.EXECUTING and slot.executing_job == event.job_id:
        return (linger(slot, wait=ctx.deadlines.executing, why="still executing"),), ()
    given_back = _displaced(view, slot, event.job_id, ctx)
    if slot.state is SlotState.CLOSED:
        if slot.intended_job is None:
            return (), ()
        return (vacate(slot, why=f"its runner got job {event.job_id}"),), given_back
    if slot.fence is Fence.DONE:
        return (), ()  # GitHub forgot that runner after this start: the end is on its way
    executing = move(
        slot,
        SlotState.EXECUTING,
        ctx,
        why=f"job {event.job_id} started",
        executing_job=event.job_id,
        intended_job=None,
        jit=None,
        tenant=slot.tenant or event.tenant,
        runner_name=event.runner_name,
    )
    return (executing,), given_back


def _spent(
    view: View, event: JobEnded, ctx: Context
) -> tuple[tuple[SlotChange, ...], tuple[JobChange, ...]]:
    """What the end means for the slot whose runner was named: an ephemeral runner runs once."""
    slot = view.slot
    if slot is None or slot.executing_job not in (None, event.job_id):
        return (), ()
    if slot.fence is Fence.DONE and slot.intended_job is None:
        return (), ()
    given_back = _displaced(view, slot, event.job_id, ctx)
    state = SlotState.CLOSED if slot.state is SlotState.CLOSED else SlotState.DRAINING
    ended = move(
        slot,
        state,
        ctx,
        why=f"job {event.job_id} ended",
        executing_job=event.job_id,
        intended_job=None,
        fence=Fence.DONE,
        jit=None,
    )
    return (ended,), given_back


def _displaced(view: View, slot: Slot, job_id: int, ctx: Context) -> tuple[JobChange, ...]:
    """The job that the slot was meant for, if its runner got another one."""
    if slot.intended_job == job_id or not ctx.rules.requeue_displaced:
        return ()
    return requeue(view.job(slot.intended_job), why=f"its runner got job {job_id}")


def _rival_vacated(view: View, job_id: int) -> tuple[SlotChange, ...]:
    rival = view.rival
    if rival is None or rival.intended_job != job_id:
        return ()
    return (vacate(rival, why=f"job {job_id} went elsewhere"),)
