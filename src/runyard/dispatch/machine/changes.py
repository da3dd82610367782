"""Builds the changes of transitions, so that each has its generation, its reason and its deadline."""

import msgspec

from runyard.dispatch.machine.table import Deadlines, Rules, time_limit
from runyard.dispatch.machine.values import Job, JobChange, JobState, Slot, SlotChange, SlotState
from runyard.wire.reasons import Reason


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a transition: lengths of deadlines and the guards in force."""

    deadlines: Deadlines = Deadlines()
    rules: Rules = Rules()


def move(
    slot: Slot,
    state: SlotState,
    ctx: Context,
    *,
    reason: Reason,
    wait: float | None = None,
    **fields: object,
) -> SlotChange:
    """Change a slot's state: next generation, and the new state's deadline unless `wait` is given."""
    after = msgspec.structs.replace(slot, state=state, generation=slot.generation + 1, **fields)
    return SlotChange(
        slot=after,
        before=slot.generation,
        source=slot.state,
        wait=time_limit(after, ctx.deadlines) if wait is None else wait,
        reason=reason,
    )


def extend(slot: Slot, *, wait: float, reason: Reason) -> SlotChange:
    """Change only a slot's deadline; its generation stays, so pending answers stay valid."""
    return SlotChange(
        slot=slot, before=slot.generation, source=slot.state, wait=wait, reason=reason
    )


def vacate(slot: Slot, *, reason: Reason) -> SlotChange:
    """Remove the intended job from a slot; its runner becomes available for another job. Keeps the deadline."""
    after = msgspec.structs.replace(slot, intended_job=None, generation=slot.generation + 1)
    return SlotChange(
        slot=after, before=slot.generation, source=slot.state, wait=None, reason=reason
    )


def requeue(job: Job | None, *, reason: Reason, recheck_in: float = 0.0) -> tuple[JobChange, ...]:
    """Requeue a bound job. It is offered again only after it was read at GitHub."""
    if job is None or job.state is not JobState.BOUND:
        return ()
    after = msgspec.structs.replace(job, state=JobState.QUEUED, verified=False)
    return (JobChange(job=after, source=job.state, recheck_in=recheck_in, reason=reason),)
