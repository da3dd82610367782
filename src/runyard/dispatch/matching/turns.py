"""Whose turn it is on one platform: tenants, and in each of them its repositories.

Everybody has a virtual time on each platform, for what is given on one costs nobody a turn on another. It grows by
cost/weight with every runner. Whoever comes back from idleness, or is new, starts where the last one that was served
began: it neither starves nor gets a credit for having slept.

Somebody who waits for a pool with few runners is moved on in the same way while others are served by another pool of
the platform. Then several stand at the same place, and among them goes first who was furthest behind before: they take
turns, whatever they are called.
"""

from collections import deque
from heapq import heapify, heappop, heappush

from runyard.dispatch.machine.values import Room
from runyard.dispatch.matching.values import (
    Budget,
    Candidate,
    PoolView,
    RepositoryQueue,
    TenantQueue,
)

Budgets = dict[str, Budget]


class Line:
    """A repository while its tenant is being served."""

    def __init__(
        self, queue: RepositoryQueue, jobs: list[Candidate], at: float, floor: float
    ) -> None:
        self.queue = queue
        self.vtime = max(at, floor)
        self._was = at
        self.jobs = deque(jobs)

    @property
    def place(self) -> tuple[int, float, float, str]:
        """The highest priority first, then who is furthest behind; among equals, by name."""
        return -self.jobs[0].priority, self.vtime, self._was, self.queue.repository

    def charge(self, cost: int) -> None:
        """It got a runner."""
        self._was = self.vtime = self.vtime + cost / self.queue.weight


class Turn:
    """A tenant while it is being served on one platform; `jobs` are those of its jobs that want it, by repository."""

    def __init__(
        self,
        queue: TenantQueue,
        platform: str,
        jobs: dict[str, list[Candidate]],
        *,
        floor: float,
        budgets: Budgets,
    ) -> None:
        self.queue = queue
        self._was = queue.vtimes.get(platform, 0.0)
        self.floor, self.own_floor = floor, queue.floors.get(platform, 0.0)
        self.vtime = max(self._was, floor)
        self.budgets = budgets
        self._lines = [
            Line(each, jobs[each.repository], each.vtimes.get(platform, 0.0), self.own_floor)
            for each in queue.repositories
            if each.repository in jobs
        ]
        self._heap = [(line.place, at) for at, line in enumerate(self._lines)]
        heapify(self._heap)

    @property
    def place(self) -> tuple[float, float, str]:
        """Who is furthest behind; among equals, by name."""
        return self.vtime, self._was, self.queue.tenant

    @property
    def waits(self) -> bool:
        """Has it a job that was not looked at yet?"""
        return bool(self._heap)

    def next(self) -> tuple[Line, Candidate]:
        """Take its next job."""
        _, at = heappop(self._heap)
        line = self._lines[at]
        return line, line.jobs.popleft()

    def back(self, line: Line) -> None:
        """The repository gets in line again, if it has more."""
        if line.jobs:
            heappush(self._heap, (line.place, self._lines.index(line)))

    def affords(self, pool: PoolView) -> bool:
        """Has the tenant room for a runner of this pool?"""
        budget = self.budgets.get(pool.platform)
        return budget is not None and budget.room.fits(vcpus=pool.vcpus, memory_gb=pool.memory_gb)

    def spend(self, pool: PoolView, line: Line) -> None:
        """One runner of this pool, for this repository."""
        held = self.budgets[pool.platform]
        left = Room(
            vcpus=held.room.vcpus - pool.vcpus, memory_gb=held.room.memory_gb - pool.memory_gb
        )
        self.budgets[pool.platform] = Budget(platform=pool.platform, room=left, limit=held.limit)
        self._was = self.vtime = self.vtime + pool.vcpus / self.queue.weight
        line.charge(pool.vcpus)
