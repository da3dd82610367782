"""A connected runner's session at the practice GitHub.

A runner program uses it to wait for its one job and to report its end. A session ends
when its job has ended, when its registration is deleted, or when its machine vanishes.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from runyard.embedded.github.model import Assignment, Job, Runner


class _State(Protocol):
    def finish(self, runner: Runner, conclusion: str) -> bool: ...

    def vanish(self, runner: Runner) -> None: ...

    @property
    def settled(self) -> Callable[[], object]: ...


class RunnerSession:
    """One connection of one ephemeral runner; made by `connect`."""

    def __init__(self, state: _State, runner: Runner) -> None:
        self._state = state
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
        """Waits for the one job; `None` if the session ended before."""
        await self._changed.wait()
        return self.assignment

    def finish(self, conclusion: str) -> bool:
        """Reports the job's end. `False` if the session is over: the runner was given up."""
        accepted = self._state.finish(self._runner, conclusion)
        self._state.settled()
        return accepted

    def vanish(self) -> None:
        """Ends the session as if the machine were gone. May be called at any time, also twice."""
        self._state.vanish(self._runner)
        self._state.settled()

    def watch(self) -> asyncio.Event:
        """An event that is set when anything changes from now on: a job, its cancellation, the end."""
        event = asyncio.Event()
        self._watchers.append(event)
        return event

    def unwatch(self, event: asyncio.Event) -> None:
        """Removes an event of `watch`."""
        if event in self._watchers:
            self._watchers.remove(event)

    def assign(self, job: Job) -> None:
        """Called by GitHub's side: assigns the job."""
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
        self._notify_watchers()

    def request_cancel(self) -> None:
        """Called by GitHub's side: requests the job's cancellation."""
        self._cancelled.set()
        self._notify_watchers()

    def end(self) -> None:
        """Called by GitHub's side: ends the session."""
        self.over = True
        self._changed.set()
        self._notify_watchers()

    def _notify_watchers(self) -> None:
        watchers, self._watchers = self._watchers, []
        for event in watchers:
            event.set()
