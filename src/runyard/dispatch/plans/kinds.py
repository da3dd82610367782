"""What was healed, by the names that fleets' dashboards know.

A recovery is counted when a row has really moved, once for each row, and never for a question that led nowhere or a
runner that turned out to be at work.
"""

from runyard.dispatch.machine.events import Event, FenceAnswer, Fenced, JobEnded, PodGone
from runyard.dispatch.machine.values import CLAIMS, Decision, Fence, JobState, Slot, SlotState

NONE = ""


def of_slot(slot: Slot, event: Event, decision: Decision) -> str:
    """The kind of recovery that an answer about an overdue slot was; empty if it was none."""
    if decision.refused:
        return NONE
    if isinstance(event, PodGone):
        return of_missing(slot)
    if not isinstance(event, Fenced) or event.answer is FenceAnswer.BUSY:
        return NONE
    if slot.state is SlotState.OFFERED:
        return "stale_claim"
    given_back = any(
        change.source is JobState.BOUND and change.job.state is JobState.QUEUED
        for change in decision.jobs
    )
    return "orphan_requeued" if given_back else "completed_claim"


def of_missing(slot: Slot) -> str:
    """The kind of recovery that closing a slot was whose Pod is gone."""
    if slot.state is SlotState.DRAINING:
        # Fenced or retired ones were counted when that was done.
        return NONE if slot.executing_job is None else "finished_job_pod"
    return "pod_missing_claim" if slot.state in CLAIMS else "orphaned_runner_session"


def of_stop(before: Slot, after: Slot) -> tuple[str, ...]:
    """The kinds of recovery that a stop report was which closed a slot."""
    if before.state not in (SlotState.OFFERED, SlotState.ARMED, SlotState.EXECUTING):
        return ()
    if after.fence is Fence.DUE:
        return ("stranded_claim_released", "pod_stop_recovery_scheduled")
    return ("stranded_claim_released",)


def of_job(source: JobState | None, event: object, decision: Decision) -> str:
    """The kind of recovery that GitHub's answer about a job was, given what we had taken it for."""
    if decision.refused or not isinstance(event, JobEnded):
        return NONE
    if event.conclusion == "stale":
        return "queued_reaped"
    return "orphan_completed" if source is JobState.RUNNING else "queued_completed"
