"""Models the server's replicas: matcher, minter, sweeper, reader, recovery.

What a replica does between two of its effects is a `Task`, so that everything else may happen
in between. Every change of a row goes through the machine; every answer carries the generation that
it was asked for.
"""

from collections.abc import Iterator

from runyard.dispatch.machine.table import Question, question, stays_warm
from runyard.dispatch.machine.values import CLAIMS, JobState, SlotState
from runyard.sim.proof.fake_github import fence, register
from runyard.sim.proof.invariants import Broken, Violation, check_deletion
from runyard.sim.proof.model import Model, Step
from runyard.sim.proof.rows import to_slot
from runyard.sim.proof.state import (
    ALIVE,
    JOBS,
    NO_ROW,
    NOW,
    PODS,
    Guest,
    Pod,
    Runner,
    State,
    Task,
    dead,
    with_pod,
    with_task,
)


def replica_steps(model: Model, state: State) -> Iterator[Step]:
    """The possible next steps of the replicas."""
    busy = model.busy(state)
    for index in PODS:
        if state.lanes[index].pod.guest is Guest.NEVER:
            continue
        if state.lanes[index].cell is not None:
            yield from _match(model, state, index, busy=busy)
            yield from _prove_gone(model, state, index)
            if not premature(state, index):
                yield from ask(model, state, index)
        if not busy:
            yield from _recover(model, state, index)
    for job in JOBS:
        if _worth_reading(state, job):
            yield from _read(model, state, job, busy=busy)
    for task in dict.fromkeys(state.tasks):
        yield from _go_on(model, state, task)


# ---------------------------------------------------------------------------------- matcher and reader


def _match(model: Model, state: State, index: int, *, busy: bool) -> Iterator[Step]:
    cell = state.lanes[index].cell
    if cell is None or cell.state not in (SlotState.IDLE, SlotState.ARMED):
        return
    for job in JOBS:
        row = state.jobs[job].row
        if row is None or row.state is not JobState.QUEUED:
            continue
        if cell.state is SlotState.ARMED:
            adopted = model.db.commit(state, "adopt", pod=index, job=job)
            if adopted is not None:
                yield f"the vacant runner of Pod {index} is meant for job {job}", adopted
        elif not busy:
            offered = model.db.commit(state, "offer", pod=index, job=job)
            if offered is not None:
                task = Task("mint", index, NOW, "todo", "todo")
                yield f"job {job} is offered to Pod {index}", with_task(offered, None, task)


def _worth_reading(state: State, job: int) -> bool:
    """The reader reads jobs that were requeued, and the others now and then."""
    lane = state.jobs[job]
    if lane.row is None:
        return False
    if lane.row.state in (JobState.WAITING, JobState.QUEUED):
        return not lane.row.verified or lane.status != "queued"
    return lane.row.state is JobState.RUNNING and lane.status == "done"


def _read(model: Model, state: State, job: int, *, busy: bool) -> Iterator[Step]:
    """Asks GitHub about a job. "Queued" may be outdated when it is committed; the rest stays true."""
    known = state.jobs[job]
    runner = -1 if known.runner is None else known.runner
    if known.status == "held":
        return  # the answer changes nothing
    if known.status == "running":
        yield f"read: job {job} runs", model.fact(state, "started", job=job, runner=runner)
    elif known.status == "done":
        yield f"read: job {job} is over", model.fact(state, "ended", job=job, runner=runner)
    elif not busy and model.settings.stale_reads:
        yield f"read: job {job} is queued", with_task(state, None, Task("queued", job=job))
    elif not model.settings.stale_reads:
        yield f"read: job {job} is queued", model.fact(state, "queued-again", job=job)


# ---------------------------------------------------------------------------------- sweeper and recovery


