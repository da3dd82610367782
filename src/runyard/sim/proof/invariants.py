"""The invariants of the proof, each checked where it can be broken.

Safety is checked in three places: `check_rows` after every commit, `verdict` for every Pod position
that ever occurs, and at the steps that deliver a JIT or delete a Pod. Liveness is checked by the
explorer: from every state there must be a way back to rest (`at_rest`) without further faults.
"""

from runyard.dispatch.machine.values import Fence, JobState, SlotState
from runyard.sim.proof.state import JOBS, Cell, Guest, JobRow, Lane, Pod, Runner, State
from runyard.wire.reasons import Code

Cells = tuple[Cell | None, Cell | None]
JobRows = tuple[JobRow | None, JobRow | None]


class Broken(Code):
    """An invariant that a state or a step breaks."""

    JOB_CAME_BACK = "job-came-back", "a job that is over came back"
    JOB_GIVEN_AGAIN = "running-job-given-again", "a job that was running is given to another runner"
    TWO_SLOTS_OF_JOB = "job-of-two-slots", "two slots are meant for one job"
    BOUND_WITHOUT_SLOT = (
        "bound-without-slot",
        "a job is bound if and only if a slot is meant for it",
    )
    RUNNER_WITHOUT_CLAIM = (
        "runner-without-claim",
        "a runner that can execute is counted by no claim",
    )
    RUNNER_FENCED = "able-runner-fenced", "a runner that can execute counts as fenced"
    ARMED_POD_IDLE = "armed-pod-idle", "a Pod that was given a JIT counts as idle"
    BUSY_POD_DELETED = (
        "busy-pod-deleted",
        "a Pod that executes or is about to execute a job is deleted",
    )
    OVER_BUDGET = "over-budget", "more Pods may run a tenant's code than its budget allows"
    CLAIMS_OVER_BUDGET = "claims-over-budget", "the tenant's claims exceed its budget"
    OFFERED_NOT_QUEUED = (
        "offered-not-queued",
        "a job was offered again although GitHub had it no longer queued",
    )
    OFFERED_UNAPPROVED = "offered-unapproved", "a job was offered without its approval"
    HEALTHY_POD_REAPED = (
        "healthy-pod-reaped",
        "a healthy Pod is reaped because the service was away",
    )
    STUCK = "no-way-to-rest", "no way back to rest"
    TOO_MANY_STATES = "too-many-states", "more than {bound:d} states"


class Violation(Exception):
    """An invariant is broken; `code` says which, `step` by what."""

    def __init__(self, code: Broken, *, step: str = "") -> None:
        super().__init__(code.template)
        self.code = code
        self.step = step


def check_rows(cells: Cells, jobs: JobRows, *, before: JobRows, tied: bool, step: str) -> None:
    """Checks what a commit wrote. `tied`: a job is bound if and only if a slot is meant for it."""
    for index in JOBS:
        was, now = before[index], jobs[index]
        if was is not None and was.state is JobState.DONE and now != was:
            raise Violation(Broken.JOB_CAME_BACK, step=step)
        back = now is None or now.state in (JobState.QUEUED, JobState.BOUND)
        if was is not None and was.state is JobState.RUNNING and back:
            raise Violation(Broken.JOB_GIVEN_AGAIN, step=step)
        intending = [cell for cell in cells if cell is not None and cell.intended == index]
        if len(intending) > 1:
            raise Violation(Broken.TWO_SLOTS_OF_JOB, step=step)
        bound = now is not None and now.state is JobState.BOUND
        if tied and bound != bool(intending):
            raise Violation(Broken.BOUND_WITHOUT_SLOT, step=step)


def verdict(lane: Lane) -> Broken | None:
    """The invariant that a Pod position breaks against its row; None if it breaks none."""
    cell, pod = lane.cell, lane.pod
    if pod.able:
        spoken = cell is not None and (cell.claims or cell.fence is Fence.DUE)
        if not spoken:
            return Broken.RUNNER_WITHOUT_CLAIM
        if cell is not None and cell.fence is Fence.DONE:
            return Broken.RUNNER_FENCED
    if cell is not None and cell.state is SlotState.IDLE and pod.jit and _present(pod):
        return Broken.ARMED_POD_IDLE
    return None


def check_deletion(pod: Pod, *, step: str) -> None:
    """Checks a deletion of this Pod by one of our components."""
    if pod.runner is Runner.BUSY or pod.able:
        raise Violation(Broken.BUSY_POD_DELETED, step=step)


def check_delivery(state: State, limit: int, *, step: str) -> None:
    """Checks the budget after a JIT was delivered. A lost node's machine cannot be counted."""
    holders = sum(1 for lane in state.lanes if lane.pod.jit and _present(lane.pod))
    if holders > limit:
        raise Violation(Broken.OVER_BUDGET, step=step)


def at_rest(state: State) -> bool:
    """Whether nothing is left: jobs over, no claim, no registration, no stamp, nothing under way."""
    if state.hooks or state.tasks:
        return False
    for job in state.jobs:
        if job.status != "done" or job.row is None or job.row.state is not JobState.DONE:
            return False
    return all(_lane_at_rest(lane) for lane in state.lanes)


def _lane_at_rest(lane: Lane) -> bool:
    cell, pod = lane.cell, lane.pod
    if pod.stamped or pod.runner is not Runner.NONE or pod.terminating:
        return False
    if pod.guest is Guest.POLLING:
        return cell is None or cell.state is SlotState.IDLE
    return pod.guest in (Guest.ABSENT, Guest.NEVER) and cell is None


def _present(pod: Pod) -> bool:
    return pod.guest in (Guest.POLLING, Guest.ARMED, Guest.CONNECTED, Guest.HUNG)
