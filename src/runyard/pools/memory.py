"""Keeps the operator's writes that the watch does not show yet.

A watch lags behind the writes. A plan that only reads the cache would create the same runners
twice and retire one Pod too many. So every write is recorded *before* it is sent, and the record
overrides the cache until the cache has caught up.

Invariants:
- A creation counts as made from before it is sent until the Pod becomes visible, the API refused it, or a
  later read says that it does not exist. An unknown outcome therefore counts as made.
- The record of a write to an existing Pod holds for exactly the version it was written against. The write carried
  that version as its precondition, so the next version contains it, and the record is dropped.
- A record with an unknown outcome expires; repeating the write is harmless because of that precondition.
- Nothing here needs to survive a restart: a fresh list contains all earlier writes.
"""

from typing import Literal

import msgspec

from runyard.pools.plans.views import RunnerView

Effect = Literal["deleted", "marked"]


class _Created(msgspec.Struct):
    pool: str
    at: float


class _Touched(msgspec.Struct):
    resource_version: str
    effect: Effect
    at: float
    certain: bool = False


class _Backoff(msgspec.Struct):
    until: float
    pause: float


class Memory:
    """The operator's recent writes and failures. `at` and `now` are monotonic time, `wall` is not."""

    def __init__(self) -> None:
        self._created: dict[str, _Created] = {}
        self._touched: dict[str, _Touched] = {}
        self._reported: dict[str, None] = {}
        self._marked_since: dict[str, float] = {}
        self._stuck: dict[str, None] = {}
        self._backoffs: dict[str, _Backoff] = {}

    def creating(self, key: str, *, pool: str, at: float) -> None:
        """Record that a Pod of that key is about to be created."""
        self._created[key] = _Created(pool, at)

    def settled(self, key: str) -> None:
        """Record that the Pod of that key is visible, or certainly does not exist."""
        self._created.pop(key, None)

    def confirmed(self, key: str, *, at: float) -> None:
        """Record that the Pod exists although the cache does not show it; it is read again later."""
        if key in self._created:
            self._created[key].at = at

    def expected(self, pool: str) -> tuple[str, ...]:
        """Keys of the Pods of a pool that were created and are not visible."""
        return tuple(key for key, note in self._created.items() if note.pool == pool)

    def overdue(self, pool: str, *, now: float, after: float) -> tuple[str, ...]:
        """Return those that the watch has not shown for long enough to be read from the API."""
        notes = self._created.items()
        return tuple(k for k, note in notes if note.pool == pool and now - note.at >= after)

    def touching(self, uid: str, *, resource_version: str, effect: Effect, at: float) -> None:
        """Record that a Pod is about to be deleted or marked, in this version."""
        self._touched[uid] = _Touched(resource_version, effect, at)

    def touched(self, uid: str) -> None:
        """Record that the API accepted the write."""
        if uid in self._touched:
            self._touched[uid].certain = True

    def untouched(self, uid: str) -> None:
        """Record that the API refused the write: nothing changed."""
        self._touched.pop(uid, None)

    def reported(self, uid: str) -> None:
        """Record that the stop of this runner was reported to the server."""
        self._reported[uid] = None

    def unreported(self, uid: str) -> None:
        """Record that the runner did not stop: its real end is still to be reported."""
        self._reported.pop(uid, None)

    def first_stuck(self, uid: str) -> bool:
        """Whether this deletion is found stuck for the first time."""
        new = uid not in self._stuck
        self._stuck[uid] = None
        return new

    def back_off(self, pool: str, *, now: float, pauses: tuple[float, float]) -> None:
        """Pause creations after a failure, longer each time; starts again after a quiet period.

        Failures during a pause belong to the one that began it: a batch fails together.
        """
        first, longest = pauses
        known = self._backoffs.get(pool)
        if known is not None and now < known.until:
            return
        repeated = known is not None and now < known.until + longest
        pause = min(longest, known.pause * 2) if known is not None and repeated else first
        self._backoffs[pool] = _Backoff(now + pause, pause)

    def held(self, pool: str, *, now: float) -> float:
        """The seconds for which creations still pause."""
        known = self._backoffs.get(pool)
        return 0.0 if known is None else max(0.0, known.until - now)

    def overlay(self, view: RunnerView, *, now: float, wall: float, expire: float) -> RunnerView:
        """The runner as it will be once the recorded writes are visible."""
        changes: dict[str, float | bool] = {}
        if view.uid in self._reported:
            changes["reported"] = True
        note = self._touched.get(view.uid)
        if note is not None:
            lapsed = not note.certain and now - note.at >= expire
            if lapsed or note.resource_version != view.resource_version:
                del self._touched[view.uid]
            elif note.effect == "deleted" and view.deleting_at is None:
                changes["deleting_at"] = wall
            elif note.effect == "marked":
                changes["marked"] = True
        if (view.marked or "marked" in changes) and view.marked_at is None:
            changes["marked_at"] = self._marked_since.setdefault(view.uid, wall)
        return msgspec.structs.replace(view, **changes) if changes else view

    def forget(self, uid: str) -> None:
        """Discard the records of a Pod that is gone."""
        self._touched.pop(uid, None)
        self._reported.pop(uid, None)
        self._marked_since.pop(uid, None)
        self._stuck.pop(uid, None)

    def forget_pool(self, pool: str) -> None:
        """Discard the records of a pool that is gone."""
        self._backoffs.pop(pool, None)
        for key in self.expected(pool):
            del self._created[key]
