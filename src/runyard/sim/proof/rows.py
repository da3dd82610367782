"""Between the proof's cells and the machine's own rows.

`Database.commit` builds the `View` that the store would load, calls `dispatch.machine.transition`,
and writes the decision back. Since cells are few, each distinct question is put to the machine once
and remembered. A commit also ages the generations that tasks carry, and forgets news that can
change nothing any more.
"""

from runyard.dispatch.machine.changes import Context
from runyard.dispatch.machine.table import budget_states, due
from runyard.dispatch.machine.transition import transition
from runyard.dispatch.machine.values import Fence, Job, JobState, Room, Slot, View
from runyard.sim.proof.happenings import TENANT, happening, runner_name
from runyard.sim.proof.promises import Cells, JobRows, Violation, judge_rows
from runyard.sim.proof.world import (
    JOBS,
    NOBODY,
    NOW,
    PODS,
    STALE,
    THEN,
    Cell,
    Hook,
    JobLane,
    JobRow,
    Lane,
    Task,
    World,
)

GENERATION = (
    10  # of every row when it is read; a task's is this one, the one before, or an older one
)
NUMBER = {NOW: GENERATION, THEN: GENERATION - 1, STALE: GENERATION - 2}
ANSWERS = ("deleted", "busy", "absent", "blind", "retire")
Effect = tuple[Cells, JobRows, tuple[bool, bool]]
Question = tuple[object, ...]


class Database:
    """Commits happenings to rows by asking the machine."""

    def __init__(self, ctx: Context, *, limit: int, may_lose: bool) -> None:
        self.ctx = ctx
        self.limit = limit
        self._may_lose = may_lose
        self._budget = budget_states(ctx.rules)
        self._asked: dict[Question, Effect | None] = {}
        self._due: dict[tuple[Cell, bool], bool] = {}

    def commit(
        self,
        world: World,
        what: str,
        *,
        pod: int | None = None,
        job: int = -1,
        runner: int = -1,
        generation: int = NOW,
    ) -> World | None:
        """The world after the machine's answer, or None if it changed no row."""
        (first, second), (one, two) = world.lanes, world.jobs
        asked: Question = (
            what, pod, job, runner, generation, first.cell, second.cell, one.row, two.row,
        )  # fmt: skip
        if asked in self._asked:
            effect = self._asked[asked]
        else:
            effect = self._decide((first.cell, second.cell), (one.row, two.row), asked)
            self._asked[asked] = effect
        if effect is None:
            return None
        if what in {"offer", "adopt"} and world.jobs[job].late:
            promise = "a job was offered again although GitHub had it no longer queued"
            raise Violation(promise, step=_told(what, pod, job))
        if what in {"offer", "adopt"} and world.jobs[job].status == "held":
            promise = "a job was offered that nobody has approved"
            raise Violation(promise, step=_told(what, pod, job))
        return self._written(world, effect, read=job if what == "queued again" else -1)

    def due(self, lane: Lane) -> bool:
        """May the sweeper ask about this slot now?"""
        cell = lane.cell
        if cell is None:
            return False
        asked = (cell, lane.unheard)
        if asked not in self._due:
            slot = to_slot(0, cell)
            settled = not lane.unheard
            self._due[asked] = due(slot, overdue=True, settled=settled, rules=self.ctx.rules)
        return self._due[asked]

    # ------------------------------------------------------------------------------ the machine is asked

    def _decide(self, cells: Cells, jobs: JobRows, asked: Question) -> Effect | None:
        what, pod, job, runner, generation = asked[:5]
        assert isinstance(what, str) and isinstance(job, int) and isinstance(runner, int)
        number = NUMBER.get(generation) if isinstance(generation, int) else None
        event = happening(what, pod=pod, job=job, runner=runner, generation=number)
        decision = transition(self._view(cells, jobs, pod, job), event, self.ctx)
        new_cells, new_jobs, bumped = list(cells), list(jobs), [False, False]
        for change in decision.slots:
            index = int(change.slot.pod_uid[1:])
            new_cells[index] = to_cell(change.slot)
            bumped[index] = change.before is None or change.slot.generation != change.before
        for written in decision.jobs:
            row = JobRow(written.job.state, verified=written.job.verified)
            new_jobs[written.job.job_id] = row
        after: Effect = (
            (new_cells[0], new_cells[1]),
            (new_jobs[0], new_jobs[1]),
            (bumped[0], bumped[1]),
        )
        if after[:2] == (cells, jobs) and not any(bumped):
            return None
        step = _told(what, pod, job)
        # Without the requeue at the fence rows are untied at once; then look for the harm it does.
        tied = self.ctx.rules.requeue_at_fence
        judge_rows(after[0], after[1], before=jobs, tied=tied, step=step)
        if what == "offer" and self._used(after[0]) > self.limit:
            raise Violation("the tenant's claims exceed its budget", step=step)
        return after

    def _view(self, cells: Cells, jobs: JobRows, pod: object, job: int) -> View:
        slot = cells[pod] if isinstance(pod, int) else None
        holder = next(
            (i for i in PODS if i != pod and (cell := cells[i]) and cell.intended == job), None
        )
        rival = None if holder is None or job < 0 else cells[holder]
        free = self.limit - self._used(cells)
        return View(
            slot=None if slot is None or not isinstance(pod, int) else to_slot(pod, slot),
            rival=None if rival is None or holder is None else to_slot(holder, rival),
            jobs=tuple(to_job(i, row) for i in JOBS if (row := jobs[i]) is not None),
            room=Room(vcpus=free, memory_gb=free),
        )

    def _used(self, cells: Cells) -> int:
        return sum(1 for cell in cells if cell is not None and cell.state in self._budget)

    # ------------------------------------------------------------------------------ its answer is written

    def _written(self, world: World, effect: Effect, *, read: int) -> World:
        cells, rows, bumped = effect
        undo = self._may_lose and world.left > 0
        lanes = tuple(_lane(world.lanes[i], cells[i], bumped=bumped[i], undo=undo) for i in PODS)
        jobs = tuple(_job(world.jobs[i], rows[i], fresh=i == read, undo=undo) for i in JOBS)
        tasks = world.tasks
        if tasks:
            aged = [self._aged(task, bumped, undo=undo) for task in tasks]
            tasks = tuple(sorted(task for task in aged if task is not None))
        after = World(
            (lanes[0], lanes[1]), (jobs[0], jobs[1]), tasks, world.hooks, undo, world.left
        )
        return tidy(after)

    def _aged(self, task: Task, bumped: tuple[bool, bool], *, undo: bool) -> Task | None:
        """The task after a commit. Without a chance to write, an answer is as good as dropped."""
        if task.pod < 0 or task.generation == NOBODY:
            return task
        age = task.generation
        if age == THEN or (age == NOW and bumped[task.pod] and not undo):
            age = STALE
        elif age == NOW and bumped[task.pod]:
            age = THEN
        fenced = self.ctx.rules.generation_fences_writes
        if age == STALE and fenced and task.kind in ANSWERS:
            return None
        if age == task.generation:
            return task
        return Task(task.kind, task.pod, age, task.mint, task.stamp, task.job)


