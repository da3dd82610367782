"""Models a failover of the database that loses its last commit.

What happened outside the database has happened. No generation is ever issued twice, but the row has its earlier one
again, so a late answer to a question about it would be accepted as timely. Therefore what was asked before a
failover is not committed after it.
"""

from runyard.sim.proof.model import Model
from runyard.sim.proof.rows import ANSWERS, tidy
from runyard.sim.proof.state import NO_ROW, NOW, STALE, THEN, JobLane, Lane, State, Task


def lose_commit(model: Model, state: State) -> State:
    """The rows as they were before the last commit."""
    lanes = tuple(Lane(lane.old, None, False, lane.pod, lane.silent) for lane in state.lanes)
    jobs = tuple(JobLane(job.old, None, job.status, job.runner, job.late) for job in state.jobs)
    survive = model.settings.answers_survive_failover
    aged = (_survives(state, task) if survive else _is_void(task) for task in state.tasks)
    tasks = tuple(sorted(task for task in aged if task is not None))
    return State((lanes[0], lanes[1]), (jobs[0], jobs[1]), tasks, state.hooks, False, state.left)


def drop_old_rows(state: State) -> State:
    """From now on no commit can be lost: drops the older rows."""
    if not state.undo:
        return state
    lanes = tuple(Lane(lane.cell, None, False, lane.pod, lane.silent) for lane in state.lanes)
    jobs = tuple(JobLane(job.row, None, job.status, job.runner, job.late) for job in state.jobs)
    tasks = tuple(
        sorted(_aged(task, STALE) if task.generation == THEN else task for task in state.tasks)
    )
    after = State((lanes[0], lanes[1]), (jobs[0], jobs[1]), tasks, state.hooks, False, state.left)
    return tidy(after)


def _is_void(task: Task) -> Task | None:
    """An answer is dropped; a task with effects still to come continues, and is refused when it commits."""
    if task.kind in ANSWERS or task.kind == "queued":
        return None
    return _aged(task, STALE)


def _survives(state: State, task: Task) -> Task:
    if task.pod < 0 or task.generation == NO_ROW or state.lanes[task.pod].same:
        return task
    return _aged(task, NOW if task.generation == THEN else STALE)


def _aged(task: Task, generation: int) -> Task:
    return Task(task.kind, task.pod, generation, task.mint, task.stamp, task.job)
