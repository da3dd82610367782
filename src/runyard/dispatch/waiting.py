"""Pods that wait at this replica for an answer.

A poll registers here and is woken when something about its slot has changed, and by nothing else: a job wakes the one
runner that it was claimed for. The matcher claims only for Pods that are registered and free, so a job is never offered
to a client that has hung up.

Invariant: `free` holds only Pods that are registered. It may be wrong about their slots: the matcher reads those.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice


class Waiters:
    """Who waits, who of them is free, and a bell for the matcher."""

    def __init__(self, *, tell: Callable[[], None] | None = None) -> None:
        self._tell = tell  # the other replicas
        self._waiting: dict[str, list[asyncio.Event]] = {}
        self._free: dict[str, dict[str, None]] = {}  # by pool; who has waited longest comes first
        self._pools: dict[str, str] = {}
        self.bell = asyncio.Event()  # rung when matching may have become possible
        self.hungry = True  # jobs may wait for a runner: one that becomes free rings the bell
        self.over = False  # this replica ends: nobody is to wait here for a job any more

    @contextmanager
    def registered(self, pod_uid: str) -> Iterator[asyncio.Event]:
        """Wait here for the length of the block. A Pod that asks again beside its first poll waits twice."""
        event = asyncio.Event()
        events = self._waiting.setdefault(pod_uid, [])
        events.append(event)
        try:
            yield event
        finally:
            events.remove(event)
            if not events:
                del self._waiting[pod_uid]
                self.taken(pod_uid)

    def free(self, pod_uid: str, pool: str) -> None:
        """Its slot is idle: it may be claimed for."""
        if pod_uid in self._waiting and pod_uid not in self._pools:
            self._pools[pod_uid] = pool
            self._free.setdefault(pool, {})[pod_uid] = None
            if self.hungry:
                self.bell.set()

    def is_free(self, pod_uid: str) -> bool:
        """Has it been promised nothing, as far as is known here?"""
        return pod_uid in self._pools

    def taken(self, pod_uid: str) -> None:
        """It is not free any more, or was not."""
        pool = self._pools.pop(pod_uid, None)
        if pool is not None:
            del self._free[pool][pod_uid]
            if not self._free[pool]:
                del self._free[pool]

    def made_work(self) -> None:
        """There is something new to match, for whoever waits here or at another replica."""
        self.bell.set()
        if self._tell is not None:
            self._tell()

    def wake(self, pod_uid: str) -> None:
        """Something changed for this Pod."""
        self.taken(pod_uid)
        for event in self._waiting.get(pod_uid, ()):
            event.set()

    def send_away(self) -> None:
        """Let everybody go who has been promised nothing; they ask again, at another replica."""
        self.over = True
        for pod_uid in self._pools:
            for event in self._waiting[pod_uid]:
                event.set()

    def waits(self, pod_uid: str) -> bool:
        """Does this Pod wait here?"""
        return pod_uid in self._waiting

    def uids(self, per_pool: int) -> tuple[str, ...]:
        """Who waits here and is free: of each pool those that have waited longest, at most so many."""
        return tuple(uid for free in self._free.values() for uid in islice(free, per_pool))

    def __len__(self) -> int:
        return len(self._waiting)
