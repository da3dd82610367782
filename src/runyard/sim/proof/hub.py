"""GitHub, as freely as it may behave: any queued job to any online runner, webhooks in any order."""

from collections.abc import Iterator

from runyard.dispatch.machine.values import Fence, JobState
from runyard.sim.proof.rows import tidy
from runyard.sim.proof.scene import Scene, Step
from runyard.sim.proof.world import (
    JOBS,
    Guest,
    Hook,
    Lane,
    Pod,
    Runner,
    Task,
    World,
    with_hook,
    with_job,
    with_pod,
    with_task,
    without_hook,
)


def hub_steps(scene: Scene, world: World) -> Iterator[Step]:
    """Assignments, ends, the ghosts' end, and the arrival of webhooks."""
    for index, lane in enumerate(world.lanes):
        pod = lane.pod
        if pod.runner is Runner.NONE:
            continue
        if pod.runner is Runner.ONLINE:  # even if its process is dead: GitHub learns that later
            for job in JOBS:
                if world.jobs[job].status == "queued":
                    given = _assign(world, index, job)
                    yield f"GitHub gives job {job} to the runner of Pod {index}", given
        if pod.runner is Runner.BUSY and pod.job is not None:
            living = pod.guest in (Guest.CONNECTED, Guest.LOST)
            label = "the runner finishes" if living else "GitHub fails, its runner being dead,"
            yield f"{label} job {pod.job} of Pod {index}", _finish(world, index, pod.job)
            if not living and _not_yet_started(world, index, pod.job):
                back = _take_back(world, index, pod.job)
                yield f"GitHub takes job {pod.job} back from the dead runner of Pod {index}", back
        elif _is_ghost(lane):
            after = _unregister(world, index)
            yield f"the ghost registration of Pod {index} is deleted", after
    for hook in dict.fromkeys(world.hooks):
        arrived = deliver(scene, without_hook(world, hook), hook)
        yield f"webhook: job {hook.job} {hook.kind}", arrived
    for job in JOBS:
        yield from _announce(scene, world, job)


def _announce(scene: Scene, world: World, job: int) -> Iterator[Step]:
    """A job becomes known, and is released if it was held back."""
    row, held = world.jobs[job].row, world.jobs[job].status == "held"
    if held:
        yield f"job {job} is approved", with_job(world, job, status="queued", runner=None)
        if row is None:
            yield f"webhook: job {job} waiting", scene.fact(world, "waiting", job=job)
    elif row is None or row.state is JobState.WAITING:
        yield f"webhook or audit: job {job} queued", scene.fact(world, "queued", job=job)
        if row is None and scene.settings.held and job == 0:
            yield f"webhook: job {job} waiting, late", scene.fact(world, "waiting", job=job)


def deliver(scene: Scene, world: World, hook: Hook) -> World:
    """A webhook arrives."""
    return scene.fact(world, hook.kind, job=hook.job, runner=hook.runner)


def cancel(world: World, job: int) -> World:
    """Somebody cancels a job that is still queued."""
    world = with_job(world, job, status="done", runner=None)
    return with_hook(world, Hook("ended", job, -1))


def fence(world: World, index: int) -> tuple[World, str]:
    """Ask GitHub to delete a runner: the world after it, and its answer."""
    lane = world.lanes[index]
    if lane.pod.runner is Runner.BUSY:
        return world, "busy"
    if lane.pod.runner is Runner.NONE:
        return world, "absent"
    return _unregister(world, index), "deleted"


def register(world: World, index: int) -> tuple[World, bool]:
    """Ask GitHub to mint a runner: the world after it, and whether the name was still free."""
    pod = world.lanes[index].pod
    if pod.runner is not Runner.NONE:
        return world, False
    new = Pod(pod.guest, pod.stamped, pod.terminating, pod.jit, Runner.REGISTERED, void=pod.void)
    return with_pod(world, index, new), True


def _assign(world: World, index: int, job: int) -> World:
    pod = world.lanes[index].pod
    busy = Pod(pod.guest, pod.stamped, pod.terminating, pod.jit, Runner.BUSY, job)
    world = with_job(with_pod(world, index, busy), job, status="running", runner=index)
    return with_hook(world, Hook("started", job, index))


def _finish(world: World, index: int, job: int) -> World:
    """The job is over, and with it the runner; a guest that lived has done its work and ends."""
    pod = world.lanes[index].pod
    spent = Pod()
    if pod.guest is Guest.HUNG:
        spent = _without_runner(world.lanes[index])
    world = with_job(with_pod(world, index, spent), job, status="done", runner=index)
    return tidy(with_hook(world, Hook("ended", job, index)))


def _not_yet_started(world: World, index: int, job: int) -> bool:
    """Assigned, but nobody has been told: GitHub may still change its mind."""
    row = world.jobs[job].row
    untold = row is None or row.state in (JobState.QUEUED, JobState.BOUND)
    return untold and Hook("started", job, index) in world.hooks


def _take_back(world: World, index: int, job: int) -> World:
    pod = _without_runner(world.lanes[index])
    world = with_job(with_pod(world, index, pod), job, status="queued", runner=None)
    return without_hook(world, Hook("started", job, index))


def _is_ghost(lane: Lane) -> bool:
    """A registration for which no slot speaks any more, or whose slot counts as fenced."""
    cell = lane.cell
    if cell is None or cell.fence is Fence.DONE:
        return True
    return not cell.claims and cell.fence is not Fence.DUE


def _unregister(world: World, index: int) -> World:
    """The registration is deleted; a minter that still waits to arm it does not know."""
    world = with_pod(world, index, _without_runner(world.lanes[index]))
    for task in world.tasks:
        if task.kind == "mint" and task.pod == index and task.mint == "ok":
            gone = Task("mint", index, task.generation, "gone", task.stamp)
            world = with_task(world, task, gone)
    return world


def _without_runner(lane: Lane) -> Pod:
    pod = lane.pod
    minted = pod.jit or (lane.cell is not None and lane.cell.jit)
    return Pod(pod.guest, pod.stamped, pod.terminating, pod.jit, void=minted)
