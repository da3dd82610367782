"""Decides how a slot ends: fenced, closed, retired, or deferred.

A missing row proves nothing. A runner is freed only after GitHub deleted it, in the same transaction that requeues its
job. A slot is closed only on proof that its Pod is gone. When a Pod is gone and its runner may still run (a lost node),
the fence stays due until GitHub has answered.

A Pod that was offered a job and never got a JIT becomes idle again when its runner is fenced and its stamp is cleared:
nothing can have run in it. Every other fenced Pod drains.
"""

from runyard.dispatch.machine.changes import Context, extend, move, requeue
from runyard.dispatch.machine.events import FenceAnswer, Fenced, Inconclusive, PodGone, Retire
from runyard.dispatch.machine.offering import make_idle, stale
from runyard.dispatch.machine.table import retry_delay, stays_warm
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
from runyard.wire.reasons import Reason
from runyard.wire.reasons_dispatch import Refused, Why


def fenced(view: View, event: Fenced, ctx: Context) -> Decision:
    """Apply GitHub's answer to the deletion of a runner."""
    slot = view.slot
    if slot is None or stale(slot, event.generation, ctx):
        return refuse(Refused.STALE_GENERATION.because())
    if not _fenceable(slot):
        return refuse(Refused.FENCE_NOT_NEEDED.because(state=slot.state.value))
    if event.answer is FenceAnswer.BUSY:
        return _still_busy(slot, ctx)
    if (
        event.answer is FenceAnswer.ABSENT
        and not event.scope_read
        and ctx.rules.absent_needs_a_read
    ):
        return refuse(Refused.SCOPE_NOT_READ.because())
    deleted = event.answer is FenceAnswer.DELETED
    reason = (Why.FENCE_DELETED if deleted else Why.FENCE_ABSENT).because()
    jobs = _give_back(view.job(slot.intended_job), reason, ctx)
    if event.cleared and stays_warm(slot, ctx.rules):
        return Decision(slots=(make_idle(slot, ctx, reason=reason),), jobs=jobs)
    intended = None if ctx.rules.requeue_at_fence else slot.intended_job
    if slot.state is SlotState.CLOSED:
        done = move(
            slot, SlotState.CLOSED, ctx, reason=reason, fence=Fence.DONE, intended_job=intended
        )
        return Decision(slots=(done,), jobs=jobs)
    draining = move(
        slot,
        SlotState.DRAINING,
        ctx,
        reason=reason,
        wait=ctx.deadlines.fenced,
        fence=Fence.DONE,
        intended_job=intended,
        jit=None,
    )
    return Decision(slots=(draining,), jobs=jobs)


def pod_gone(view: View, event: PodGone, ctx: Context) -> Decision:
    """Close the slot of a Pod that is proven gone; if its runner may still run, the fence becomes due."""
    slot = view.slot
    if slot is None or slot.state is SlotState.CLOSED:
        return refuse(Refused.ALREADY_CLOSED.because())
    may_live = slot.state in (SlotState.OFFERED, SlotState.ARMED, SlotState.EXECUTING)
    closed = move(
        slot,
        SlotState.CLOSED,
        ctx,
        reason=event.reason,
        fence=Fence.DUE if may_live else slot.fence,
        jit=None,
        close_reason=event.reason.slug,
    )
    orphan = view.job(slot.executing_job)
    jobs: tuple[JobChange, ...] = ()
    if orphan is not None and orphan.state is JobState.RUNNING:
        recheck = JobChange(
            job=orphan,
            source=orphan.state,
            recheck_in=ctx.deadlines.job_orphaned,
            reason=event.reason,
        )
        jobs = (recheck,)
    return Decision(slots=(closed,), jobs=jobs)


def retire(view: View, event: Retire, ctx: Context) -> Decision:
    """Drain a Pod without a claim, so that no job can be offered to it."""
    slot = view.slot
    if slot is None:
        opened = Slot(
            pod_uid=event.pod_uid,
            pod_name=event.pod_name,
            pool=event.pool,
            state=SlotState.DRAINING,
        )
        change = SlotChange(slot=opened, before=None, source=None, wait=0.0, reason=event.reason)
        return Decision(slots=(change,))
    if event.generation is None or stale(slot, event.generation, ctx):
        return refuse(Refused.SLOT_CHANGED.because())
    if slot.state is SlotState.CLOSED:
        return refuse(Refused.ALREADY_CLOSED.because())
    if slot.claims:
        return refuse(Refused.HAS_CLAIM.because())
    if slot.fence is Fence.DUE:
        return refuse(Refused.FENCE_DUE.because())
    retired = move(slot, SlotState.DRAINING, ctx, reason=event.reason, wait=0.0)
    return Decision(slots=(retired,))


def inconclusive(view: View, event: Inconclusive, ctx: Context) -> Decision:
    """Keep the state and ask again later: the answer was inconclusive."""
    slot = view.slot
    if slot is None or stale(slot, event.generation, ctx):
        return refuse(Refused.STALE_GENERATION.because())
    wait = max(event.wait, retry_delay(slot, ctx.deadlines))
    return Decision(slots=(extend(slot, wait=wait, reason=Why.INCONCLUSIVE.because()),))


def _fenceable(slot: Slot) -> bool:
    match slot.state:
        case SlotState.OFFERED | SlotState.ARMED:
            return True
        case SlotState.EXECUTING:
            return slot.executing_job is None
        case SlotState.CLOSED:
            return slot.fence is Fence.DUE
        case SlotState.IDLE | SlotState.DRAINING:
            return False


def _still_busy(slot: Slot, ctx: Context) -> Decision:
    if slot.state is SlotState.CLOSED:
        wait = ctx.deadlines.ask_again
        return Decision(slots=(extend(slot, wait=wait, reason=Why.FENCE_STILL_BUSY.because()),))
    if slot.state is SlotState.EXECUTING:
        wait = ctx.deadlines.executing_unknown
        return Decision(slots=(extend(slot, wait=wait, reason=Why.FENCE_STILL_BUSY.because()),))
    # The intended job stays bound: this runner may be executing it.
    reason = Why.FENCE_BUSY.because()
    busy = move(
        slot,
        SlotState.EXECUTING,
        ctx,
        reason=reason,
        executing_job=None,
        jit=None,
        fence=Fence.NONE,
    )
    return Decision(slots=(busy,))


def _give_back(job: Job | None, reason: Reason, ctx: Context) -> tuple[JobChange, ...]:
    return requeue(job, reason=reason) if ctx.rules.requeue_at_fence else ()