def _prove_gone(model: Model, state: State, index: int) -> Iterator[Step]:
    lane = state.lanes[index]
    if lane.cell is None or lane.pod.guest not in (Guest.ABSENT, Guest.LOST):
        return
    if lane.cell.state is not SlotState.IDLE or model.db.due(lane):
        gone = model.db.commit(state, "gone", pod=index)
        if gone is not None:
            yield f"Pod {index} is proven gone", gone


def premature(state: State, index: int) -> bool:
    """Whether only unusual slowness makes this deadline pass before its owner acts."""
    lane = state.lanes[index]
    cell, pod = lane.cell, lane.pod
    if cell is None or lane.silent:
        return False  # after an outage this is normal
    if cell.state is SlotState.OFFERED:
        return any(task.kind == "mint" and task.pod == index and task.generation == NOW
                   for task in state.tasks)  # fmt: skip
    if cell.state is SlotState.ARMED:
        if pod.guest in (Guest.POLLING, Guest.ARMED):
            return True
        waits = any(job.status == "queued" for job in state.jobs)
        return pod.guest is Guest.CONNECTED and pod.runner is Runner.ONLINE and waits
    return False


def ask(model: Model, state: State, index: int) -> Iterator[Step]:
    """The sweeper's request about an overdue slot; GitHub's answer is committed later."""
    lane = state.lanes[index]
    cell, pod = lane.cell, lane.pod
    if cell is None or not model.db.due(lane):
        return
    asked = question(to_slot(index, cell))
    harmful = asked in (Question.FENCE, Question.REAP_POD) and cell.state in CLAIMS
    if lane.silent and pod.polls and harmful:
        step = f"the sweeper asks about Pod {index}"
        raise Violation(Broken.HEALTHY_POD_REAPED, step=step)
    if asked in (Question.FENCE, Question.READ_INTENDED_JOB) and not model.busy(state):
        yield from _fence(model, state, index)
    if asked is Question.READ_INTENDED_JOB and cell.intended is not None:
        yield from _read(model, state, cell.intended, busy=model.busy(state))
    job = cell.executing if asked is Question.READ_JOB else None
    if job is not None and state.jobs[job].status == "done":
        yield from _read(model, state, job, busy=True)
    if asked is Question.REAP_POD and pod.guest in ALIVE:
        step = f"Pod {index} is reaped"
        check_deletion(pod, step=step)
        yield step, with_pod(state, index, dead(pod))


def _fence(model: Model, state: State, index: int) -> Iterator[Step]:
    cell = state.lanes[index].cell
    answered, answer = (state, "deleted") if model.settings.skip_fence else fence(state, index)
    if cell is None or (answer == "busy" and cell.state in (SlotState.EXECUTING, SlotState.CLOSED)):
        return  # it would only be repeated later
    warm = answer != "busy" and stays_warm(to_slot(index, cell), model.rules)
    task = Task(f"clear-{answer}" if warm else answer, index, NOW)
    yield f"the runner of Pod {index} is fenced: {answer}", with_task(answered, None, task)


def _recover(model: Model, state: State, index: int) -> Iterator[Step]:
    """Retires a Pod without a claim that is stamped or has been silent for long."""
    lane = state.lanes[index]
    if lane.pod.guest is Guest.HUNG or lane.pod.stamped:
        yield from retire(state, index)


def retire(state: State, index: int) -> Iterator[Step]:
    """Fences the runner of a stamped Pod, then commits if the slot has not changed since."""
    lane = state.lanes[index]
    cell, pod = lane.cell, lane.pod
    spoken = cell is not None and cell.state is not SlotState.IDLE
    if spoken or pod.terminating or pod.guest not in ALIVE:
        return
    if any(task.kind == "retire" and task.pod == index for task in state.tasks):
        return
    answered, answer = fence(state, index) if pod.stamped else (state, "")
    if answer != "busy":
        task = Task("retire", index, NO_ROW if cell is None else NOW)
        yield f"Pod {index} is found to be leaked", with_task(answered, None, task)


# ---------------------------------------------------------------------------------- tasks under way


