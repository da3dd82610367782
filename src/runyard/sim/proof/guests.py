"""Models Pods and what runs in them: created, polling, armed, connected, ended; and the operator that owns
them."""

from collections.abc import Iterator

from runyard.dispatch.machine.transition import PollVerdict, answer_poll
from runyard.sim.proof.invariants import check_deletion, check_delivery
from runyard.sim.proof.model import Model, Step
from runyard.sim.proof.rows import to_slot
from runyard.sim.proof.state import (
    ALIVE,
    JOBS,
    Guest,
    Pod,
    Runner,
    State,
    dead,
    polled,
    with_job,
    with_pod,
)


def guest_steps(model: Model, state: State) -> Iterator[Step]:
    """The possible next steps of each Pod."""
    for index, lane in enumerate(state.lanes):
        pod = lane.pod
        match pod.guest:
            case Guest.ABSENT:
                if _position_is_free(state, index):
                    yield f"Pod {index} is created and polls", _fresh(model, state, index)
            case Guest.POLLING:
                yield from _poll(model, state, index)
            case Guest.ARMED:
                yield f"the runner of Pod {index} connects", with_pod(state, index, _connected(pod))
            case Guest.CONNECTED | Guest.LOST:
                yield from _connected_or_lost(state, index)
                yield from _asks_for_more(model, state, index)
            case Guest.HUNG | Guest.NEVER:
                pass
        if pod.terminating:
            yield f"Pod {index} terminates", with_pod(state, index, dead(pod))
        if lane.silent and not pod.polls:
            yield f"the grace for Pod {index} passes", polled(state, index)


def operator_deletes(model: Model, state: State) -> Iterator[Step]:
    """The operator scales down: it deletes Pods that look idle, by uid and resourceVersion."""
    for index, lane in enumerate(state.lanes):
        pod = lane.pod
        looks_idle = not pod.stamped or model.settings.operator_by_old_version
        if pod.guest in ALIVE and looks_idle and not pod.terminating:
            step = f"the operator deletes Pod {index}"
            check_deletion(pod, step=step)
            after = Pod(pod.guest, pod.stamped, True, pod.jit, pod.runner, pod.job, pod.void)
            yield step, with_pod(state, index, after)


def _poll(model: Model, state: State, index: int) -> Iterator[Step]:
    """Only polls that change something: a heartbeat is not part of the state."""
    after = model.db.commit(state, "polled", pod=index) or state
    after = polled(after, index)
    cell, pod = after.lanes[index].cell, after.lanes[index].pod
    if cell is None:
        return
    answer = answer_poll(to_slot(index, cell))
    if answer.verdict is PollVerdict.RUN and answer.jit is not None:
        armed = Pod(Guest.ARMED, pod.stamped, pod.terminating, True, pod.runner, void=pod.void)
        after = with_pod(after, index, armed)
        step = f"Pod {index} polls and gets its JIT"
        check_delivery(after, model.settings.limit, step=step)
        yield step, after
    elif answer.verdict is PollVerdict.DRAIN:
        yield f"Pod {index} polls, gets 410, and ends", with_pod(after, index, dead(pod))
    elif after is not state:
        yield f"Pod {index} polls", after


def _asks_for_more(model: Model, state: State, index: int) -> Iterator[Step]:
    """Job code has its machine's token and can poll with it, at any time. The machine must ignore that."""
    after = model.db.commit(state, "polled", pod=index)
    if after is not None and state.lanes[index].pod.guest is Guest.CONNECTED:
        yield f"job code in Pod {index} polls", after


def _connected(pod: Pod) -> Pod:
    if pod.runner is Runner.REGISTERED and not pod.void:
        return Pod(Guest.CONNECTED, pod.stamped, pod.terminating, pod.jit, Runner.ONLINE)
    return dead(pod)  # GitHub knows no such runner: the process gives up


def _connected_or_lost(state: State, index: int) -> Iterator[Step]:
    pod = state.lanes[index].pod
    if pod.void or pod.runner is Runner.NONE:
        yield f"the runner of Pod {index} finds itself deleted", with_pod(state, index, dead(pod))
    elif pod.guest is Guest.LOST and pod.runner is Runner.REGISTERED:
        online = Pod(Guest.LOST, jit=pod.jit, runner=Runner.ONLINE)
        yield f"the runner of lost Pod {index} connects", with_pod(state, index, online)


def _position_is_free(state: State, index: int) -> bool:
    """Whether a new incarnation may take this position: only when nothing refers to the last one."""
    lane = state.lanes[index]
    return (
        lane.cell is None
        and lane.pod.runner is Runner.NONE
        and all(task.pod != index for task in state.tasks)
        and all(hook.runner != index for hook in state.hooks)
    )


def _fresh(model: Model, state: State, index: int) -> State:
    for job in JOBS:
        if state.jobs[job].runner == index:
            state = with_job(state, job, status=state.jobs[job].status, runner=None)
    state = polled(with_pod(state, index, Pod(guest=Guest.POLLING)), index)
    return model.db.commit(state, "polled", pod=index) or state
