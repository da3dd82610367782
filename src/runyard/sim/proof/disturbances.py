"""The faults of the model, each counted as one disturbance: crashes, losses, false answers, slowness, outages."""

from collections.abc import Iterator

from runyard.dispatch.machine.table import Question, question
from runyard.sim.proof.failover import drop_old_rows, lose_commit
from runyard.sim.proof.fake_github import cancel, deliver, register
from runyard.sim.proof.guests import operator_deletes
from runyard.sim.proof.model import Model, Step
from runyard.sim.proof.replicas import ask, premature, retire
from runyard.sim.proof.rows import to_slot
from runyard.sim.proof.state import (
    ALIVE,
    JOBS,
    NOW,
    PODS,
    Guest,
    Lane,
    Pod,
    State,
    Task,
    dead,
    with_pod,
    with_task,
    without_hook,
)


def disturbances(model: Model, state: State) -> Iterator[Step]:
    """Every fault that may happen now."""
    if state.left == 0:
        return
    cheaper = State(state.lanes, state.jobs, state.tasks, state.hooks, state.undo, state.left - 1)
    if state.undo:
        yield "the database loses its last commit", lose_commit(model, cheaper)
    if state.left == 1:
        cheaper = drop_old_rows(cheaper)
    for task in dict.fromkeys(cheaper.tasks):
        if task.kind != "late":
            yield from _crash(cheaper, task)
        if task.kind == "mint":
            yield from _mint_faults(cheaper, task)
    for index in PODS:
        yield from _pod_faults(cheaper, index)
        if premature(cheaper, index):
            for label, after in ask(model, cheaper, index):
                yield f"slowness: {label}", after
        if cheaper.lanes[index].pod.guest is Guest.POLLING and not model.busy(cheaper):
            for label, after in retire(cheaper, index):
                yield f"slowness: {label}", after
        yield from _blind_fence(model, cheaper, index)
    yield from _github_faults(model, cheaper)
    yield from operator_deletes(model, cheaper)
    yield "an outage of all replicas", _outage(cheaper)


def _crash(state: State, task: Task) -> Iterator[Step]:
    """The replica crashes between two effects; a mint that it had sent may still arrive, at any time."""
    yield f"a replica crashes during {_during(task)}", with_task(state, task, None)
    if task.kind == "mint" and task.mint == "todo":
        late = with_task(state, task, Task("late", task.pod))
        yield f"a replica crashes during {_during(task)}, its request is in flight", late


def _during(task: Task) -> str:
    return (
        f"{task.kind!r} for job {task.job}" if task.pod < 0 else f"{task.kind!r} for Pod {task.pod}"
    )


def _mint_faults(state: State, task: Task) -> Iterator[Step]:
    index, pod = task.pod, state.lanes[task.pod].pod

    def on(*, mint: str = "", stamp: str = "") -> Task:
        return Task("mint", index, task.generation, mint or task.mint, stamp or task.stamp)

    if task.mint == "todo":
        yield f"the mint for Pod {index} is refused", with_task(state, task, on(mint="failed"))
        arrived, _ = register(state, index)
        lost = with_task(arrived, task, on(mint="unknown"))
        yield f"the answer to the mint for Pod {index} is lost", lost
        yield f"the mint for Pod {index} is delayed", with_task(state, task, on(mint="late"))
    patchable = pod.guest in ALIVE and not pod.terminating
    if task.stamp == "todo" and task.mint != "failed" and patchable:
        marked = Pod(pod.guest, True, False, pod.jit, pod.runner, pod.job, pod.void)
        lost = with_task(with_pod(state, index, marked), task, on(stamp="unknown"))
        yield f"the answer to the stamp of Pod {index} is lost", lost


def _pod_faults(state: State, index: int) -> Iterator[Step]:
    pod = state.lanes[index].pod
    if pod.guest not in (Guest.POLLING, Guest.ARMED, Guest.CONNECTED):
        return
    hung = Pod(Guest.HUNG, pod.stamped, pod.terminating, pod.jit, pod.runner, pod.job, pod.void)
    yield f"Pod {index} hangs", with_pod(state, index, hung)
    yield f"Pod {index} dies", with_pod(state, index, dead(pod))
    if pod.jit:
        lost = Pod(Guest.LOST, jit=True, runner=pod.runner, job=pod.job, void=pod.void)
        yield f"the node of Pod {index} is lost, its VM keeps running", with_pod(state, index, lost)


def _github_faults(model: Model, state: State) -> Iterator[Step]:
    for hook in dict.fromkeys(state.hooks):
        yield f"the webhook job {hook.job} {hook.kind} is lost", without_hook(state, hook)
        twice = deliver(model, state, hook)
        yield f"webhook: job {hook.job} {hook.kind}, delivered again later", twice
    for job in JOBS:
        if state.jobs[job].status in {"held", "queued"}:
            yield f"job {job} is cancelled while queued", cancel(state, job)


def _blind_fence(model: Model, state: State, index: int) -> Iterator[Step]:
    """GitHub answers 404 for everything in a scope that we may not read now."""
    lane = state.lanes[index]
    if lane.cell is None or model.busy(state) or not model.db.due(lane):
        return
    asked = question(to_slot(index, lane.cell))
    if asked in (Question.FENCE, Question.READ_INTENDED_JOB):
        if model.rules.absent_needs_a_read:
            return  # the answer is refused: equivalent to no request
        task = Task("blind", index, NOW)
        yield f"the scope of Pod {index}'s runner cannot be read", with_task(state, None, task)


def _outage(state: State) -> State:
    lanes = tuple(
        Lane(lane.cell, lane.old, lane.same, lane.pod, lane.cell is not None)
        for lane in state.lanes
    )
    tasks = tuple(
        sorted(
            Task("late", task.pod) if _in_flight(task) else task
            for task in state.tasks
            if task.kind == "late" or _in_flight(task)
        )
    )
    return State((lanes[0], lanes[1]), state.jobs, tasks, state.hooks, state.undo, state.left)


def _in_flight(task: Task) -> bool:
    return task.kind == "mint" and task.mint == "todo"
