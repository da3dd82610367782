"""Decides the transitions from a waiting Pod to an armed runner: poll, offer, mint, arm.

The order matters. The offer reserves job and budget in one transaction. The mint and the stamp run concurrently. The
slot becomes armed only when both are acknowledged, and a JIT is delivered only from an armed slot: otherwise the pool
operator, which deletes unstamped Pods, might delete one that is about to run a job.
"""

import msgspec

from runyard.dispatch.machine.changes import Context, move, requeue
from runyard.dispatch.machine.events import Adopt, Arm, MintAbandoned, MintFailed, Offer, Polled
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


def polled(view: View, event: Polled, ctx: Context) -> Decision:
    """Apply a poll: the first one opens the slot, later ones are heartbeats."""
    slot = view.slot
    if slot is None:
        opened = Slot(pod_uid=event.pod_uid, pod_name=event.pod_name, pool=event.pool)
        change = SlotChange(
            slot=opened,
            before=None,
            source=None,
            wait=ctx.deadlines.idle,
            reason=Why.FIRST_POLL.because(),
        )
        return Decision(slots=(change,))
    if slot.state not in ctx.rules.idle_by_poll:
        return refuse(Refused.SLOT_TAKEN.because(state=slot.state.value))
    return Decision(slots=(make_idle(slot, ctx, reason=Why.HEARTBEAT.because()),))


def offer(view: View, event: Offer, ctx: Context) -> Decision:
    """Reserve a job and the budget for it."""
    slot, job = view.slot, view.job(event.job_id)
    if slot is None or slot.state is not SlotState.IDLE or stale(slot, event.generation, ctx):
        return refuse(Refused.SLOT_NOT_IDLE.because())
    if job is None or not _may_offer(job, ctx):
        return refuse(Refused.JOB_NOT_OFFERABLE.because())
    if view.headroom is None or not view.headroom.fits(
        vcpus=event.vcpus, memory_gb=event.memory_gb
    ):
        return refuse(Refused.BUDGET_USED_UP.because())
    offered = move(
        slot,
        SlotState.OFFERED,
        ctx,
        reason=Why.OFFERED.because(job=job.job_id),
        tenant=event.tenant,
        scope=event.scope,
        installation_id=event.installation_id,
        vcpus=event.vcpus,
        memory_gb=event.memory_gb,
        platform=event.platform,
        intended_job=job.job_id,
        runner_name=event.runner_name,
        fence=Fence.NONE,
    )
    return Decision(slots=(offered,), jobs=(_bind(job, slot),))


def adopt(view: View, event: Adopt, ctx: Context) -> Decision:
    """Assign another job to an armed runner that lost its own, instead of minting a further runner."""
    slot, job = view.slot, view.job(event.job_id)
    if slot is None or not slot.vacant or stale(slot, event.generation, ctx):
        return refuse(Refused.RUNNER_NOT_VACANT.because())
    if job is None or job.tenant != slot.tenant or not _may_offer(job, ctx):
        return refuse(Refused.JOB_NOT_OFFERABLE.because())
    after = msgspec.structs.replace(slot, intended_job=job.job_id, generation=slot.generation + 1)
    change = SlotChange(
        slot=after,
        before=slot.generation,
        source=slot.state,
        wait=None,  # the deadline stays: the runner must register within its first one
        reason=Why.ADOPTED.because(job=job.job_id),
    )
    return Decision(slots=(change,), jobs=(_bind(job, slot),))


def arm(view: View, event: Arm, ctx: Context) -> Decision:
    """Arm a slot whose runner exists and whose Pod is stamped: its JIT may now be delivered, to this uid only."""
    slot = view.slot
    if slot is None or _is_over(slot, event.generation, ctx):
        return refuse(Refused.OFFER_OVER.because())
    if not event.stamped and ctx.rules.stamp_before_delivery:
        return refuse(Refused.NOT_STAMPED.because())
    armed = move(
        slot,
        SlotState.ARMED,
        ctx,
        reason=Why.ARMED.because(),
        runner_id=event.runner_id,
        jit=event.jit,
        stamped=event.stamped,
    )
    return Decision(slots=(armed,))


def mint_failed(view: View, event: MintFailed, ctx: Context) -> Decision:
    """Make the slot idle again after a failed mint that left neither runner nor stamp; the job is read again."""
    slot = view.slot
    if slot is None or _is_over(slot, event.generation, ctx):
        return refuse(Refused.OFFER_OVER.because())
    idle = make_idle(slot, ctx, reason=event.reason)
    job = view.job(slot.intended_job)
    return Decision(
        slots=(idle,), jobs=requeue(job, reason=event.reason, recheck_in=event.hold_job)
    )


def mint_abandoned(view: View, event: MintAbandoned, ctx: Context) -> Decision:
    """End an offer that cannot be completed while a runner may exist: it is fenced at once.

    If GitHub did not answer, it is fenced when the mint is certainly over. A registration that appears even later is
    harmless, because no Pod has its JIT: the next fence of that name deletes it, or the search for ghosts.
    """
    slot = view.slot
    if slot is None or _is_over(slot, event.generation, ctx):
        return refuse(Refused.OFFER_OVER.because())
    change = move(
        slot,
        SlotState.OFFERED,
        ctx,
        reason=event.reason,
        wait=0.0 if event.answered else ctx.deadlines.mint_over,
        runner_id=event.runner_id,
        fence=Fence.DUE,
    )
    return Decision(slots=(change,))


def _is_over(slot: Slot, generation: int, ctx: Context) -> bool:
    """Whether a mint's answer comes too late: the offer has ended, or was given up."""
    offered = slot.state is SlotState.OFFERED and slot.fence is not Fence.DUE
    return not offered or stale(slot, generation, ctx)


def stale(slot: Slot, generation: int, ctx: Context) -> bool:
    """Whether an answer is about an earlier generation of the slot."""
    return slot.generation != generation and ctx.rules.generation_fences_writes


def make_idle(slot: Slot, ctx: Context, *, reason: Reason) -> SlotChange:
    """Make a slot idle, with a new deadline. A slot that is idle keeps its generation, so offers to it stay valid."""
    idle = msgspec.structs.replace(
        slot,
        state=SlotState.IDLE,
        tenant="",
        scope="",
        installation_id=0,
        vcpus=0,
        memory_gb=0,
        platform="",
        intended_job=None,
        executing_job=None,
        runner_name="",
        runner_id=None,
        fence=Fence.NONE,
    )
    after = msgspec.structs.replace(idle, generation=slot.generation + (idle != slot))
    return SlotChange(
        slot=after,
        before=slot.generation,
        source=slot.state,
        wait=ctx.deadlines.idle,
        reason=reason,
    )


def _may_offer(job: Job, ctx: Context) -> bool:
    fresh = job.verified or not ctx.rules.read_before_second_offer
    return job.state is JobState.QUEUED and fresh


def _bind(job: Job, slot: Slot) -> JobChange:
    bound = msgspec.structs.replace(job, state=JobState.BOUND, verified=False)
    reason = Why.BOUND.because(pod=slot.pod_name)
    return JobChange(job=bound, source=job.state, recheck_in=None, reason=reason)
