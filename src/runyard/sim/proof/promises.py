"""What must never be: the promises, each where it can be broken.

Safety is judged in three places: `judge_rows` after every commit, `verdict` for every Pod position
that ever occurs, and at the steps that deliver a JIT or delete a Pod. Liveness is judged by the
explorer: from every world there must be a way back to rest (`at_rest`) on which nothing goes wrong
any more.
"""

from runyard.dispatch.machine.values import Fence, JobState, SlotState
from runyard.sim.proof.world import JOBS, Cell, Guest, JobRow, Lane, Pod, Runner, World

Cells = tuple[Cell | None, Cell | None]
JobRows = tuple[JobRow | None, JobRow | None]


class Violation(Exception):
    """A promise is broken; the message says which, `step` by what."""

    def __init__(self, promise: str, *, step: str = "") -> None:
        super().__init__(promise)
        self.step = step


def judge_rows(cells: Cells, jobs: JobRows, *, before: JobRows, tied: bool, step: str) -> None:
    """What a commit wrote. `tied`: a job is bound if and only if a slot is meant for it."""
    for index in JOBS:
        was, now = before[index], jobs[index]
        if was is not None and was.state is JobState.DONE and now != was:
            raise Violation("a job that is over came back", step=step)
        back = now is None or now.state in (JobState.QUEUED, JobState.BOUND)
        if was is not None and was.state is JobState.RUNNING and back:
            raise Violation("a job that was running is given to somebody else", step=step)
        intending = [cell for cell in cells if cell is not None and cell.intended == index]
        if len(intending) > 1:
            raise Violation("two slots are meant for one job", step=step)
        bound = now is not None and now.state is JobState.BOUND
        if tied and bound != bool(intending):
            raise Violation("a job is bound if and only if a slot is meant for it", step=step)


def verdict(lane: Lane) -> str:
    """The promise that a Pod position breaks against its row, or nothing."""
    cell, pod = lane.cell, lane.pod
    if pod.able:
        spoken = cell is not None and (cell.claims or cell.fence is Fence.DUE)
        if not spoken:
            return "a runner that can execute is counted by no claim"
        if cell is not None and cell.fence is Fence.DONE:
            return "a runner that can execute counts as fenced"
    if cell is not None and cell.state is SlotState.IDLE and pod.jit and _present(pod):
        return "a Pod that was given a JIT counts as idle"
    return ""


def judge_deletion(pod: Pod, *, step: str) -> None:
    """Somebody of ours deletes this Pod."""
    if pod.runner is Runner.BUSY or pod.able:
        raise Violation("a Pod that executes or is about to execute a job is deleted", step=step)


def judge_delivery(world: World, limit: int, *, step: str) -> None:
    """A JIT has just been delivered. A lost node's machine is beyond anybody's count."""
    holders = sum(1 for lane in world.lanes if lane.pod.jit and _present(lane.pod))
    if holders > limit:
        raise Violation("more Pods may run a tenant's code than its budget allows", step=step)


def at_rest(world: World) -> bool:
    """Nothing left: jobs over, no claim, no registration, no stamp, nothing under way."""
    if world.hooks or world.tasks:
        return False
    for job in world.jobs:
        if job.status != "done" or job.row is None or job.row.state is not JobState.DONE:
            return False
    return all(_lane_at_rest(lane) for lane in world.lanes)


def _lane_at_rest(lane: Lane) -> bool:
    cell, pod = lane.cell, lane.pod
    if pod.stamped or pod.runner is not Runner.NONE or pod.terminating:
        return False
    if pod.guest is Guest.POLLING:
        return cell is None or cell.state is SlotState.IDLE
    return pod.guest in (Guest.ABSENT, Guest.NEVER) and cell is None


def _present(pod: Pod) -> bool:
    return pod.guest in (Guest.POLLING, Guest.ARMED, Guest.CONNECTED, Guest.HUNG)
