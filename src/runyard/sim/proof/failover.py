"""The database fails over and has lost its last commit.

What happened outside the database has happened. No generation is ever given away twice, but the
row has its earlier one again, so an answer that was asked for it and had come too late would be
taken for a timely one. Therefore what was asked before a failover is not committed after it.
"""

from runyard.sim.proof.rows import ANSWERS, tidy
from runyard.sim.proof.scene import Scene
from runyard.sim.proof.world import NOBODY, NOW, STALE, THEN, JobLane, Lane, Task, World


def lose_commit(scene: Scene, world: World) -> World:
    """The rows as they were before the last commit."""
    lanes = tuple(Lane(lane.old, None, False, lane.pod, lane.unheard) for lane in world.lanes)
    jobs = tuple(JobLane(job.old, None, job.status, job.runner, job.late) for job in world.jobs)
    survive = scene.settings.answers_survive_failover
    aged = (_survives(world, task) if survive else _is_void(task) for task in world.tasks)
    tasks = tuple(sorted(task for task in aged if task is not None))
    return World((lanes[0], lanes[1]), (jobs[0], jobs[1]), tasks, world.hooks, False, world.left)


def keep_commits(world: World) -> World:
    """From now on no commit can be lost: forget the older rows."""
    if not world.undo:
        return world
    lanes = tuple(Lane(lane.cell, None, False, lane.pod, lane.unheard) for lane in world.lanes)
    jobs = tuple(JobLane(job.row, None, job.status, job.runner, job.late) for job in world.jobs)
    tasks = tuple(
        sorted(_aged(task, STALE) if task.generation == THEN else task for task in world.tasks)
    )
    after = World((lanes[0], lanes[1]), (jobs[0], jobs[1]), tasks, world.hooks, False, world.left)
    return tidy(after)


def _is_void(task: Task) -> Task | None:
    """An answer is dropped; what has effects still to come goes on, and is refused when it commits."""
    if task.kind in ANSWERS or task.kind == "queued":
        return None
    return _aged(task, STALE)


def _survives(world: World, task: Task) -> Task:
    if task.pod < 0 or task.generation == NOBODY or world.lanes[task.pod].same:
        return task
    return _aged(task, NOW if task.generation == THEN else STALE)


def _aged(task: Task, generation: int) -> Task:
    return Task(task.kind, task.pod, generation, task.mint, task.stamp, task.job)
