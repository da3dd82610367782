"""A runner that is connected to the practice GitHub.

This is the side of the runner program: it waits for its one job, runs it, reports the end. A session ends
when its job has ended, when its registration is deleted, or when the machine under it vanishes.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from runyard.embedded.github.model import Assignment, Job, Runner


class _World(Protocol):
    def finish(self, runner: Runner, conclusion: str) -> bool: ...

    def vanish(self, runner: Runner) -> None: ...

    @property
    def settled(self) -> Callable[[], object]: ...


class RunnerSession:
    """One connection of one ephemeral runner; made by `connect`."""

    def __init__(self, world: _World, runner: Runner) -> None:
        self._world = world
        self._runner = runner
        self._changed = asyncio.Event()
        self._cancelled = asyncio.Event()
        self._watchers: list[asyncio.Event] = []
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
        listened = self._world.finish(self._runner, conclusion)
        self._world.settled()
        return listened

    def vanish(self) -> None:
        """The machine is gone. May be called at any time, also twice."""
        self._world.vanish(self._runner)
        self._world.settled()

    def watch(self) -> asyncio.Event:
        """Set when anything happens to this session from now on: a job, its cancellation, the end."""
        event = asyncio.Event()
        self._watchers.append(event)
        return event

    def unwatch(self, event: asyncio.Event) -> None:
        """Whoever watched has stopped."""
        if event in self._watchers:
            self._watchers.remove(event)

    def give(self, job: Job) -> None:
        """GitHub's side: here is your job."""
        self.assignment = Assignment(
            job_id=job.id,
            repo=job.repo.full_name,
            duration=job.duration,
            cancelled=self._cancelled,
            run_id=job.run_id,
            name=job.name,
            script=job.script,
            env=job.env,
        )
        self._changed.set()
        self._stir()

    def ask_to_cancel(self) -> None:
        """GitHub's side: somebody cancelled the job."""
        self._cancelled.set()
        self._stir()

    def end(self) -> None:
        """GitHub's side: this session is over."""
        self.over = True
        self._changed.set()
        self._stir()

    def _stir(self) -> None:
        watchers, self._watchers = self._watchers, []
        for event in watchers:
            event.set()
