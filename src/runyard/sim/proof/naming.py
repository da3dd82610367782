"""Short names for worlds, equal for worlds that differ only by the numbering of Pods or jobs.

Each part of a world (a lane, a job, the tasks, the webhooks) is numbered when it is first met,
together with what becomes of it when Pods or jobs change places. A world's name is the smallest of
the four tuples of numbers, packed into 25 bytes; two worlds with the same name have the same
futures. A lane is judged once, when it gets its number.
"""

from collections.abc import Callable, Hashable
from struct import Struct
from typing import Generic, TypeVar

from runyard.sim.proof.promises import Violation, verdict
from runyard.sim.proof.world import Cell, Hook, JobLane, Lane, Pod, Task, World

Part = TypeVar("Part", bound=Hashable)
_LAYOUT = Struct("<6IB")


class Numbers(Generic[Part]):
    """Numbers parts, and knows the number of each part's mirror images."""

    def __init__(self, *mirrors: Callable[[Part], Part]) -> None:
        self._mirrors = mirrors
        self._known: dict[Part, int] = {}
        self.parts: list[Part] = []
        self.images: list[tuple[int, ...]] = []

    def number(self, part: Part) -> int:
        """The number of a part; a new part gets the next one."""
        known = self._known.get(part)
        if known is not None:
            return known
        number = self._enter(part)
        images = [mirror(part) for mirror in self._mirrors]
        self.images[number] = tuple(self._known.get(image, -1) for image in images)
        if -1 in self.images[number]:
            self.images[number] = tuple(self.number(image) for image in images)
        return number

    def _enter(self, part: Part) -> int:
        number = len(self.parts)
        self._known[part] = number
        self.parts.append(part)
        self.images.append(())
        return number


class Namer:
    """Names worlds and finds them again by their names."""

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
        self._verdicts: list[str] = []  # by a lane's number

    def name(self, world: World) -> bytes:
        """The world's name. Raises `Violation` if a lane breaks a promise."""
        lane_no, job_no = self._lanes.number, self._jobs.number
        l0, l1 = lane_no(world.lanes[0]), lane_no(world.lanes[1])
        if len(self._lanes.parts) > len(self._verdicts):
            self._verdicts.extend(map(verdict, self._lanes.parts[len(self._verdicts) :]))
        if self._verdicts[l0] or self._verdicts[l1]:
            raise Violation(self._verdicts[l0] or self._verdicts[l1])
        j0, j1 = job_no(world.jobs[0]), job_no(world.jobs[1])
        t, h = self._tasks.number(world.tasks), self._hooks.number(world.hooks)
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
        return _LAYOUT.pack(*best, world.left * 2 + world.undo)

    def world(self, name: bytes) -> World:
        """The world of that name."""
        l0, l1, j0, j1, t, h, rest = _LAYOUT.unpack(name)
        lanes, jobs = self._lanes.parts, self._jobs.parts
        return World(
            (lanes[l0], lanes[l1]),
            (jobs[j0], jobs[j1]),
            self._tasks.parts[t],
            self._hooks.parts[h],
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
    return Lane(_cell(lane.cell), _cell(lane.old), lane.same, renamed, lane.unheard)


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
