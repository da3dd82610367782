"""Converts between the proof's cells and the machine's rows.

`Database.commit` builds the `View` that the store would load, calls `dispatch.machine.transition`,
and writes the decision back. Since cells are few, each distinct question is put to the machine once
and cached. A commit also ages the generations that tasks carry, and drops messages that can
change nothing any more.
"""

from runyard.dispatch.machine.changes import Context
from runyard.dispatch.machine.table import due
from runyard.dispatch.machine.transition import transition
from runyard.dispatch.machine.values import (
    CLAIMS,
    Fence,
    Headroom,
    Job,
    JobState,
    Slot,
    SlotState,
    View,
)
from runyard.sim.proof.events import TENANT, event, runner_name
from runyard.sim.proof.invariants import Broken, Cells, JobRows, Violation, check_rows
from runyard.sim.proof.state import (
    JOBS,
    NO_ROW,
    NOW,
    PODS,
    STALE,
    THEN,
    Cell,
    Hook,
    JobLane,
    JobRow,
    Lane,
    State,
    Task,
)

GENERATION = (
    10  # of every row when it is read; a task's is this one, the one before, or an older one
)
NUMBER = {NOW: GENERATION, THEN: GENERATION - 1, STALE: GENERATION - 2}
CLEARS = ("clear-deleted", "clear-absent")
ANSWERS = ("deleted", "busy", "absent", "blind", "warm-deleted", "warm-absent", "retire")
Effect = tuple[Cells, JobRows, tuple[bool, bool]]
Question = tuple[object, ...]


class Database:
    """Commits events to rows by calling the machine."""

    def __init__(
        self,
        ctx: Context,
        *,
        limit: int,
        may_lose: bool,
        budget: tuple[SlotState, ...] = CLAIMS,  # the states that count against it, as in SQL
        dropped: tuple[str, ...] = (*ANSWERS, *CLEARS),  # tasks that end when their slot changes
    ) -> None:
        self.ctx = ctx
        self.limit = limit
        self._may_lose = may_lose
        self._budget = budget
        self._dropped = dropped
        self._asked: dict[Question, Effect | None] = {}
        self._due: dict[tuple[Cell, bool], bool] = {}

    def commit(
        self,
        state: State,
        what: str,
        *,
        pod: int | None = None,
        job: int = -1,
        runner: int = -1,
        generation: int = NOW,
    ) -> State | None:
        """The state after the machine's decision, or None if it changed no row."""
        (first, second), (one, two) = state.lanes, state.jobs
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
        if what in {"offer", "adopt"} and state.jobs[job].late:
            raise Violation(Broken.OFFERED_NOT_QUEUED, step=_label(what, pod, job))
        if what in {"offer", "adopt"} and state.jobs[job].status == "held":
            raise Violation(Broken.OFFERED_UNAPPROVED, step=_label(what, pod, job))
        return self._written(state, effect, read=job if what == "queued-again" else -1)

    def due(self, lane: Lane) -> bool:
        """Whether the sweeper may ask about this slot now."""
        cell = lane.cell
        if cell is None:
            return False
        asked = (cell, lane.silent)
        if asked not in self._due:
            slot = to_slot(0, cell)
            settled = not lane.silent
            self._due[asked] = due(slot, overdue=True, settled=settled, rules=self.ctx.rules)
        return self._due[asked]

    # ------------------------------------------------------------------------------ calling the machine

    def _decide(self, cells: Cells, jobs: JobRows, asked: Question) -> Effect | None:
        what, pod, job, runner, generation = asked[:5]
        assert isinstance(what, str) and isinstance(job, int) and isinstance(runner, int)
        number = NUMBER.get(generation) if isinstance(generation, int) else None
        asked_event = event(what, pod=pod, job=job, runner=runner, generation=number)
        decision = transition(self._view(cells, jobs, pod, job), asked_event, self.ctx)
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
        step = _label(what, pod, job)
        # Without the requeue at the fence rows are untied at once; then search for the damage it does.
        tied = self.ctx.rules.requeue_at_fence
        check_rows(after[0], after[1], before=jobs, tied=tied, step=step)
        if what == "offer" and self._used(after[0]) > self.limit:
            raise Violation(Broken.CLAIMS_OVER_BUDGET, step=step)
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
            holder=None if rival is None or holder is None else to_slot(holder, rival),
            jobs=tuple(to_job(i, row) for i in JOBS if (row := jobs[i]) is not None),
            headroom=Headroom(vcpus=free, memory_gb=free),
        )

    def _used(self, cells: Cells) -> int:
        return sum(1 for cell in cells if cell is not None and cell.state in self._budget)

    # ------------------------------------------------------------------------------ writing its decision

    def _written(self, state: State, effect: Effect, *, read: int) -> State:
        cells, rows, bumped = effect
        undo = self._may_lose and state.left > 0
        lanes = tuple(_lane(state.lanes[i], cells[i], bumped=bumped[i], undo=undo) for i in PODS)
        jobs = tuple(_job(state.jobs[i], rows[i], fresh=i == read, undo=undo) for i in JOBS)
        tasks = state.tasks
        if tasks:
            aged = [self._aged(task, bumped, undo=undo) for task in tasks]
            tasks = tuple(sorted(task for task in aged if task is not None))
        after = State(
            (lanes[0], lanes[1]), (jobs[0], jobs[1]), tasks, state.hooks, undo, state.left
        )
        return tidy(after)

    def _aged(self, task: Task, bumped: tuple[bool, bool], *, undo: bool) -> Task | None:
        """The task after a commit. An answer that can no longer be written is dropped."""
        if task.pod < 0 or task.generation == NO_ROW:
            return task
        age = task.generation
        if age == THEN or (age == NOW and bumped[task.pod] and not undo):
            age = STALE
        elif age == NOW and bumped[task.pod]:
            age = THEN
        fenced = self.ctx.rules.generation_fences_writes
        if age == STALE and fenced and task.kind in self._dropped:
            return None
        if age == task.generation:
            return task
        return Task(task.kind, task.pod, age, task.mint, task.stamp, task.job)


