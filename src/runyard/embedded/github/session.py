"""A runner that is connected to the practice GitHub.

This is the side of the runner program: it waits for its one job, runs it, reports the end. A session ends
when its job has ended, when its registration is deleted, or when the machine under it vanishes.
"""

import asyncio
from typing import Protocol

from runyard.embedded.github.model import Assignment, Job, Runner


class _World(Protocol):
    def finish(self, runner: Runner, conclusion: str) -> bool: ...

    def vanish(self, runner: Runner) -> None: ...


class RunnerSession:
    """One connection of one ephemeral runner; made by `connect`."""

    def __init__(self, world: _World, runner: Runner) -> None:
        self._world = world
        self._runner = runner
        self._changed = asyncio.Event()
        self._cancelled = asyncio.Event()
        self.assignment: Assignment | None = None
        self.over = False

    @property
    def runner_id(self) -> int:
        """The registration's id."""
        return self._runner.id

    @property
    def runner_name(self) -> str:
        """The registration's name."""
        return self._runner.name

    async def next_job(self) -> Assignment | None:
        """Wait for the one job; `None` when the session is over before any came."""
        await self._changed.wait()
        return self.assignment

    def finish(self, conclusion: str) -> bool:
        """Report the job's end. `False` when GitHub no longer listens: the runner was given up."""
        return self._world.finish(self._runner, conclusion)

    def vanish(self) -> None:
        """The machine is gone. May be called at any time, also twice."""
        self._world.vanish(self._runner)

    def give(self, job: Job) -> None:
        """GitHub's side: here is your job."""
        self.assignment = Assignment(
            job_id=job.id,
            repo=job.repo.full_name,
            duration=job.duration,
            cancelled=self._cancelled,
        )
        self._changed.set()

    def ask_to_cancel(self) -> None:
        """GitHub's side: somebody cancelled the job."""
        self._cancelled.set()

    def end(self) -> None:
        """GitHub's side: this session is over."""
        self.over = True
        self._changed.set()
