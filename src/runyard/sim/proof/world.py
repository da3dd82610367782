"""The world in which the dispatch machine is proved: jobs, Pod positions, replicas, GitHub.

A `World` is a small immutable value: for each Pod position a `Lane` (its row, what the Pod does,
what GitHub knows of its runner), for each job a `JobLane` (its row, what GitHub knows of it), what
the replicas have under way, and which webhooks are still on their way. While a commit may still be
lost, lanes also keep the row as it was before the last commit. Rows are kept as short *cells*;
`rows.py` turns them into the machine's own values and back, so that every change of a row is made
by `dispatch.machine.transition` and by nothing else.

A generation matters only by its equality with others, so none is stored: a task carries `NOW` (the
row is as it was when the task began), `THEN` (so it was before the last commit, which may be lost)
or `STALE`, or `NOBODY` (there was no row).
"""

from enum import StrEnum

import msgspec

from runyard.dispatch.machine.values import CLAIMS, Fence, JobState, SlotState

PODS = (0, 1)
JOBS = (0, 1)
NOW, THEN, STALE, NOBODY = 0, 1, 2, 3


class Runner(StrEnum):
    """What GitHub knows of the runner of one Pod incarnation."""

    NONE = "none"
    REGISTERED = "registered"  # minted, has not connected yet
    ONLINE = "online"  # as far as GitHub has noticed
    BUSY = "busy"


class Guest(StrEnum):
    """What the Pod of one position is doing."""

    NEVER = "never"  # this world has no such position
    ABSENT = "absent"  # it has ended, or the API answers 404
    POLLING = "polling"
    ARMED = "armed"  # has its JIT, has not connected yet
    CONNECTED = "connected"
    HUNG = "hung"  # alive, silent, for ever
    LOST = "lost"  # the API answers 404, the machine behind it lives on


ALIVE = (Guest.POLLING, Guest.ARMED, Guest.CONNECTED, Guest.HUNG)


class Cell(msgspec.Struct, frozen=True, cache_hash=True):
    """A slot's row."""

    state: SlotState
    intended: int | None = None
    executing: int | None = None
    fence: Fence = Fence.NONE
    jit: bool = False
    known: bool = False  # a runner name was written

    @property
    def claims(self) -> bool:
        """Does the row hold a reservation?"""
        return self.state in CLAIMS

    @property
    def settled(self) -> bool:
        """Closed, and nothing about it is open any more."""
        return (
            self.state is SlotState.CLOSED and self.fence is not Fence.DUE and self.intended is None
        )


class Pod(msgspec.Struct, frozen=True, cache_hash=True):
    """The Pod of one position, and its runner as GitHub sees it."""

    guest: Guest = Guest.ABSENT
    stamped: bool = False
    terminating: bool = False
    jit: bool = False  # a JIT was delivered to it
    runner: Runner = Runner.NONE
    job: int | None = None  # what its runner executes
    void: bool = False  # GitHub has deleted the registration that its JIT, or the row's, speaks of

    @property
    def able(self) -> bool:
        """Could it execute a job, now or later, without anything more from us?"""
        return (
            self.jit
            and not self.void
            and self.guest in (Guest.ARMED, Guest.CONNECTED, Guest.LOST)
            and self.runner is not Runner.NONE
        )

    @property
    def speaks(self) -> bool:
        """Will it poll if it gets the time?"""
        return self.guest is Guest.POLLING and not self.terminating


class Lane(msgspec.Struct, frozen=True, cache_hash=True):
    """One Pod position: its row, the row before the last commit, the Pod."""

    cell: Cell | None = None
    old: Cell | None = None
    same: bool = False  # `old` has the same generation as `cell`
    pod: Pod = Pod()
    unheard: bool = False  # no chance to speak since the service came back


class JobRow(msgspec.Struct, frozen=True, cache_hash=True):
    """A job's row."""

    state: JobState
    verified: bool


class JobLane(msgspec.Struct, frozen=True, cache_hash=True):
    """One job: its row, the row before the last commit, and the job at GitHub."""

    row: JobRow | None = None
    old: JobRow | None = None
    status: str = "queued"  # at GitHub: held (for an approval), queued, running, done
    runner: int | None = None
    late: bool = False  # we gave it back when GitHub had it no longer queued


