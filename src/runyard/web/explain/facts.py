"""States facts that hold nothing: whether the job of a runner is trusted, and what the labels of its Pod say."""

from runyard.dispatch.machine.values import Slot, SlotState
from runyard.dispatch.plans.trust import is_trusted, trust_of
from runyard.web.explain.context import SlotFacts
from runyard.wire.reasons import Reason
from runyard.wire.reasons_dispatch import PodLabels, Trust


def slot_facts(slot: SlotFacts | None) -> tuple[Reason, ...]:
    """Whether the job of a runner is trusted, and how its Pod's labels differ from that."""
    job_id = None if slot is None else _job(slot.slot)
    if slot is None or job_id is None:
        return ()
    return (trust_fact(slot.job_trust), *label_facts(slot, job_id))


def trust_fact(stored: str) -> Reason:
    """Whether a job that is not over is trusted; one whose event did not say it is not, until its run was read."""
    return (trust_of(stored) if stored else Trust.UNDECIDED).because()


def label_facts(slot: SlotFacts | None, job_id: int) -> tuple[Reason, ...]:
    """How the labels of the Pod that this job runs on, or waits for, differ from what the job alone would give it."""
    if slot is None or _job(slot.slot) != job_id or slot.marked_job is None:
        return ()
    if slot.marked_job != job_id:
        return (PodLabels.OF_ANOTHER_JOB.because(job=slot.marked_job),)
    if slot.marked_untrusted and slot.job_trust and is_trusted(trust_of(slot.job_trust)):
        return (PodLabels.STAY_UNTRUSTED.because(),)
    return ()


def _job(slot: Slot) -> int | None:
    """The job that a runner runs, waits for, or ran while its Pod ends."""
    if slot.state not in (SlotState.ARMED, SlotState.EXECUTING, SlotState.DRAINING):
        return None
    return slot.executing_job or slot.intended_job
