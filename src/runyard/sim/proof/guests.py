"""Pods and what runs in them: created, polling, armed, connected, ended; and the operator, which owns
them."""

from collections.abc import Iterator

from runyard.dispatch.machine.transition import Tell, answer_poll
from runyard.sim.proof.promises import judge_deletion, judge_delivery
from runyard.sim.proof.rows import to_slot
from runyard.sim.proof.scene import Scene, Step
from runyard.sim.proof.world import (
    ALIVE,
    JOBS,
    Guest,
    Pod,
    Runner,
    World,
    dead,
    heard,
    with_job,
    with_pod,
)


def guest_steps(scene: Scene, world: World) -> Iterator[Step]:
    """What each Pod may do next."""
    for index, lane in enumerate(world.lanes):
        pod = lane.pod
        match pod.guest:
            case Guest.ABSENT:
                if _position_is_free(world, index):
                    yield f"Pod {index} is created and polls", _fresh(scene, world, index)
            case Guest.POLLING:
                yield from _poll(scene, world, index)
            case Guest.ARMED:
                yield f"the runner of Pod {index} connects", with_pod(world, index, _connected(pod))
            case Guest.CONNECTED | Guest.LOST:
                yield from _connected_or_lost(world, index)
                yield from _asks_for_more(scene, world, index)
            case Guest.HUNG | Guest.NEVER:
                pass
        if pod.terminating:
            yield f"Pod {index} terminates", with_pod(world, index, dead(pod))
        if lane.unheard and not pod.speaks:
            yield f"the grace for Pod {index} passes", heard(world, index)


def operator_deletes(scene: Scene, world: World) -> Iterator[Step]:
    """The operator scales down: it deletes Pods that look idle, by uid and resourceVersion."""
    for index, lane in enumerate(world.lanes):
        pod = lane.pod
        looks_idle = not pod.stamped or scene.settings.operator_by_old_version
        if pod.guest in ALIVE and looks_idle and not pod.terminating:
            step = f"the operator deletes Pod {index}"
            judge_deletion(pod, step=step)
            after = Pod(pod.guest, pod.stamped, True, pod.jit, pod.runner, pod.job, pod.void)
            yield step, with_pod(world, index, after)


def _poll(scene: Scene, world: World, index: int) -> Iterator[Step]:
    """Only polls that change something: a beat is not remembered here."""
    after = scene.db.commit(world, "polled", pod=index) or world
    after = heard(after, index)
    cell, pod = after.lanes[index].cell, after.lanes[index].pod
    if cell is None:
        return
    answer = answer_poll(to_slot(index, cell))
    if answer.tell is Tell.RUN and answer.jit is not None:
        armed = Pod(Guest.ARMED, pod.stamped, pod.terminating, True, pod.runner, void=pod.void)
        after = with_pod(after, index, armed)
        step = f"Pod {index} polls and gets its JIT"
        judge_delivery(after, scene.settings.limit, step=step)
        yield step, after
    elif answer.tell is Tell.DRAIN:
        yield f"Pod {index} polls, is told to go, and ends", with_pod(after, index, dead(pod))
    elif after is not world:
        yield f"Pod {index} polls", after


def _asks_for_more(scene: Scene, world: World, index: int) -> Iterator[Step]:
    """Job code has its machine's token and can poll with it, at any time. The machine must not care."""
    after = scene.db.commit(world, "polled", pod=index)
    if after is not None and world.lanes[index].pod.guest is Guest.CONNECTED:
        yield f"job code in Pod {index} polls", after


def _connected(pod: Pod) -> Pod:
    if pod.runner is Runner.REGISTERED and not pod.void:
        return Pod(Guest.CONNECTED, pod.stamped, pod.terminating, pod.jit, Runner.ONLINE)
    return dead(pod)  # GitHub knows no such runner: the process gives up


def _connected_or_lost(world: World, index: int) -> Iterator[Step]:
    pod = world.lanes[index].pod
    if pod.void or pod.runner is Runner.NONE:
        yield f"the runner of Pod {index} finds itself deleted", with_pod(world, index, dead(pod))
    elif pod.guest is Guest.LOST and pod.runner is Runner.REGISTERED:
        online = Pod(Guest.LOST, jit=pod.jit, runner=Runner.ONLINE)
        yield f"the runner of lost Pod {index} connects", with_pod(world, index, online)


def _position_is_free(world: World, index: int) -> bool:
    """May a new incarnation take this position? Only when nothing is left that speaks of the last one."""
    lane = world.lanes[index]
    return (
        lane.cell is None
        and lane.pod.runner is Runner.NONE
        and all(task.pod != index for task in world.tasks)
        and all(hook.runner != index for hook in world.hooks)
    )


def _fresh(scene: Scene, world: World, index: int) -> World:
    for job in JOBS:
        if world.jobs[job].runner == index:
            world = with_job(world, job, status=world.jobs[job].status, runner=None)
    world = heard(with_pod(world, index, Pod(guest=Guest.POLLING)), index)
    return scene.db.commit(world, "polled", pod=index) or world