def _told(what: str, pod: object, job: int) -> str:
    about = [f"job {job}"] * (job >= 0) + [f"Pod {pod}"] * (pod is not None)
    return f"commit: {what}, {', '.join(about)}"


def tidy(world: World) -> World:
    """Forget what can no longer matter, so that equal futures have equal names."""
    if world.hooks:
        news = tuple(hook for hook in world.hooks if not _is_old(world, hook))
        if len(news) != len(world.hooks):
            world = World(world.lanes, world.jobs, world.tasks, news, world.undo, world.left)
    for index in JOBS:
        job = world.jobs[index]
        if job.status == "done" and job.runner is not None and _spent(world.lanes[job.runner]):
            new = JobLane(job.row, job.old, "done", None, job.late)
            jobs = (new, world.jobs[1]) if index == 0 else (world.jobs[0], new)
            world = World(world.lanes, jobs, world.tasks, world.hooks, world.undo, world.left)
    return world


def _is_old(world: World, hook: Hook) -> bool:
    """A start after the end, or an end that slot and job have taken note of, in every version of the rows."""
    job = world.jobs[hook.job]
    if job.row is None or job.row.state is not JobState.DONE:
        return False
    if world.undo and (job.old is None or job.old.state is not JobState.DONE):
        return False
    return hook.kind == "started" or hook.runner < 0 or _spent(world.lanes[hook.runner])


def _spent(lane: Lane) -> bool:
    return _took_note(lane.cell) and _took_note(lane.old)


def _took_note(cell: Cell | None) -> bool:
    return cell is None or (cell.fence is Fence.DONE and cell.intended is None)


def _lane(lane: Lane, cell: Cell | None, *, bumped: bool, undo: bool) -> Lane:
    if cell is not None and cell.settled:
        cell = None  # at rest for ever: as good as no row
    if undo:
        return Lane(cell, lane.cell, not bumped, lane.pod, lane.unheard)
    if cell == lane.cell and lane.old is None and not lane.same:
        return lane
    return Lane(cell, None, False, lane.pod, lane.unheard)


def _job(job: JobLane, row: JobRow | None, *, fresh: bool, undo: bool) -> JobLane:
    old = job.row if undo else None
    late = job.late
    if row != job.row and row is not None and row.state is JobState.QUEUED:
        given_back = job.row is not None and job.row.state is JobState.BOUND
        late = False if fresh else (job.status != "queued" if given_back else late)
    return JobLane(row, old, job.status, job.runner, late)


def to_slot(pod: int, cell: Cell) -> Slot:
    """The machine's row for a cell."""
    return Slot(
        pod_uid=runner_name(pod),
        pod_name=runner_name(pod),
        pool="pool",
        generation=GENERATION,
        state=cell.state,
        tenant=TENANT if cell.known else "",
        vcpus=1,
        memory_gb=1,
        intended_job=cell.intended,
        executing_job=cell.executing,
        runner_name=runner_name(pod) if cell.known else "",
        jit=b"jit" if cell.jit else None,
        fence=cell.fence,
    )


def to_cell(slot: Slot) -> Cell:
    """The cell for a row of the machine."""
    return Cell(
        state=slot.state,
        intended=slot.intended_job,
        executing=slot.executing_job,
        fence=slot.fence,
        jit=slot.jit is not None,
        known=bool(slot.runner_name),
    )


def to_job(index: int, row: JobRow) -> Job:
    """The machine's row for a job's cell."""
    return Job(job_id=index, tenant=TENANT, state=row.state, verified=row.verified)
