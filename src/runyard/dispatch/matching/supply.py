"""Indexes waiting runners by pool and pools by labels, so that a match examines pools instead of Pods."""

from collections import deque
from collections.abc import Iterable

from runyard.dispatch.matching.values import PoolView, Snapshot, Vacancy, Waiting, fits


class Supply:
    """The runners without a job in a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.pools = {pool.name: pool for pool in snapshot.pools}
        self._waiting: dict[str, deque[tuple[int, Waiting]]] = {}
        self._vacant: dict[tuple[str, str, str], deque[Vacancy]] = {}
        self._fitting: dict[tuple[str, ...], tuple[PoolView, ...]] = {}
        self.left = 0
        for place, slot in enumerate(snapshot.waiting):
            if slot.pool in self.pools:
                self._waiting.setdefault(slot.pool, deque()).append((place, slot))
                self.left += 1
        for vacancy in snapshot.vacancies:
            if vacancy.pool in self.pools:
                key = (vacancy.pool, vacancy.tenant, vacancy.scope)
                self._vacant.setdefault(key, deque()).append(vacancy)
                self.left += 1

    def fitting(self, labels: tuple[str, ...]) -> tuple[PoolView, ...]:
        """Return the pools that fit these labels."""
        found = self._fitting.get(labels)
        if found is None:
            found = tuple(pool for pool in self.pools.values() if fits(pool, labels))
            self._fitting[labels] = found
        return found

    def take_vacancy(self, pool: PoolView, tenant: str, scope: str) -> Vacancy | None:
        """Take an armed runner of that tenant that lost its job; None if there is none."""
        vacant = self._vacant.get((pool.name, tenant, scope))
        if not vacant:
            return None
        self.left -= 1
        return vacant.popleft()

    def take_waiting(self, pools: Iterable[PoolView]) -> Waiting | None:
        """Take the oldest waiting runner of these pools; None if there is none."""
        queues = [queue for pool in pools if (queue := self._waiting.get(pool.name))]
        if not queues:
            return None
        self.left -= 1
        return min(queues, key=lambda queue: queue[0][0]).popleft()[1]
