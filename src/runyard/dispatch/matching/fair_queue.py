"""Orders tenants, and the repositories of each tenant, by virtual time on one platform.

Each tenant and repository has a virtual time per platform, which grows by cost/weight with every runner. Runners on one
platform do not count on another. A new or formerly idle tenant starts at the *floor*: the virtual time at which the
tenant that was served last began. So it neither starves nor gets credit for the time without jobs.

A tenant that waits for a pool with few runners is also raised to the floor while others are served by another pool of
the platform. Then several tenants have the same virtual time, and the one that was furthest behind before is served
first, so they alternate independently of their names.
"""

from collections import deque
from heapq import heapify, heappop, heappush

from runyard.dispatch.machine.values import Headroom
from runyard.dispatch.matching.values import (
    Budget,
    Candidate,
    PoolView,
    RepositoryQueue,
    TenantQueue,
)

Budgets = dict[str, Budget]


class RepositoryTurn:
    """A repository and its remaining jobs while its tenant is being served."""

    def __init__(
        self, queue: RepositoryQueue, jobs: list[Candidate], at: float, floor: float
    ) -> None:
        self.queue = queue
        self.vtime = max(at, floor)
        self._previous = at
        self.jobs = deque(jobs)

    @property
    def order(self) -> tuple[int, float, float, str]:
        """The sort key: the highest priority first, then the lowest virtual time, then by name."""
        return -self.jobs[0].priority, self.vtime, self._previous, self.queue.repository

    def charge(self, cost: int) -> None:
        """Add the cost of a runner to the virtual time."""
        self._previous = self.vtime = self.vtime + cost / self.queue.weight


class TenantTurn:
    """A tenant while it is being served on one platform; `jobs` are its jobs for that platform, by repository."""

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
        self._previous = queue.vtimes.get(platform, 0.0)
        self.floor, self.own_floor = floor, queue.floors.get(platform, 0.0)
        self.vtime = max(self._previous, floor)
        self.budgets = budgets
        self._turns = [
            RepositoryTurn(
                each, jobs[each.repository], each.vtimes.get(platform, 0.0), self.own_floor
            )
            for each in queue.repositories
            if each.repository in jobs
        ]
        self._heap = [(turn.order, at) for at, turn in enumerate(self._turns)]
        heapify(self._heap)

    @property
    def order(self) -> tuple[float, float, str]:
        """The sort key: the lowest virtual time first, then by name."""
        return self.vtime, self._previous, self.queue.tenant

    @property
    def has_jobs(self) -> bool:
        """Whether there are jobs that were not examined yet."""
        return bool(self._heap)

    def next(self) -> tuple[RepositoryTurn, Candidate]:
        """Take the next job and its repository."""
        _, at = heappop(self._heap)
        turn = self._turns[at]
        return turn, turn.jobs.popleft()

    def put_back(self, turn: RepositoryTurn) -> None:
        """Put the repository back into the order, if it has more jobs."""
        if turn.jobs:
            heappush(self._heap, (turn.order, self._turns.index(turn)))

    def affords(self, pool: PoolView) -> bool:
        """Whether the tenant's budget allows a runner of this pool."""
        budget = self.budgets.get(pool.platform)
        return budget is not None and budget.headroom.fits(
            vcpus=pool.vcpus, memory_gb=pool.memory_gb
        )

    def spend(self, pool: PoolView, turn: RepositoryTurn) -> None:
        """Charge one runner of this pool to the tenant and to this repository."""
        held = self.budgets[pool.platform]
        left = Headroom(
            vcpus=held.headroom.vcpus - pool.vcpus,
            memory_gb=held.headroom.memory_gb - pool.memory_gb,
        )
        self.budgets[pool.platform] = Budget(
            platform=pool.platform, headroom=left, limit=held.limit
        )
        self._previous = self.vtime = self.vtime + pool.vcpus / self.queue.weight
        turn.charge(pool.vcpus)
