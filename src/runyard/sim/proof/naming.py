"""Short names for states, equal for states that differ only by the numbering of Pods or jobs.

Each component of a state (a lane, a job, the tasks, the webhooks) is numbered when it first occurs,
together with its images when Pods or jobs are swapped. A state's name is the smallest of the four
tuples of numbers, packed into 25 bytes; two states with the same name have the same futures. A
lane is checked once, when it gets its number.
"""

from collections.abc import Callable, Hashable
from struct import Struct
from typing import Generic, TypeVar

from runyard.sim.proof.invariants import Broken, Violation, verdict
from runyard.sim.proof.state import Cell, Hook, JobLane, Lane, Pod, State, Task

Value = TypeVar("Value", bound=Hashable)
_LAYOUT = Struct("<6IB")


class Numbers(Generic[Value]):
    """Numbers values, with the number of each value's mirror images."""

    def __init__(self, *mirrors: Callable[[Value], Value]) -> None:
        self._mirrors = mirrors
        self._known: dict[Value, int] = {}
        self.values: list[Value] = []
        self.images: list[tuple[int, ...]] = []

    def number(self, value: Value) -> int:
        """The number of a value; a new value gets the next one."""
        known = self._known.get(value)
        if known is not None:
            return known
        number = self._enter(value)
        images = [mirror(value) for mirror in self._mirrors]
        self.images[number] = tuple(self._known.get(image, -1) for image in images)
        if -1 in self.images[number]:
            self.images[number] = tuple(self.number(image) for image in images)
        return number

    def _enter(self, value: Value) -> int:
        number = len(self.values)
        self._known[value] = number
        self.values.append(value)
        self.images.append(())
        return number


class Namer:
    """Names states and finds them again by their names."""

    def __init__(self) -> None:
        self._lanes: Numbers[Lane] = Numbers(_lane_jobs)
        self._jobs: Numbers[JobLane] = Numbers(_job_pods)
        self._tasks: Numbers[tuple[Task, ...]] = Numbers(
            lambda tasks: _tasks(tasks, pods=True, jobs=False),
            lambda tasks: _tasks(tasks, pods=False, jobs=True),
            lambda tasks: _tasks(tasks, pods=True, jobs=True),
        )
        self._hooks: Numbers[tuple[Hook, ...]] = Numbers(
            lambda hooks: _hooks(hooks, pods=True, jobs=False),
            lambda hooks: _hooks(hooks, pods=False, jobs=True),
            lambda hooks: _hooks(hooks, pods=True, jobs=True),
        )
        self._verdicts: list[Broken | None] = []  # by a lane's number

    def name(self, state: State) -> bytes:
        """The state's name. Raises `Violation` if a lane breaks an invariant."""
        lane_no, job_no = self._lanes.number, self._jobs.number
        l0, l1 = lane_no(state.lanes[0]), lane_no(state.lanes[1])
        if len(self._lanes.values) > len(self._verdicts):
            self._verdicts.extend(map(verdict, self._lanes.values[len(self._verdicts) :]))
        if broken := self._verdicts[l0] or self._verdicts[l1]:
            raise Violation(broken)
        j0, j1 = job_no(state.jobs[0]), job_no(state.jobs[1])
        t, h = self._tasks.number(state.tasks), self._hooks.number(state.hooks)
        m0, m1 = self._lanes.images[l0][0], self._lanes.images[l1][0]
        n0, n1 = self._jobs.images[j0][0], self._jobs.images[j1][0]
        tp, tj, tb = self._tasks.images[t]
        hp, hj, hb = self._hooks.images[h]
        best = min(
            (l0, l1, j0, j1, t, h),
            (l1, l0, n0, n1, tp, hp),
            (m0, m1, j1, j0, tj, hj),
            (m1, m0, n1, n0, tb, hb),
        )
        return _LAYOUT.pack(*best, state.left * 2 + state.undo)

    def state(self, name: bytes) -> State:
        """The state of that name."""
        l0, l1, j0, j1, t, h, rest = _LAYOUT.unpack(name)
        lanes, jobs = self._lanes.values, self._jobs.values
        return State(
            (lanes[l0], lanes[l1]),
            (jobs[j0], jobs[j1]),
            self._tasks.values[t],
            self._hooks.values[h],
            bool(rest & 1),
            rest >> 1,
        )


def _other(number: int | None) -> int | None:
    return number if number is None or number < 0 else 1 - number


def _swap(number: int, *, really: bool) -> int:
    return 1 - number if really and number >= 0 else number


def _cell(cell: Cell | None) -> Cell | None:
    if cell is None:
        return None
    return Cell(
        cell.state,
        _other(cell.intended),
        _other(cell.executing),
        cell.fence,
        cell.jit,
        cell.known,
    )


def _lane_jobs(lane: Lane) -> Lane:
    pod = lane.pod
    renamed = Pod(
        pod.guest, pod.stamped, pod.terminating, pod.jit, pod.runner, _other(pod.job), pod.void
    )
    return Lane(_cell(lane.cell), _cell(lane.old), lane.same, renamed, lane.silent)


def _job_pods(job: JobLane) -> JobLane:
    return JobLane(job.row, job.old, job.status, _other(job.runner), job.late)


def _tasks(tasks: tuple[Task, ...], *, pods: bool, jobs: bool) -> tuple[Task, ...]:
    renamed = [
        Task(
            task.kind,
            _swap(task.pod, really=pods),
            task.generation,
            task.mint,
            task.stamp,
            _swap(task.job, really=jobs),
        )
        for task in tasks
    ]
    return tuple(sorted(renamed))


def _hooks(hooks: tuple[Hook, ...], *, pods: bool, jobs: bool) -> tuple[Hook, ...]:
    renamed = [
        Hook(hook.kind, _swap(hook.job, really=jobs), _swap(hook.runner, really=pods))
        for hook in hooks
    ]
    return tuple(sorted(renamed))
