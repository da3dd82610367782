"""How a slot ends: fenced, gone, retired, or asked once more.

Nobody infers from a missing row that something is dead. A runner is freed only after GitHub deleted
it, in the same transaction that gives its job back; a slot is closed only on proof that its Pod is
gone; and a Pod that is gone while its runner may live (a lost node) leaves the fence due until
GitHub has answered.
"""

from runyard.dispatch.machine.changes import Context, linger, move, requeue
from runyard.dispatch.machine.events import FenceAnswer, Fenced, Inconclusive, PodGone, Retire
from runyard.dispatch.machine.offering import stale
from runyard.dispatch.machine.table import again
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


def fenced(view: View, event: Fenced, ctx: Context) -> Decision:
    """GitHub answered to "delete this runner"."""
    slot = view.slot
    if slot is None or stale(slot, event.generation, ctx):
        return refuse("asked for an earlier life of this slot")
    if not _fenceable(slot):
        return refuse(f"a slot that is {slot.state} needs no fence")
    if event.answer is FenceAnswer.BUSY:
        return _still_busy(slot, ctx)
    if (
        event.answer is FenceAnswer.ABSENT
        and not event.scope_read
        and ctx.rules.absent_needs_a_read
    ):
        return refuse("absent, but nothing in that scope could be read: proves nothing")
    why = f"fence: {event.answer}"
    jobs = _give_back(view.job(slot.intended_job), why, ctx)
    intended = None if ctx.rules.requeue_at_fence else slot.intended_job
    if slot.state is SlotState.CLOSED:
        done = move(slot, SlotState.CLOSED, ctx, why=why, fence=Fence.DONE, intended_job=intended)
        return Decision(slots=(done,), jobs=jobs)
    draining = move(
        slot,
        SlotState.DRAINING,
        ctx,
        why=why,
        wait=ctx.deadlines.fenced,
        fence=Fence.DONE,
        intended_job=intended,
        jit=None,
    )
    return Decision(slots=(draining,), jobs=jobs)


def pod_gone(view: View, event: PodGone, ctx: Context) -> Decision:
    """The Pod is proven gone. Its runner may not be: then the fence is due before its job is freed."""
    slot = view.slot
    if slot is None or slot.state is SlotState.CLOSED:
        return refuse("closed already")
    may_live = slot.state in (SlotState.OFFERED, SlotState.ARMED, SlotState.EXECUTING)
    closed = move(
        slot,
        SlotState.CLOSED,
        ctx,
        why=event.why,
        fence=Fence.DUE if may_live else slot.fence,
        jit=None,
        close_reason=event.why,
    )
    orphan = view.job(slot.executing_job)
    jobs: tuple[JobChange, ...] = ()
    if orphan is not None and orphan.state is JobState.RUNNING:
        look = JobChange(
            job=orphan, source=orphan.state, look_in=ctx.deadlines.job_orphaned, why=event.why
        )
        jobs = (look,)
    return Decision(slots=(closed,), jobs=jobs)


def retire(view: View, event: Retire, ctx: Context) -> Decision:
    """Recovery wants a Pod gone for which no claim speaks. Taking it out of idle first makes that safe."""
    slot = view.slot
    if slot is None:
        opened = Slot(
            pod_uid=event.pod_uid,
            pod_name=event.pod_name,
            pool=event.pool,
            state=SlotState.DRAINING,
        )
        change = SlotChange(slot=opened, before=None, source=None, wait=0.0, why=event.why)
        return Decision(slots=(change,))
    if event.generation is None or stale(slot, event.generation, ctx):
        return refuse("the slot has changed since it was judged")
    if slot.state is SlotState.CLOSED:
        return refuse("it is closed: its Pod is proven gone")
    if slot.claims:
        return refuse("a claim speaks for it")
    if slot.fence is Fence.DUE:
        return refuse("its fence is still due")
    retired = move(slot, SlotState.DRAINING, ctx, why=event.why, wait=0.0)
    return Decision(slots=(retired,))


def inconclusive(view: View, event: Inconclusive, ctx: Context) -> Decision:
    """Asked, and nothing follows: ask again later, in the same state."""
    slot = view.slot
    if slot is None or stale(slot, event.generation, ctx):
        return refuse("asked for an earlier life of this slot")
    wait = max(event.wait, again(slot, ctx.deadlines))
    return Decision(slots=(linger(slot, wait=wait, why="ask again"),))


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
        return Decision(slots=(linger(slot, wait=wait, why="fence: still busy"),))
    if slot.state is SlotState.EXECUTING:
        wait = ctx.deadlines.executing_unknown
        return Decision(slots=(linger(slot, wait=wait, why="fence: still busy"),))
    # The intended job stays bound: this runner may be executing exactly that one.
    busy = move(slot, SlotState.EXECUTING, ctx, why="fence: busy", executing_job=None, jit=None)
    return Decision(slots=(busy,))


def _give_back(job: Job | None, why: str, ctx: Context) -> tuple[JobChange, ...]:
    return requeue(job, why=why) if ctx.rules.requeue_at_fence else ()
