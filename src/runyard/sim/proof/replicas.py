"""The server's replicas: matcher, minter, sweeper, reader, recovery.

Whatever a replica does between two of its effects is a `Task`, so that everything else may happen
in between. Every change of a row goes through the machine; every answer carries the generation that
it was asked for.
"""

from collections.abc import Iterator

from runyard.dispatch.machine.table import Question, question
from runyard.dispatch.machine.values import CLAIMS, JobState, SlotState
from runyard.sim.proof.hub import fence, register
from runyard.sim.proof.promises import Violation, judge_deletion
from runyard.sim.proof.rows import to_slot
from runyard.sim.proof.scene import Scene, Step
from runyard.sim.proof.world import (
    ALIVE,
    JOBS,
    NOBODY,
    NOW,
    PODS,
    Guest,
    Pod,
    Runner,
    Task,
    World,
    dead,
    with_pod,
    with_task,
)


def replica_steps(scene: Scene, world: World) -> Iterator[Step]:
    """What the replicas may do next."""
    busy = scene.busy(world)
    for index in PODS:
        if world.lanes[index].pod.guest is Guest.NEVER:
            continue
        if world.lanes[index].cell is not None:
            yield from _match(scene, world, index, busy=busy)
            yield from _prove_gone(scene, world, index)
            if not premature(world, index):
                yield from ask(scene, world, index)
        if not busy:
            yield from _recover(scene, world, index)
    for job in JOBS:
        if _worth_reading(world, job):
            yield from _read(scene, world, job, busy=busy)
    for task in dict.fromkeys(world.tasks):
        yield from _go_on(scene, world, task)


# ---------------------------------------------------------------------------------- matcher and reader


def _match(scene: Scene, world: World, index: int, *, busy: bool) -> Iterator[Step]:
    cell = world.lanes[index].cell
    if cell is None or cell.state not in (SlotState.IDLE, SlotState.ARMED):
        return
    for job in JOBS:
        row = world.jobs[job].row
        if row is None or row.state is not JobState.QUEUED:
            continue
        if cell.state is SlotState.ARMED:
            adopted = scene.db.commit(world, "adopt", pod=index, job=job)
            if adopted is not None:
                yield f"the vacant runner of Pod {index} is meant for job {job}", adopted
        elif not busy:
            offered = scene.db.commit(world, "offer", pod=index, job=job)
            if offered is not None:
                task = Task("mint", index, NOW, "todo", "todo")
                yield f"job {job} is offered to Pod {index}", with_task(offered, None, task)


def _worth_reading(world: World, job: int) -> bool:
    """The reader looks at jobs that were given back, and at the others now and then."""
    lane = world.jobs[job]
    if lane.row is None:
        return False
    if lane.row.state in (JobState.WAITING, JobState.QUEUED):
        return not lane.row.verified or lane.status != "queued"
    return lane.row.state is JobState.RUNNING and lane.status == "done"


def _read(scene: Scene, world: World, job: int, *, busy: bool) -> Iterator[Step]:
    """Ask GitHub about a job. "Queued" may be outdated when it is committed; the rest stays true."""
    known = world.jobs[job]
    runner = -1 if known.runner is None else known.runner
    if known.status == "held":
        return  # it says so, and nothing follows
    if known.status == "running":
        yield f"read: job {job} runs", scene.fact(world, "started", job=job, runner=runner)
    elif known.status == "done":
        yield f"read: job {job} is over", scene.fact(world, "ended", job=job, runner=runner)
    elif not busy and scene.settings.stale_reads:
        yield f"read: job {job} is queued", with_task(world, None, Task("queued", job=job))
    elif not scene.settings.stale_reads:
        yield f"read: job {job} is queued", scene.fact(world, "queued again", job=job)


# ---------------------------------------------------------------------------------- sweeper and recovery


