"""Small builders that every transition uses, so that none forgets the generation, the reason or the deadline."""

import msgspec

from runyard.dispatch.machine.table import Deadlines, Rules, stay
from runyard.dispatch.machine.values import Job, JobChange, JobState, Slot, SlotChange, SlotState


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a transition: lengths of deadlines and the guards in force."""

    deadlines: Deadlines = Deadlines()
    rules: Rules = Rules()


def move(
    slot: Slot,
    state: SlotState,
    ctx: Context,
    *,
    why: str,
    wait: float | None = None,
    **fields: object,
) -> SlotChange:
    """Move a slot on: next generation, the new state's deadline unless `wait` says otherwise."""
    after = msgspec.structs.replace(slot, state=state, generation=slot.generation + 1, **fields)
    return SlotChange(
        slot=after,
        before=slot.generation,
        source=slot.state,
        wait=stay(after, ctx.deadlines) if wait is None else wait,
        why=why,
    )


def linger(slot: Slot, *, wait: float, why: str) -> SlotChange:
    """Leave a slot as it is and move only its deadline; answers under way stay valid."""
    return SlotChange(slot=slot, before=slot.generation, source=slot.state, wait=wait, why=why)


def vacate(slot: Slot, *, why: str) -> SlotChange:
    """Take the intended job from a slot; the runner stays and counts as supply. Keeps its deadline."""
    after = msgspec.structs.replace(slot, intended_job=None, generation=slot.generation + 1)
    return SlotChange(slot=after, before=slot.generation, source=slot.state, wait=None, why=why)


def requeue(job: Job | None, *, why: str, look_in: float = 0.0) -> tuple[JobChange, ...]:
    """Give a bound job back to the queue. It may not be offered before GitHub was asked about it."""
    if job is None or job.state is not JobState.BOUND:
        return ()
    after = msgspec.structs.replace(job, state=JobState.QUEUED, verified=False)
    return (JobChange(job=after, source=job.state, look_in=look_in, why=why),)
