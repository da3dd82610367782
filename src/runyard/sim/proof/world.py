"""The world in which the dispatch machine is proved: two jobs, two Pods, two replicas, GitHub.

A `World` is a small immutable value: the rows as the database holds them (and as it held them before its last
commit, which it may lose), what GitHub knows, what the Pods are doing, what each replica has under way, and which
webhooks are still on their way. Rows are kept as short *cells*; `rows.py` turns them into the machine's own values and
back, so that every change of a row is made by `dispatch.machine.transition` and by nothing else.

Worlds that differ only by renaming the Pods, the jobs or the replicas are the same world: `key` finds the
smallest name.
"""

from enum import StrEnum

import msgspec

from runyard.dispatch.machine.values import Fence, JobState, SlotState

PODS = (0, 1)
STALE = 9  # a generation that no row carries any more
JOBS = (0, 1)


class Runner(StrEnum):
    """What GitHub knows of the runner of one Pod incarnation."""

    NONE = "none"
    REGISTERED = "registered"  # minted, or its process is gone: cannot be given a job
    ONLINE = "online"
    BUSY = "busy"


class Guest(StrEnum):
    """What the Pod of one position is doing."""

    ABSENT = "absent"  # the API answers 404
    POLLING = "polling"
    ARMED = "armed"  # has its JIT, has not connected yet
    CONNECTED = "connected"
    OVER = "over"  # the process has ended, the Pod object is still there
    HUNG = "hung"  # alive, silent, for ever
    LOST = "lost"  # the API answers 404, the machine behind it lives on


class Cell(msgspec.Struct, frozen=True, array_like=True):
    """A slot's row. `generation` is relative: only its equality with others matters."""

    state: SlotState
    intended: int | None = None
    executing: int | None = None
    fence: Fence = Fence.NONE
    jit: bool = False
    known: bool = False  # a runner name was written
    generation: int = 0


class JobCell(msgspec.Struct, frozen=True, array_like=True):
    """A job's row."""

    state: JobState
    verified: bool


class Rows(msgspec.Struct, frozen=True, array_like=True):
    """The database."""

    slots: tuple[Cell | None, Cell | None] = (None, None)
    jobs: tuple[JobCell | None, JobCell | None] = (None, None)


class Pod(msgspec.Struct, frozen=True, array_like=True):
    """One Pod position."""

    guest: Guest = Guest.ABSENT
    stamped: bool = False
    terminating: bool = False
    jit: bool = False  # a JIT was delivered to it
    runner: Runner = Runner.NONE
    job: int | None = None  # what its runner executes


class HubJob(msgspec.Struct, frozen=True, array_like=True):
    """A job at GitHub."""

    status: str = "queued"  # queued, running, done
    runner: int | None = None


class Task(msgspec.Struct, frozen=True, array_like=True):
    """What a replica has under way between two of its effects."""

    kind: str  # mint, unstamp, drop, answer
    pod: int = 0
    generation: int = 0
    mint: str = ""  # todo, ok, failed, unknown
    stamp: str = ""  # todo, ok, failed, unknown
    answer: tuple[str, int, int, bool] = ("", 0, 0, False)  # kind, job, runner or -1, flag


class Hook(msgspec.Struct, frozen=True, array_like=True, order=True):
    """A webhook on its way."""

    kind: str  # started, ended
    job: int
    runner: int  # -1: never ran


class World(msgspec.Struct, frozen=True, array_like=True):
    """Everything."""

    rows: Rows = Rows()
    before: Rows | None = None  # as they were before the last commit, while a commit may be lost
    pods: tuple[Pod, Pod] = (Pod(), Pod())
    hub: tuple[HubJob, HubJob] = (HubJob(), HubJob())
    replicas: tuple[Task | None, Task | None] = (None, None)
    up: tuple[bool, bool] = (True, True)
    hooks: tuple[Hook, ...] = ()
    unheard: tuple[bool, bool] = (False, False)  # no chance to speak since the service came back
    returned_late: tuple[bool, bool] = (
        False,
        False,
    )  # given back when GitHub had it no longer queued
    faults: int = 0


_encode = msgspec.msgpack.Encoder().encode


def key(world: World) -> bytes:
    """The smallest encoding over all renamings that the worlds' own shapes do not decide already."""
    tidy = _tidy(world)
    pods = _orders(_pod_shape(tidy, 0), _pod_shape(tidy, 1))
    jobs = _orders(_job_shape(tidy, 0), _job_shape(tidy, 1))
    return min(
        _encode(_rename(tidy, swap_pods=swap_pods, swap_jobs=swap_jobs))
        for swap_pods in pods
        for swap_jobs in jobs
    )


def replace_at(pair: tuple[object, object], index: int, value: object) -> tuple[object, object]:
    """A pair with one side exchanged."""
    return (value, pair[1]) if index == 0 else (pair[0], value)


def _orders(first: bytes, second: bytes) -> tuple[bool, ...]:
    """Which swaps can lead to the smallest name."""
    if first == second:
        return (False, True)
    return (first > second,)


