"""Pods that wait at this replica for an answer.

A poll registers here and is woken when something about its slot has changed. The matcher claims
only for Pods that are registered, so a job is never offered to a client that has hung up.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Waiters:
    """Who waits, and a bell for the matcher."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.Event]] = {}
        self.bell = asyncio.Event()  # rung when matching may have become possible
        self.over = False  # this replica ends: nobody is to wait here for a job any more

    @contextmanager
    def registered(self, pod_uid: str) -> Iterator[asyncio.Event]:
        """Wait here for the length of the block. A Pod that asks again beside its first poll waits twice."""
        event = asyncio.Event()
        events = self._waiting.setdefault(pod_uid, [])
        events.append(event)
        self.bell.set()
        try:
            yield event
        finally:
            events.remove(event)
            if not events:
                del self._waiting[pod_uid]

    def wake(self, pod_uid: str) -> None:
        """Something changed for this Pod."""
        for event in self._waiting.get(pod_uid, ()):
            event.set()

    def send_away(self) -> None:
        """Let everybody go who has been promised nothing; they ask again, at another replica."""
        self.over = True
        for events in self._waiting.values():
            for event in events:
                event.set()

    def waits(self, pod_uid: str) -> bool:
        """Does this Pod wait here?"""
        return pod_uid in self._waiting

    def uids(self) -> tuple[str, ...]:
        """Everybody who waits, longest first."""
        return tuple(self._waiting)