def _prove_gone(scene: Scene, world: World, index: int) -> Iterator[Step]:
    lane = world.lanes[index]
    if lane.cell is None or lane.pod.guest not in (Guest.ABSENT, Guest.LOST):
        return
    if lane.cell.state is not SlotState.IDLE or scene.db.due(lane):
        gone = scene.db.commit(world, "gone", pod=index)
        if gone is not None:
            yield f"Pod {index} is proven gone", gone


def premature(world: World, index: int) -> bool:
    """Would it take unusual slowness for this deadline to pass before somebody moves?"""
    lane = world.lanes[index]
    cell, pod = lane.cell, lane.pod
    if cell is None or lane.unheard:
        return False  # an outage is slowness enough
    if cell.state is SlotState.OFFERED:
        return any(task.kind == "mint" and task.pod == index and task.generation == NOW
                   for task in world.tasks)  # fmt: skip
    if cell.state is SlotState.ARMED:
        if pod.guest in (Guest.POLLING, Guest.ARMED):
            return True
        waits = any(job.status == "queued" for job in world.jobs)
        return pod.guest is Guest.CONNECTED and pod.runner is Runner.ONLINE and waits
    return False


def ask(scene: Scene, world: World, index: int) -> Iterator[Step]:
    """The sweeper's question about an overdue slot; GitHub's answer is committed later."""
    lane = world.lanes[index]
    cell, pod = lane.cell, lane.pod
    if cell is None or not scene.db.due(lane):
        return
    asked = question(to_slot(index, cell))
    harmful = asked in (Question.FENCE, Question.REAP) and cell.state in CLAIMS
    if lane.unheard and pod.speaks and harmful:
        promise = "a healthy Pod is reaped because the service was away"
        raise Violation(promise, step=f"the sweeper asks about Pod {index}")
    if asked in (Question.FENCE, Question.ASK_INTENDED) and not scene.busy(world):
        yield from _fence(scene, world, index)
    if asked is Question.ASK_INTENDED and cell.intended is not None:
        yield from _read(scene, world, cell.intended, busy=scene.busy(world))
    job = cell.executing if asked is Question.ASK_JOB else None
    if job is not None and world.jobs[job].status == "done":
        yield from _read(scene, world, job, busy=True)
    if asked is Question.REAP and pod.guest in ALIVE:
        step = f"Pod {index} is reaped"
        judge_deletion(pod, step=step)
        yield step, with_pod(world, index, dead(pod))


def _fence(scene: Scene, world: World, index: int) -> Iterator[Step]:
    cell = world.lanes[index].cell
    answered, answer = (world, "deleted") if scene.settings.skip_fence else fence(world, index)
    if cell is None or (answer == "busy" and cell.state in (SlotState.EXECUTING, SlotState.CLOSED)):
        return  # it would only be asked again later
    task = Task(answer, index, NOW)
    yield f"the runner of Pod {index} is fenced: {answer}", with_task(answered, None, task)


def _recover(scene: Scene, world: World, index: int) -> Iterator[Step]:
    """A Pod that no claim speaks for, stamped or silent for long, is taken out of service."""
    lane = world.lanes[index]
    if lane.pod.guest is Guest.HUNG or lane.pod.stamped:
        yield from retire(world, index)


def retire(world: World, index: int) -> Iterator[Step]:
    """Fence what may run in a stamped Pod, then commit, if the slot is still as it was judged."""
    lane = world.lanes[index]
    cell, pod = lane.cell, lane.pod
    spoken = cell is not None and cell.state is not SlotState.IDLE
    if spoken or pod.terminating or pod.guest not in ALIVE:
        return
    if any(task.kind == "retire" and task.pod == index for task in world.tasks):
        return
    answered, answer = fence(world, index) if pod.stamped else (world, "")
    if answer != "busy":
        task = Task("retire", index, NOBODY if cell is None else NOW)
        yield f"Pod {index} is judged a leak", with_task(answered, None, task)


# ---------------------------------------------------------------------------------- what is under way


