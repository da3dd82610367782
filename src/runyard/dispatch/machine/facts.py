"""Applies GitHub's reports about jobs: waiting, queued, started, ended, still queued.

Webhooks, reads and audits all use this code. The same facts lead to the same rows in any order and any number of
times. A job that is done stays done. A job that has started is never offered again: GitHub itself fails it when its
runner dies.

GitHub assigns jobs by labels: a runner that was minted for job A may get job B. Then A is requeued, and another slot
that was minted for B becomes vacant. The budget stays with the slot that executes.
"""

import msgspec

from runyard.dispatch.machine.changes import Context, extend, move, requeue, vacate
from runyard.dispatch.machine.events import (
    JobEnded,
    JobQueued,
    JobStarted,
    JobStillQueued,
    JobWaiting,
)
from runyard.dispatch.machine.table import Found
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
from runyard.wire.reasons_dispatch import Refused, Why


def job_waiting(view: View, event: JobWaiting, ctx: Context) -> Decision:
    """Record a job that waits for an approval; it is not offered."""
    if view.job(event.job_id) is not None:
        return refuse(Refused.ALREADY_KNOWN.because())
    state = ctx.rules.job_on_hold
    verified = state is JobState.QUEUED  # no other may be offered without a fresh read
    job = Job(job_id=event.job_id, tenant=event.tenant, state=state, verified=verified)
    recheck = ctx.deadlines.job_waiting
    reason = Why.AWAITS_APPROVAL.because()
    return Decision(jobs=(JobChange(job=job, source=None, recheck_in=recheck, reason=reason),))


def job_queued(view: View, event: JobQueued, ctx: Context) -> Decision:
    """Queue an unknown job, or one that has been approved."""
    known = view.job(event.job_id)
    if known is not None and known.state is not JobState.WAITING:
        return refuse(Refused.ALREADY_KNOWN.because())
    job = Job(job_id=event.job_id, tenant=event.tenant)
    source = None if known is None else known.state
    recheck = ctx.deadlines.job_queued
    reason = Why.QUEUED.because()
    return Decision(jobs=(JobChange(job=job, source=source, recheck_in=recheck, reason=reason),))


def job_started(view: View, event: JobStarted, ctx: Context) -> Decision:
    """Record that a job runs, and on which slot."""
    job = view.job(event.job_id)
    if job is not None and job.state is JobState.DONE and ctx.rules.done_stays_done:
        return refuse(Refused.JOB_OVER.because())
    known = job or Job(job_id=event.job_id, tenant=event.tenant)
    running = msgspec.structs.replace(
        known, state=JobState.RUNNING, verified=False, runner_name=event.runner_name
    )
    started = JobChange(
        job=running,
        source=None if job is None else job.state,
        recheck_in=ctx.deadlines.job_running,
        reason=Why.STARTED.because(runner=event.runner_name),
    )
    slots, given_back = _executor(view, event, ctx)
    return Decision(
        slots=(*slots, *_vacate_holder(view, event.job_id)), jobs=(started, *given_back)
    )


def job_ended(view: View, event: JobEnded, ctx: Context) -> Decision:
    """Record that a job has ended; the slot that ran it drains, because a runner runs one job."""
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
        reason = Why.ENDED.because(conclusion=event.conclusion)
        jobs = (JobChange(job=over, source=source, recheck_in=None, reason=reason),)
    found = {Found.BY_RUNNER: view.slot, Found.BY_INTENT: view.holder}
    spent = next((slot for how in ctx.rules.end_spends if (slot := found[how])), None)
    slots, given_back = _spent(view, spent, event, ctx)
    if spent is not view.holder:
        slots = (*slots, *_vacate_holder(view, event.job_id))
    if not slots and not jobs and not given_back:
        return refuse(Refused.ALREADY_KNOWN.because())
    return Decision(slots=slots, jobs=(*jobs, *given_back))


