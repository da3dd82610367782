"""Models GitHub: it may give any queued job to any online runner, and deliver webhooks in any order."""

from collections.abc import Iterator

from runyard.dispatch.machine.values import Fence, JobState
from runyard.sim.proof.model import Model, Step
from runyard.sim.proof.rows import tidy
from runyard.sim.proof.state import (
    JOBS,
    Guest,
    Hook,
    Lane,
    Pod,
    Runner,
    State,
    Task,
    with_hook,
    with_job,
    with_pod,
    with_task,
    without_hook,
)


def github_steps(model: Model, state: State) -> Iterator[Step]:
    """Assignments, ends, deletions of ghosts, and the arrival of webhooks."""
    for index, lane in enumerate(state.lanes):
        pod = lane.pod
        if pod.runner is Runner.NONE:
            continue
        if pod.runner is Runner.ONLINE:  # even if its process is dead: GitHub notices later
            for job in JOBS:
                if state.jobs[job].status == "queued":
                    given = _assign(state, index, job)
                    yield f"GitHub gives job {job} to the runner of Pod {index}", given
        if pod.runner is Runner.BUSY and pod.job is not None:
            living = pod.guest in (Guest.CONNECTED, Guest.LOST)
            label = "the runner finishes" if living else "GitHub fails, its runner being dead,"
            yield f"{label} job {pod.job} of Pod {index}", _finish(state, index, pod.job)
            if not living and _not_yet_started(state, index, pod.job):
                back = _take_back(state, index, pod.job)
                yield f"GitHub takes job {pod.job} back from the dead runner of Pod {index}", back
        elif _is_ghost(lane):
            after = _unregister(state, index)
            yield f"the ghost registration of Pod {index} is deleted", after
    for hook in dict.fromkeys(state.hooks):
        arrived = deliver(model, without_hook(state, hook), hook)
        yield f"webhook: job {hook.job} {hook.kind}", arrived
    for job in JOBS:
        yield from _announce(model, state, job)


def _announce(model: Model, state: State, job: int) -> Iterator[Step]:
    """A job is announced, and is released if it was held back."""
    row, held = state.jobs[job].row, state.jobs[job].status == "held"
    if held:
        yield f"job {job} is approved", with_job(state, job, status="queued", runner=None)
        if row is None:
            yield f"webhook: job {job} waiting", model.fact(state, "waiting", job=job)
    elif row is None or row.state is JobState.WAITING:
        yield f"webhook or audit: job {job} queued", model.fact(state, "queued", job=job)
        if row is None and model.settings.held and job == 0:
            yield f"webhook: job {job} waiting, late", model.fact(state, "waiting", job=job)


def deliver(model: Model, state: State, hook: Hook) -> State:
    """Delivers a webhook."""
    return model.fact(state, hook.kind, job=hook.job, runner=hook.runner)


def cancel(state: State, job: int) -> State:
    """Cancels a job that is still queued."""
    state = with_job(state, job, status="done", runner=None)
    return with_hook(state, Hook("ended", job, -1))


def fence(state: State, index: int) -> tuple[State, str]:
    """Asks GitHub to delete a runner: the state after it, and GitHub's answer."""
    lane = state.lanes[index]
    if lane.pod.runner is Runner.BUSY:
        return state, "busy"
    if lane.pod.runner is Runner.NONE:
        return state, "absent"
    return _unregister(state, index), "deleted"


def register(state: State, index: int) -> tuple[State, bool]:
    """Asks GitHub to mint a runner: the state after it, and whether the name was still free."""
    pod = state.lanes[index].pod
    if pod.runner is not Runner.NONE:
        return state, False
    new = Pod(pod.guest, pod.stamped, pod.terminating, pod.jit, Runner.REGISTERED, void=pod.void)
    return with_pod(state, index, new), True


def _assign(state: State, index: int, job: int) -> State:
    pod = state.lanes[index].pod
    busy = Pod(pod.guest, pod.stamped, pod.terminating, pod.jit, Runner.BUSY, job)
    state = with_job(with_pod(state, index, busy), job, status="running", runner=index)
    return with_hook(state, Hook("started", job, index))


def _finish(state: State, index: int, job: int) -> State:
    """Ends the job and its runner; a guest that runs has done its work and ends."""
    pod = state.lanes[index].pod
    spent = Pod()
    if pod.guest is Guest.HUNG:
        spent = _without_runner(state.lanes[index])
    state = with_job(with_pod(state, index, spent), job, status="done", runner=index)
    return tidy(with_hook(state, Hook("ended", job, index)))


def _not_yet_started(state: State, index: int, job: int) -> bool:
    """Whether it is assigned but not announced: GitHub may still take it back."""
    row = state.jobs[job].row
    untold = row is None or row.state in (JobState.QUEUED, JobState.BOUND)
    return untold and Hook("started", job, index) in state.hooks


def _take_back(state: State, index: int, job: int) -> State:
    pod = _without_runner(state.lanes[index])
    state = with_job(with_pod(state, index, pod), job, status="queued", runner=None)
    return without_hook(state, Hook("started", job, index))


def _is_ghost(lane: Lane) -> bool:
    """Whether no slot claims the registration any more, or its slot counts as fenced."""
    cell = lane.cell
    if cell is None or cell.fence is Fence.DONE:
        return True
    return not cell.claims and cell.fence is not Fence.DUE


def _unregister(state: State, index: int) -> State:
    """Deletes the registration; a replica that still waits to arm the slot does not notice."""
    state = with_pod(state, index, _without_runner(state.lanes[index]))
    for task in state.tasks:
        if task.kind == "mint" and task.pod == index and task.mint == "ok":
            gone = Task("mint", index, task.generation, "gone", task.stamp)
            state = with_task(state, task, gone)
    return state


def _without_runner(lane: Lane) -> Pod:
    pod = lane.pod
    minted = pod.jit or (lane.cell is not None and lane.cell.jit)
    return Pod(pod.guest, pod.stamped, pod.terminating, pod.jit, void=minted)