def _label(what: str, pod: object, job: int) -> str:
    about = [f"job {job}"] * (job >= 0) + [f"Pod {pod}"] * (pod is not None)
    return f"commit: {what}, {', '.join(about)}"


def tidy(state: State) -> State:
    """Drops what can no longer matter, so that equal futures have equal names."""
    if state.hooks:
        news = tuple(hook for hook in state.hooks if not _is_old(state, hook))
        if len(news) != len(state.hooks):
            state = State(state.lanes, state.jobs, state.tasks, news, state.undo, state.left)
    for index in JOBS:
        job = state.jobs[index]
        if (
            job.status == "done"
            and job.runner is not None
            and _lane_settled(state.lanes[job.runner])
        ):
            new = JobLane(job.row, job.old, "done", None, job.late)
            jobs = (new, state.jobs[1]) if index == 0 else (state.jobs[0], new)
            state = State(state.lanes, jobs, state.tasks, state.hooks, state.undo, state.left)
    return state


def _is_old(state: State, hook: Hook) -> bool:
    """A start after the end, or an end that slot and job have recorded, in every version of the rows."""
    job = state.jobs[hook.job]
    if job.row is None or job.row.state is not JobState.DONE:
        return False
    if state.undo and (job.old is None or job.old.state is not JobState.DONE):
        return False
    return hook.kind == "started" or hook.runner < 0 or _lane_settled(state.lanes[hook.runner])


def _lane_settled(lane: Lane) -> bool:
    return _cell_settled(lane.cell) and _cell_settled(lane.old)


def _cell_settled(cell: Cell | None) -> bool:
    return cell is None or (cell.fence is Fence.DONE and cell.intended is None)


def _lane(lane: Lane, cell: Cell | None, *, bumped: bool, undo: bool) -> Lane:
    if cell is not None and cell.settled:
        cell = None  # at rest for ever: as good as no row
    if undo:
        return Lane(cell, lane.cell, not bumped, lane.pod, lane.silent)
    if cell == lane.cell and lane.old is None and not lane.same:
        return lane
    return Lane(cell, None, False, lane.pod, lane.silent)


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
