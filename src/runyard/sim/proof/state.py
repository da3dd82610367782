"""The state space in which the dispatch machine is proved: jobs, Pod positions, replicas, GitHub.

A `State` is a small immutable value: for each Pod position a `Lane` (its row, what the Pod does,
what GitHub knows of its runner), for each job a `JobLane` (its row, what GitHub knows of it), what
the replicas have under way, and which webhooks are in flight. While a commit may still be
lost, lanes also keep the row as it was before the last commit. Rows are kept as short *cells*;
`rows.py` turns them into the machine's own values and back, so that every change of a row is made
by `dispatch.machine.transition` and by nothing else.

A generation matters only by its equality with others, so none is stored: a task carries `NOW` (the
row is as it was when the task began), `THEN` (so it was before the last commit, which may be lost)
or `STALE`, or `NO_ROW` (there was no row).
"""

from enum import StrEnum

import msgspec

from runyard.dispatch.machine.values import CLAIMS, Fence, JobState, SlotState

PODS = (0, 1)
JOBS = (0, 1)
NOW, THEN, STALE, NO_ROW = 0, 1, 2, 3


class Runner(StrEnum):
    """What GitHub knows of the runner of one Pod incarnation."""

    NONE = "none"
    REGISTERED = "registered"  # minted, has not connected yet
    ONLINE = "online"  # as far as GitHub has noticed
    BUSY = "busy"


class Guest(StrEnum):
    """What the Pod of one position is doing."""

    NEVER = "never"  # this model has no such position
    ABSENT = "absent"  # it has ended, or the API answers 404
    POLLING = "polling"
    ARMED = "armed"  # has its JIT, has not connected yet
    CONNECTED = "connected"
    HUNG = "hung"  # alive but silent, for ever
    LOST = "lost"  # the API answers 404, its machine still runs


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
        """Whether the row holds a reservation."""
        return self.state in CLAIMS

    @property
    def settled(self) -> bool:
        """Whether it is closed without a fence that is due."""
        return (
            self.state is SlotState.CLOSED and self.fence is not Fence.DUE and self.intended is None
        )


class Pod(msgspec.Struct, frozen=True, cache_hash=True):
    """The Pod of one position, and its runner as GitHub knows it."""

    guest: Guest = Guest.ABSENT
    stamped: bool = False
    terminating: bool = False
    jit: bool = False  # a JIT was delivered to it
    runner: Runner = Runner.NONE
    job: int | None = None  # what its runner executes
    void: bool = False  # GitHub has deleted the registration of its JIT, or of the row's

    @property
    def able(self) -> bool:
        """Whether it could execute a job, now or later, without anything more from us."""
        return (
            self.jit
            and not self.void
            and self.guest in (Guest.ARMED, Guest.CONNECTED, Guest.LOST)
            and self.runner is not Runner.NONE
        )

    @property
    def polls(self) -> bool:
        """Whether it will poll in time."""
        return self.guest is Guest.POLLING and not self.terminating


class Lane(msgspec.Struct, frozen=True, cache_hash=True):
    """One Pod position: its row, the row before the last commit, the Pod."""

    cell: Cell | None = None
    old: Cell | None = None
    same: bool = False  # `old` has the same generation as `cell`
    pod: Pod = Pod()
    silent: bool = False  # has had no time to poll since the service came back


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
    late: bool = False  # we requeued it when GitHub had it no longer queued


class Task(msgspec.Struct, frozen=True, cache_hash=True, order=True):
    """What a replica has under way between two of its effects, or a request without an owner."""

    # mint, late, unstamp, failed, drop, clear-deleted, clear-absent, retire;
    # answers: deleted, busy, absent, blind, warm-deleted, warm-absent, queued
    kind: str
    pod: int = -1
    generation: int = NOW
    mint: str = ""  # todo, ok, gone (minted, and deleted since), failed, unknown, late
    stamp: str = ""  # todo, ok, failed, unknown
    job: int = -1


class Hook(msgspec.Struct, frozen=True, cache_hash=True, order=True):
    """A webhook in flight."""

    kind: str  # started, ended
    job: int
    runner: int  # -1: never ran


class State(msgspec.Struct, frozen=True):
    """One state of the model."""

    lanes: tuple[Lane, Lane]
    jobs: tuple[JobLane, JobLane]
    tasks: tuple[Task, ...] = ()
    hooks: tuple[Hook, ...] = ()
    undo: bool = False  # the last commit may still be lost
    left: int = 0  # disturbances that may still happen


def start(*, jobs: int, pods: int, disturbances: int, held: bool = False) -> State:
    """The initial state: that many jobs are at GitHub, that many Pods may be created.

    `held`: the first job awaits an approval.
    """
    over = JobLane(row=JobRow(JobState.DONE, verified=False), status="done")
    never = Lane(pod=Pod(guest=Guest.NEVER))
    return State(
        lanes=(Lane(), Lane() if pods > 1 else never),
        jobs=(JobLane(status="held" if held else "queued"), JobLane() if jobs > 1 else over),
        left=disturbances,
    )


def with_lane(state: State, index: int, lane: Lane) -> State:
    """The state with one Pod position replaced."""
    lanes = (lane, state.lanes[1]) if index == 0 else (state.lanes[0], lane)
    return State(lanes, state.jobs, state.tasks, state.hooks, state.undo, state.left)


def with_pod(state: State, index: int, pod: Pod) -> State:
    """The state with one Pod replaced."""
    lane = state.lanes[index]
    return with_lane(state, index, Lane(lane.cell, lane.old, lane.same, pod, lane.silent))


def with_job(state: State, index: int, *, status: str, runner: int | None) -> State:
    """The state with another status of a job at GitHub."""
    job = state.jobs[index]
    new = JobLane(job.row, job.old, status, runner, job.late)
    jobs = (new, state.jobs[1]) if index == 0 else (state.jobs[0], new)
    return State(state.lanes, jobs, state.tasks, state.hooks, state.undo, state.left)


def with_task(state: State, old: Task | None, new: Task | None) -> State:
    """The state with one task started, continued, or ended."""
    tasks = list(state.tasks)
    if old is not None:
        tasks.remove(old)
    if new is not None:
        tasks.append(new)
        tasks.sort()
    return State(state.lanes, state.jobs, tuple(tasks), state.hooks, state.undo, state.left)


def with_hook(state: State, hook: Hook) -> State:
    """The state with one more webhook in flight."""
    hooks = tuple(sorted((*state.hooks, hook)))
    return State(state.lanes, state.jobs, state.tasks, hooks, state.undo, state.left)


def without_hook(state: State, hook: Hook) -> State:
    """The state with one webhook less in flight."""
    at = state.hooks.index(hook)
    hooks = state.hooks[:at] + state.hooks[at + 1 :]
    return State(state.lanes, state.jobs, state.tasks, hooks, state.undo, state.left)


def polled(state: State, index: int) -> State:
    """The state in which this Pod has had time to poll since the service came back."""
    lane = state.lanes[index]
    if not lane.silent:
        return state
    return with_lane(state, index, Lane(lane.cell, lane.old, lane.same, lane.pod))


def dead(pod: Pod) -> Pod:
    """The Pod after its end; GitHub notices later."""
    return Pod(runner=pod.runner, job=pod.job)
