"""Names what was recovered, with the kinds that dashboards of existing fleets use.

A recovery is counted once for each row that changed, and not for an inconclusive answer or a runner that was busy.
"""

from runyard.dispatch.machine.events import Event, FenceAnswer, Fenced, JobEnded, PodGone
from runyard.dispatch.machine.values import CLAIMS, Decision, Fence, JobState, Slot, SlotState

NONE = ""


def of_slot(slot: Slot, event: Event, decision: Decision) -> str:
    """The kind of recovery when an answer changes an overdue slot; empty if it is none."""
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
    """The kind of recovery when a slot is closed because its Pod is gone."""
    if slot.state is SlotState.DRAINING:
        # Fenced or retired slots were counted at that time.
        return NONE if slot.executing_job is None else "finished_job_pod"
    return "pod_missing_claim" if slot.state in CLAIMS else "orphaned_runner_session"


def of_stop(before: Slot, after: Slot) -> tuple[str, ...]:
    """The kinds of recovery when a stop report closes a slot."""
    if before.state not in (SlotState.OFFERED, SlotState.ARMED, SlotState.EXECUTING):
        return ()
    if after.fence is Fence.DUE:
        return ("stranded_claim_released", "pod_stop_recovery_scheduled")
    return ("stranded_claim_released",)


def of_job(source: JobState | None, event: object, decision: Decision) -> str:
    """The kind of recovery when a read at GitHub ends a job that was in state `source`; empty if it is none."""
    if decision.refused or not isinstance(event, JobEnded):
        return NONE
    if event.conclusion == "stale":
        return "queued_reaped"
    return "orphan_completed" if source is JobState.RUNNING else "queued_completed"