def _go_on(scene: Scene, world: World, task: Task) -> Iterator[Step]:
    pod = task.pod
    done = with_task(world, task, None)
    match task.kind:
        case "mint":
            yield from _minting(scene, world, task)
        case "late":
            yield f"a late mint for Pod {pod} arrives", register(done, pod)[0]
        case "drop":
            after, _ = fence(done, pod)
            yield f"the registration of Pod {pod} is deleted by its minter", after
        case "unstamp":
            if task.generation != NOW and not scene.settings.unstamp_blindly:
                yield f"the stamp of Pod {pod} is another offer's", done
                return
            cleared = with_pod(world, pod, _stamped(world.lanes[pod].pod, stamped=False))
            after = with_task(cleared, task, Task("failed", pod, task.generation))
            yield f"the stamp of Pod {pod} is cleared", after
        case "failed":
            after = (
                scene.db.commit(done, "mint failed", pod=pod, generation=task.generation) or done
            )
            yield f"the offer to Pod {pod} is given up", after
        case "queued":
            yield (
                f"the read of job {task.job} is committed",
                scene.fact(done, "queued again", job=task.job),
            )
        case _:
            after = scene.db.commit(done, task.kind, pod=pod, generation=task.generation) or done
            yield f"the answer {task.kind!r} about Pod {pod} is committed", after


def _minting(scene: Scene, world: World, task: Task) -> Iterator[Step]:
    index, pod = task.pod, world.lanes[task.pod].pod
    if task.mint == "todo":
        minted, free = register(world, index)
        after = with_task(minted, task, _on(task, mint="ok" if free else "unknown"))
        yield f"the runner of Pod {index} is minted", after
    if task.stamp == "todo" and task.mint != "failed":
        ok = pod.guest in ALIVE and not pod.terminating
        marked = with_pod(world, index, _stamped(pod, stamped=True)) if ok else world
        after = with_task(marked, task, _on(task, stamp="ok" if ok else "failed"))
        yield f"Pod {index} is stamped" if ok else f"stamping Pod {index} is refused", after
    unstamped_is_fine = not scene.rules.stamp_before_delivery
    if task.mint in {"ok", "gone"} and (task.stamp == "ok" or unstamped_is_fine):
        yield _arm(scene, world, task)
    elif task.mint == "failed":
        kind = "failed" if task.stamp == "todo" else "unstamp"
        after = with_task(world, task, Task(kind, index, task.generation))
        yield f"the refused mint for Pod {index} is noticed", after
    elif task.mint in {"unknown", "late"} or task.stamp in {"failed", "unknown"}:
        follow = Task("late", index) if task.mint in {"late", "todo"} else None
        ended = with_task(world, task, follow)
        after = scene.db.commit(
            ended, "mint abandoned", pod=index, generation=task.generation
        ) or ended  # fmt: skip
        yield f"the mint for Pod {index} is abandoned", after


def _arm(scene: Scene, world: World, task: Task) -> Step:
    what = "arm" if task.stamp == "ok" else "arm without stamp"
    done = with_task(world, task, None)
    armed = scene.db.commit(done, what, pod=task.pod, generation=task.generation)
    if armed is None:
        follow = Task("drop", task.pod) if task.mint == "ok" else None
        return f"arming Pod {task.pod} comes too late", with_task(done, None, follow)
    if task.mint == "gone":
        armed = with_pod(armed, task.pod, _void(armed.lanes[task.pod].pod))
    return f"Pod {task.pod} is armed", armed


def _on(task: Task, *, mint: str = "", stamp: str = "") -> Task:
    return Task("mint", task.pod, task.generation, mint or task.mint, stamp or task.stamp)


def _void(pod: Pod) -> Pod:
    return Pod(pod.guest, pod.stamped, pod.terminating, pod.jit, pod.runner, pod.job, True)


def _stamped(pod: Pod, *, stamped: bool) -> Pod:
    return Pod(pod.guest, stamped, pod.terminating, pod.jit, pod.runner, pod.job, pod.void)
