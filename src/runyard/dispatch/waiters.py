"""Keeps the Pods whose polls wait at this replica.

A poll registers here and is woken only when its slot has changed: a job wakes the one runner that it was claimed for.
The matcher claims only for Pods that are registered and idle, so a job is never offered to a closed connection.

Invariant: only registered Pods are idle here. Their slots may have changed since: the matcher reads those.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice

from runyard.dispatch.machine.values import Slot
from runyard.dispatch.matching.values import Kind

_EXPECTED_LIMIT = 30


class Waiters:
    """The waiting Pods, which of them are idle, and the event that wakes the matcher."""

    def __init__(self, *, notify: Callable[[], None] | None = None) -> None:
        self._notify = notify  # notifies the matchers of other replicas
        self._waiting: dict[str, list[asyncio.Event]] = {}
        self._idle: dict[
            str, dict[str, None]
        ] = {}  # by pool; the Pod that has waited longest comes first
        self._pools: dict[str, str] = {}
        self._armed: dict[str, Slot] = {}  # as committed here a moment ago; its poll needs no read
        self.wakeup = asyncio.Event()  # set when matching may have become possible
        self.jobs_waiting = True  # jobs may wait for a runner: an idle one wakes the matcher
        self._expected: dict[Kind, None] = {}  # of jobs that arrived here since the last matching
        self.stopping = False  # this replica ends: no Pod is to wait here for a job any more

    @contextmanager
    def registered(self, pod_uid: str) -> Iterator[asyncio.Event]:
        """Register a Pod for the length of the block. A Pod with two open polls is registered twice."""
        event = asyncio.Event()
        events = self._waiting.setdefault(pod_uid, [])
        events.append(event)
        try:
            yield event
        finally:
            events.remove(event)
            if not events:
                del self._waiting[pod_uid]
                self._armed.pop(pod_uid, None)
                self.mark_busy(pod_uid)

    def mark_idle(self, pod_uid: str, pool: str) -> None:
        """Record that the Pod's slot is idle: a job may be claimed for it."""
        if pod_uid in self._waiting and pod_uid not in self._pools:
            self._pools[pod_uid] = pool
            self._idle.setdefault(pool, {})[pod_uid] = None
            if self.jobs_waiting:
                self.wakeup.set()

    def is_idle(self, pod_uid: str) -> bool:
        """Whether the Pod is idle, as far as this replica knows."""
        return pod_uid in self._pools

    def mark_busy(self, pod_uid: str) -> None:
        """Record that the Pod is not idle."""
        pool = self._pools.pop(pod_uid, None)
        if pool is not None:
            del self._idle[pool][pod_uid]
            if not self._idle[pool]:
                del self._idle[pool]

    def notify_matchers(self, kind: Kind | None = None) -> None:
        """Wake the matchers of this and of other replicas: there is something new to match, perhaps of this kind."""
        if kind is not None and len(self._expected) < _EXPECTED_LIMIT:
            self._expected[kind] = None
        self.wakeup.set()
        if self._notify is not None:
            self._notify()

    def take_expected(self) -> tuple[Kind, ...]:
        """Return the kinds of jobs that arrived here since the last call; some of them may be missing."""
        expected = tuple(self._expected)
        self._expected.clear()
        return expected

    def wake(self, pod_uid: str, *, armed: Slot | None = None) -> None:
        """Wake the polls of this Pod: its slot has changed. `armed` is the slot if this replica has just armed it."""
        self.mark_busy(pod_uid)
        if armed is not None and pod_uid in self._waiting:
            self._armed[pod_uid] = armed
        for event in self._waiting.get(pod_uid, ()):
            event.set()

    def armed(self, pod_uid: str) -> Slot | None:
        """The slot that this replica has armed since the last call, if it has."""
        return self._armed.pop(pod_uid, None)

    def release_idle(self) -> None:
        """Answer all idle polls, at shutdown; the Pods then poll another replica."""
        self.stopping = True
        for pod_uid in self._pools:
            for event in self._waiting[pod_uid]:
                event.set()

    def is_waiting(self, pod_uid: str) -> bool:
        """Whether a poll of this Pod waits here."""
        return pod_uid in self._waiting

    def idle_uids(self, per_pool: int) -> tuple[str, ...]:
        """Return the idle Pods: of each pool those that have waited longest, at most `per_pool`."""
        return tuple(uid for idle in self._idle.values() for uid in islice(idle, per_pool))

    def __len__(self) -> int:
        return len(self._waiting)