def _go_on(model: Model, state: State, task: Task) -> Iterator[Step]:
    pod = task.pod
    done = with_task(state, task, None)
    match task.kind:
        case "mint":
            yield from _minting(model, state, task)
        case "late":
            yield f"a late mint for Pod {pod} arrives", register(done, pod)[0]
        case "drop":
            after, _ = fence(done, pod)
            yield f"the registration of Pod {pod} is deleted by its minter", after
        case "unstamp":
            if task.generation != NOW and not model.settings.unstamp_blindly:
                yield f"the stamp of Pod {pod} is another offer's", done
                return
            cleared = with_pod(state, pod, _stamped(state.lanes[pod].pod, stamped=False))
            after = with_task(cleared, task, Task("failed", pod, task.generation))
            yield f"the stamp of Pod {pod} is cleared", after
        case "clear-deleted" | "clear-absent":
            yield _clear(model, state, task)
        case "failed":
            after = (
                model.db.commit(done, "mint-failed", pod=pod, generation=task.generation) or done
            )
            yield f"the offer to Pod {pod} is given up", after
        case "queued":
            yield (
                f"the read of job {task.job} is committed",
                model.fact(done, "queued-again", job=task.job),
            )
        case _:
            after = model.db.commit(done, task.kind, pod=pod, generation=task.generation) or done
            yield f"the answer {task.kind!r} about Pod {pod} is committed", after


def _clear(model: Model, state: State, task: Task) -> Step:
    """Clears the stamp of a fenced Pod, which is then used again; one that is terminating or gone drains."""
    index, pod = task.pod, state.lanes[task.pod].pod
    if task.generation != NOW and not model.settings.warm_blindly:
        return f"the stamp of fenced Pod {index} is another offer's", with_task(state, task, None)
    answer = task.kind.removeprefix("clear-")
    if pod.guest not in ALIVE or pod.terminating:
        kept = with_task(state, task, Task(answer, index, task.generation))
        return f"the stamp of fenced Pod {index} stays", kept
    cleared = with_pod(state, index, _stamped(pod, stamped=False))
    after = with_task(cleared, task, Task(f"warm-{answer}", index, task.generation))
    return f"the stamp of fenced Pod {index} is cleared", after


def _minting(model: Model, state: State, task: Task) -> Iterator[Step]:
    index, pod = task.pod, state.lanes[task.pod].pod
    if task.mint == "todo":
        minted, free = register(state, index)
        after = with_task(minted, task, _on(task, mint="ok" if free else "unknown"))
        yield f"the runner of Pod {index} is minted", after
    if task.stamp == "todo" and task.mint != "failed":
        ok = pod.guest in ALIVE and not pod.terminating
        marked = with_pod(state, index, _stamped(pod, stamped=True)) if ok else state
        after = with_task(marked, task, _on(task, stamp="ok" if ok else "failed"))
        yield f"Pod {index} is stamped" if ok else f"stamping Pod {index} is refused", after
    unstamped_is_fine = not model.rules.stamp_before_delivery
    if task.mint in {"ok", "gone"} and (task.stamp == "ok" or unstamped_is_fine):
        yield _arm(model, state, task)
    elif task.mint == "failed":
        kind = "failed" if task.stamp == "todo" else "unstamp"
        after = with_task(state, task, Task(kind, index, task.generation))
        yield f"the refused mint for Pod {index} is noticed", after
    elif task.mint in {"unknown", "late"} or task.stamp in {"failed", "unknown"}:
        follow = Task("late", index) if task.mint in {"late", "todo"} else None
        ended = with_task(state, task, follow)
        after = model.db.commit(
            ended, "mint-abandoned", pod=index, generation=task.generation
        ) or ended  # fmt: skip
        yield f"the mint for Pod {index} is abandoned", after


def _arm(model: Model, state: State, task: Task) -> Step:
    what = "arm" if task.stamp == "ok" else "arm-without-stamp"
    done = with_task(state, task, None)
    armed = model.db.commit(done, what, pod=task.pod, generation=task.generation)
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
