"""What may go wrong, each at the price of one disturbance: crashes, losses, lies, slowness, outages."""

from collections.abc import Iterator

from runyard.dispatch.machine.table import Question, question
from runyard.sim.proof.failover import keep_commits, lose_commit
from runyard.sim.proof.guests import operator_deletes
from runyard.sim.proof.hub import cancel, deliver, register
from runyard.sim.proof.replicas import ask, premature, retire
from runyard.sim.proof.rows import to_slot
from runyard.sim.proof.scene import Scene, Step
from runyard.sim.proof.world import (
    ALIVE,
    JOBS,
    NOW,
    PODS,
    Guest,
    Lane,
    Pod,
    Task,
    World,
    dead,
    with_pod,
    with_task,
    without_hook,
)


def disturbances(scene: Scene, world: World) -> Iterator[Step]:
    """Everything that may go wrong now."""
    if world.left == 0:
        return
    cheaper = World(world.lanes, world.jobs, world.tasks, world.hooks, world.undo, world.left - 1)
    if world.undo:
        yield "the database loses its last commit", lose_commit(scene, cheaper)
    if world.left == 1:
        cheaper = keep_commits(cheaper)
    for task in dict.fromkeys(cheaper.tasks):
        if task.kind != "late":
            yield from _crash(cheaper, task)
        if task.kind == "mint":
            yield from _mint_trouble(cheaper, task)
    for index in PODS:
        yield from _pod_trouble(cheaper, index)
        if premature(cheaper, index):
            for label, after in ask(scene, cheaper, index):
                yield f"slowness: {label}", after
        if cheaper.lanes[index].pod.guest is Guest.POLLING and not scene.busy(cheaper):
            for label, after in retire(cheaper, index):
                yield f"slowness: {label}", after
        yield from _blind_fence(scene, cheaper, index)
    yield from _hub_trouble(scene, cheaper)
    yield from operator_deletes(scene, cheaper)
    yield "an outage of all replicas", _outage(cheaper)


def _crash(world: World, task: Task) -> Iterator[Step]:
    """The replica dies between two effects; a mint that it had sent may still arrive, at any time."""
    yield f"a replica crashes amid {_amid(task)}", with_task(world, task, None)
    if task.kind == "mint" and task.mint == "todo":
        late = with_task(world, task, Task("late", task.pod))
        yield f"a replica crashes amid {_amid(task)}, its request is on its way", late


def _amid(task: Task) -> str:
    return (
        f"{task.kind!r} for job {task.job}" if task.pod < 0 else f"{task.kind!r} for Pod {task.pod}"
    )


def _mint_trouble(world: World, task: Task) -> Iterator[Step]:
    index, pod = task.pod, world.lanes[task.pod].pod

    def on(*, mint: str = "", stamp: str = "") -> Task:
        return Task("mint", index, task.generation, mint or task.mint, stamp or task.stamp)

    if task.mint == "todo":
        yield f"the mint for Pod {index} is refused", with_task(world, task, on(mint="failed"))
        arrived, _ = register(world, index)
        lost = with_task(arrived, task, on(mint="unknown"))
        yield f"the answer to the mint for Pod {index} is lost", lost
        yield f"the mint for Pod {index} is delayed", with_task(world, task, on(mint="late"))
    patchable = pod.guest in ALIVE and not pod.terminating
    if task.stamp == "todo" and task.mint != "failed" and patchable:
        marked = Pod(pod.guest, True, False, pod.jit, pod.runner, pod.job, pod.void)
        lost = with_task(with_pod(world, index, marked), task, on(stamp="unknown"))
        yield f"the answer to the stamp of Pod {index} is lost", lost


def _pod_trouble(world: World, index: int) -> Iterator[Step]:
    pod = world.lanes[index].pod
    if pod.guest not in (Guest.POLLING, Guest.ARMED, Guest.CONNECTED):
        return
    hung = Pod(Guest.HUNG, pod.stamped, pod.terminating, pod.jit, pod.runner, pod.job, pod.void)
    yield f"Pod {index} hangs", with_pod(world, index, hung)
    yield f"Pod {index} dies", with_pod(world, index, dead(pod))
    if pod.jit:
        lost = Pod(Guest.LOST, jit=True, runner=pod.runner, job=pod.job, void=pod.void)
        yield f"the node of Pod {index} is lost, its machine lives on", with_pod(world, index, lost)


def _hub_trouble(scene: Scene, world: World) -> Iterator[Step]:
    for hook in dict.fromkeys(world.hooks):
        yield f"the webhook job {hook.job} {hook.kind} is lost", without_hook(world, hook)
        twice = deliver(scene, world, hook)
        yield f"webhook: job {hook.job} {hook.kind}, and again later", twice
    for job in JOBS:
        if world.jobs[job].status in {"held", "queued"}:
            yield f"job {job} is cancelled while queued", cancel(world, job)


def _blind_fence(scene: Scene, world: World, index: int) -> Iterator[Step]:
    """GitHub answers 404 for everything in a scope that we may not read just now."""
    lane = world.lanes[index]
    if lane.cell is None or scene.busy(world) or not scene.db.due(lane):
        return
    asked = question(to_slot(index, lane.cell))
    if asked in (Question.FENCE, Question.ASK_INTENDED):
        if scene.rules.absent_needs_a_read:
            return  # the answer is refused: the same as not having asked
        task = Task("blind", index, NOW)
        yield f"the scope of Pod {index}'s runner cannot be read", with_task(world, None, task)


def _outage(world: World) -> World:
    lanes = tuple(
        Lane(lane.cell, lane.old, lane.same, lane.pod, lane.cell is not None)
        for lane in world.lanes
    )
    tasks = tuple(
        sorted(
            Task("late", task.pod) if _in_flight(task) else task
            for task in world.tasks
            if task.kind == "late" or _in_flight(task)
        )
    )
    return World((lanes[0], lanes[1]), world.jobs, tasks, world.hooks, world.undo, world.left)


def _in_flight(task: Task) -> bool:
    return task.kind == "mint" and task.mint == "todo"