def job_still_queued(view: View, event: JobStillQueued, ctx: Context) -> Decision:
    """Allow a job to be offered (again): a fresh read found it queued."""
    job, holder = view.job(event.job_id), view.holder
    if job is None or job.state in (JobState.DONE, JobState.RUNNING):
        # RUNNING: the read is older than the known start. A job never leaves RUNNING for the queue.
        return refuse(Refused.JOB_WENT_ON.because())
    recheck_in, still = ctx.deadlines.job_queued, Why.STILL_QUEUED.because()
    if job.state in (JobState.WAITING, JobState.QUEUED):
        fresh = msgspec.structs.replace(job, state=JobState.QUEUED, verified=True)
        return Decision(
            jobs=(JobChange(job=fresh, source=job.state, recheck_in=recheck_in, reason=still),)
        )
    if holder is None or holder.state is not SlotState.EXECUTING:
        same = JobChange(job=job, source=job.state, recheck_in=recheck_in, reason=still)
        return Decision(jobs=(same,))
    # Its runner was busy before this read and the job is still queued: the runner executes another job.
    free = msgspec.structs.replace(job, state=JobState.QUEUED, verified=True)
    reason = Why.RUNNER_BUSY_ELSEWHERE.because()
    return Decision(
        slots=(vacate(holder, reason=reason),),
        jobs=(JobChange(job=free, source=job.state, recheck_in=recheck_in, reason=reason),),
    )


def _executor(
    view: View, event: JobStarted, ctx: Context
) -> tuple[tuple[SlotChange, ...], tuple[JobChange, ...]]:
    """The changes of the slot whose runner started the job."""
    slot = view.slot
    if slot is None or slot.executing_job not in (None, event.job_id):
        return (), ()
    if slot.state is SlotState.EXECUTING and slot.executing_job == event.job_id:
        return (
            extend(slot, wait=ctx.deadlines.executing, reason=Why.STILL_EXECUTING.because()),
        ), ()
    given_back = _displaced(view, slot, event.job_id, ctx)
    if slot.state is SlotState.CLOSED:
        if slot.intended_job is None:
            return (), ()
        reason = Why.RUNNER_GOT_ANOTHER.because(job=event.job_id)
        return (vacate(slot, reason=reason),), given_back
    if slot.fence is Fence.DONE:
        return (
            (),
            (),
        )  # GitHub deleted that runner after this start: the report of the end will follow
    executing = move(
        slot,
        SlotState.EXECUTING,
        ctx,
        reason=Why.JOB_STARTED.because(job=event.job_id),
        executing_job=event.job_id,
        intended_job=None,
        jit=None,
        fence=Fence.NONE,
        tenant=slot.tenant or event.tenant,
        runner_name=event.runner_name,
    )
    return (executing,), given_back


def _spent(
    view: View, slot: Slot | None, event: JobEnded, ctx: Context
) -> tuple[tuple[SlotChange, ...], tuple[JobChange, ...]]:
    """The changes of the slot that ran the job: an ephemeral runner runs one job."""
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
        reason=Why.JOB_ENDED.because(job=event.job_id),
        executing_job=event.job_id,
        intended_job=None,
        fence=Fence.DONE,
        jit=None,
    )
    return (ended,), given_back


def _displaced(view: View, slot: Slot, job_id: int, ctx: Context) -> tuple[JobChange, ...]:
    """Requeue the intended job of a slot whose runner got another job."""
    if slot.intended_job == job_id or not ctx.rules.requeue_displaced:
        return ()
    reason = Why.RUNNER_GOT_ANOTHER.because(job=job_id)
    return requeue(view.job(slot.intended_job), reason=reason)


def _vacate_holder(view: View, job_id: int) -> tuple[SlotChange, ...]:
    holder = view.holder
    if holder is None or holder.intended_job != job_id:
        return ()
    return (vacate(holder, reason=Why.JOB_WENT_ELSEWHERE.because(job=job_id)),)