class Task(msgspec.Struct, frozen=True, cache_hash=True, order=True):
    """What a replica has under way between two of its effects, or a request without an owner."""

    kind: str  # mint, late, unstamp, failed, drop, retire; answers: deleted, busy, absent, blind, queued
    pod: int = -1
    generation: int = NOW
    mint: str = ""  # todo, ok, gone (minted, and deleted since), failed, unknown, late
    stamp: str = ""  # todo, ok, failed, unknown
    job: int = -1


class Hook(msgspec.Struct, frozen=True, cache_hash=True, order=True):
    """A webhook on its way."""

    kind: str  # started, ended
    job: int
    runner: int  # -1: never ran


class World(msgspec.Struct, frozen=True):
    """Everything."""

    lanes: tuple[Lane, Lane]
    jobs: tuple[JobLane, JobLane]
    tasks: tuple[Task, ...] = ()
    hooks: tuple[Hook, ...] = ()
    undo: bool = False  # the last commit may still be lost
    left: int = 0  # disturbances that may still happen


def start(*, jobs: int, pods: int, disturbances: int, held: bool = False) -> World:
    """Nothing has happened yet: that many jobs are at GitHub, that many Pods may be created.

    `held`: the first job awaits an approval.
    """
    over = JobLane(row=JobRow(JobState.DONE, verified=False), status="done")
    never = Lane(pod=Pod(guest=Guest.NEVER))
    return World(
        lanes=(Lane(), Lane() if pods > 1 else never),
        jobs=(JobLane(status="held" if held else "queued"), JobLane() if jobs > 1 else over),
        left=disturbances,
    )


def with_lane(world: World, index: int, lane: Lane) -> World:
    """The world with one Pod position exchanged."""
    lanes = (lane, world.lanes[1]) if index == 0 else (world.lanes[0], lane)
    return World(lanes, world.jobs, world.tasks, world.hooks, world.undo, world.left)


def with_pod(world: World, index: int, pod: Pod) -> World:
    """The world with one Pod exchanged."""
    lane = world.lanes[index]
    return with_lane(world, index, Lane(lane.cell, lane.old, lane.same, pod, lane.unheard))


def with_job(world: World, index: int, *, status: str, runner: int | None) -> World:
    """The world with another status of a job at GitHub."""
    job = world.jobs[index]
    new = JobLane(job.row, job.old, status, runner, job.late)
    jobs = (new, world.jobs[1]) if index == 0 else (world.jobs[0], new)
    return World(world.lanes, jobs, world.tasks, world.hooks, world.undo, world.left)


def with_task(world: World, old: Task | None, new: Task | None) -> World:
    """The world with one task begun, gone on, or ended."""
    tasks = list(world.tasks)
    if old is not None:
        tasks.remove(old)
    if new is not None:
        tasks.append(new)
        tasks.sort()
    return World(world.lanes, world.jobs, tuple(tasks), world.hooks, world.undo, world.left)


def with_hook(world: World, hook: Hook) -> World:
    """The world with one webhook more on its way."""
    hooks = tuple(sorted((*world.hooks, hook)))
    return World(world.lanes, world.jobs, world.tasks, hooks, world.undo, world.left)


def without_hook(world: World, hook: Hook) -> World:
    """The world with one webhook less on its way."""
    at = world.hooks.index(hook)
    hooks = world.hooks[:at] + world.hooks[at + 1 :]
    return World(world.lanes, world.jobs, world.tasks, hooks, world.undo, world.left)


def heard(world: World, index: int) -> World:
    """The world in which this Pod has had its chance to speak since the service came back."""
    lane = world.lanes[index]
    if not lane.unheard:
        return world
    return with_lane(world, index, Lane(lane.cell, lane.old, lane.same, lane.pod))


def dead(pod: Pod) -> Pod:
    """The Pod and whatever ran in it are gone; GitHub notices later."""
    return Pod(runner=pod.runner, job=pod.job)
