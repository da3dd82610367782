"""From a waiting Pod to an armed runner: poll, offer, mint, arm.

The order is the whole point. The offer reserves job and budget in one transaction. The mint and the
stamp run beside each other. Only when both are acknowledged does the slot become armed, and only an
armed slot's JIT is ever delivered: otherwise the pool operator, which deletes unstamped Pods, might
delete one that is about to run a job.
"""

import msgspec

from runyard.dispatch.machine.changes import Context, linger, move, requeue
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


def polled(view: View, event: Polled, ctx: Context) -> Decision:
    """A Pod asked for work: its first poll opens its slot, later ones are its heartbeat."""
    slot = view.slot
    if slot is None:
        opened = Slot(pod_uid=event.pod_uid, pod_name=event.pod_name, pool=event.pool)
        change = SlotChange(
            slot=opened, before=None, source=None, wait=ctx.deadlines.idle, why="first poll"
        )
        return Decision(slots=(change,))
    if slot.state is SlotState.IDLE:
        return Decision(slots=(linger(slot, wait=ctx.deadlines.idle, why="beat"),))
    if not ctx.rules.one_job_a_pod and slot.state in (SlotState.EXECUTING, SlotState.DRAINING):
        return Decision(slots=(_idle_again(slot, ctx, why="asks for more"),))
    return refuse(f"the slot is {slot.state}")


def offer(view: View, event: Offer, ctx: Context) -> Decision:
    """Reserve a job and the budget for it."""
    slot, job = view.slot, view.job(event.job_id)
    if slot is None or slot.state is not SlotState.IDLE or stale(slot, event.generation, ctx):
        return refuse("the slot is not idle any more")
    if job is None or not _may_offer(job, ctx):
        return refuse("the job is not offerable")
    if view.room is None or not view.room.fits(vcpus=event.vcpus, memory_gb=event.memory_gb):
        return refuse("the tenant's budget is used up")
    offered = move(
        slot,
        SlotState.OFFERED,
        ctx,
        why=f"job {job.job_id} fits",
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
    """Mean an armed runner that lost its job for another one, rather than minting a further runner."""
    slot, job = view.slot, view.job(event.job_id)
    if slot is None or not slot.vacant or stale(slot, event.generation, ctx):
        return refuse("the runner is not vacant any more")
    if job is None or job.tenant != slot.tenant or not _may_offer(job, ctx):
        return refuse("the job is not offerable")
    after = msgspec.structs.replace(slot, intended_job=job.job_id, generation=slot.generation + 1)
    change = SlotChange(
        slot=after,
        before=slot.generation,
        source=slot.state,
        wait=None,  # it registered in time or never will: adopting it buys it no time
        why=f"vacant runner is meant for job {job.job_id}",
    )
    return Decision(slots=(change,), jobs=(_bind(job, slot),))


def arm(view: View, event: Arm, ctx: Context) -> Decision:
    """The runner exists and the Pod is stamped: from now on its JIT may be delivered, to this uid only."""
    slot = view.slot
    if slot is None or slot.state is not SlotState.OFFERED or stale(slot, event.generation, ctx):
        return refuse("the offer is over: delete this registration")
    if not event.stamped and ctx.rules.stamp_before_delivery:
        return refuse("no acknowledged stamp, no delivery")
    armed = move(
        slot,
        SlotState.ARMED,
        ctx,
        why="minted and stamped",
        runner_id=event.runner_id,
        jit=event.jit,
        stamped=event.stamped,
    )
    return Decision(slots=(armed,))


def mint_failed(view: View, event: MintFailed, ctx: Context) -> Decision:
    """No runner was created and no stamp is left: the Pod is simply idle again, the job is looked at anew."""
    slot = view.slot
    if slot is None or slot.state is not SlotState.OFFERED or stale(slot, event.generation, ctx):
        return refuse("the offer is over")
    idle = _idle_again(slot, ctx, why=event.why)
    job = view.job(slot.intended_job)
    return Decision(slots=(idle,), jobs=requeue(job, why=event.why, look_in=event.hold_job))


def mint_abandoned(view: View, event: MintAbandoned, ctx: Context) -> Decision:
    """The offer cannot be completed and a runner may exist: the fence is due at once."""
    slot = view.slot
    if slot is None or slot.state is not SlotState.OFFERED or stale(slot, event.generation, ctx):
        return refuse("the offer is over")
    change = move(slot, SlotState.OFFERED, ctx, why=event.why, wait=0.0, runner_id=event.runner_id)
    return Decision(slots=(change,))


def stale(slot: Slot, generation: int, ctx: Context) -> bool:
    """Was this answer asked for in an earlier life of the slot?"""
    return slot.generation != generation and ctx.rules.generation_fences_writes


def _idle_again(slot: Slot, ctx: Context, *, why: str) -> SlotChange:
    return move(
        slot,
        SlotState.IDLE,
        ctx,
        why=why,
        tenant="",
        scope="",
        installation_id=0,
        vcpus=0,
        memory_gb=0,
        platform="",
        intended_job=None,
        executing_job=None,
        runner_name="",
    )


def _may_offer(job: Job, ctx: Context) -> bool:
    if ctx.rules.read_before_second_offer:
        return job.offerable
    return job.state is JobState.QUEUED


def _bind(job: Job, slot: Slot) -> JobChange:
    bound = msgspec.structs.replace(job, state=JobState.BOUND, verified=False)
    return JobChange(job=bound, source=job.state, look_in=None, why=f"meant for {slot.pod_name}")