def _pod_shape(world: World, index: int) -> bytes:
    """What a Pod position looks like if jobs had no names."""
    cell, pod = world.rows.slots[index], world.pods[index]
    shape = None if cell is None else (cell.state, cell.fence, cell.jit, cell.intended is None)
    return _encode((shape, pod.guest, pod.stamped, pod.runner, pod.terminating))


def _job_shape(world: World, index: int) -> bytes:
    return _encode((world.rows.jobs[index], world.hub[index].status))


def _sorted_replicas(world: World) -> World:
    first, second = ((world.up[r], world.replicas[r]) for r in (0, 1))
    if _encode(first) <= _encode(second):
        return world
    return msgspec.structs.replace(world, replicas=world.replicas[::-1], up=world.up[::-1])


def _rename(world: World, *, swap_pods: bool, swap_jobs: bool) -> World:
    if not swap_pods and not swap_jobs:
        return _sorted_replicas(world)

    def pod_no(index: int | None) -> int | None:
        return index if index is None or index < 0 or not swap_pods else 1 - index

    def job_no(index: int | None) -> int | None:
        return index if index is None or index < 0 or not swap_jobs else 1 - index

    def cell(old: Cell | None) -> Cell | None:
        if old is None or not swap_jobs:
            return old
        return msgspec.structs.replace(
            old, intended=job_no(old.intended), executing=job_no(old.executing)
        )

    def rows(old: Rows) -> Rows:
        slots = tuple(map(cell, old.slots))
        return Rows(slots[::-1] if swap_pods else slots, old.jobs[::-1] if swap_jobs else old.jobs)

    def task(old: Task | None) -> Task | None:
        if old is None:
            return None
        kind, job, runner, flag = old.answer
        answer = (kind, job_no(job), pod_no(runner), flag) if kind else old.answer
        return msgspec.structs.replace(old, pod=pod_no(old.pod), answer=answer)

    pods = tuple(msgspec.structs.replace(pod, job=job_no(pod.job)) for pod in world.pods)
    hub = tuple(msgspec.structs.replace(job, runner=pod_no(job.runner)) for job in world.hub)
    hooks = tuple(sorted(Hook(h.kind, job_no(h.job), pod_no(h.runner)) for h in world.hooks))
    renamed = World(
        rows=rows(world.rows),
        before=None if world.before is None else rows(world.before),
        pods=pods[::-1] if swap_pods else pods,
        hub=hub[::-1] if swap_jobs else hub,
        replicas=tuple(map(task, world.replicas)),
        up=world.up,
        hooks=hooks,
        unheard=world.unheard[::-1] if swap_pods else world.unheard,
        returned_late=world.returned_late[::-1] if swap_jobs else world.returned_late,
        faults=world.faults,
    )
    return _sorted_replicas(renamed)


def _tidy(world: World) -> World:
    """Forget what can no longer matter, so that equal futures have equal names.

    Equal generations get equal small numbers. A webhook about a job that is over in every version of the rows can
    change nothing, nor can the name of the runner of an old incarnation.
    """
    slots, before = list(world.rows.slots), world.before
    old: list[Cell | None] = [None, None] if before is None else list(before.slots)
    tasks = list(world.replicas)
    for index in PODS:
        names: dict[int, int] = {}
        for cell in (slots[index], old[index]):
            if cell is not None:
                names.setdefault(cell.generation, len(names))
        slots[index] = _numbered(slots[index], names)
        old[index] = _numbered(old[index], names)
        for number, task in enumerate(tasks):
            if task is not None and task.pod == index:
                tasks[number] = msgspec.structs.replace(
                    task, generation=names.get(task.generation, STALE)
                )
    return msgspec.structs.replace(
        world,
        rows=Rows((slots[0], slots[1]), world.rows.jobs),
        before=None if before is None else Rows((old[0], old[1]), before.jobs),
        replicas=(tasks[0], tasks[1]),
        pods=tuple(_tidy_pod(pod) for pod in world.pods),
        hooks=tuple(hook for hook in world.hooks if not _is_old_news(world, hook)),
        hub=tuple(_tidy_hub(world, job) for job in world.hub),
    )


def _numbered(cell: Cell | None, names: dict[int, int]) -> Cell | None:
    if cell is None:
        return None
    number = names[cell.generation]
    return cell if number == cell.generation else msgspec.structs.replace(cell, generation=number)


def _tidy_pod(pod: Pod) -> Pod:
    if pod.guest is Guest.ABSENT and (pod.jit or pod.stamped or pod.terminating):
        return Pod(runner=pod.runner, job=pod.job)
    return pod


def _is_old_news(world: World, hook: Hook) -> bool:
    return hook.kind == "started" and all(
        (cell := rows.jobs[hook.job]) is not None and cell.state is JobState.DONE
        for rows in (world.rows, world.before or world.rows)
    )


def _tidy_hub(world: World, job: HubJob) -> HubJob:
    if job.status != "done" or job.runner is None:
        return job
    spent = all(
        (cell := rows.slots[job.runner]) is None
        or (cell.fence is Fence.DONE and cell.intended is None)
        for rows in (world.rows, world.before or world.rows)
    )
    return HubJob("done") if spent and world.pods[job.runner].runner is not Runner.BUSY else job
