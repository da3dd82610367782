"""A queue of keys to reconcile: deduplicated, delayed, with backoff.

It holds keys, not events: a key that changes a hundred times while it waits is reconciled once, with the current state.
The rules are those of controller-runtime:

- A key is in the queue at most once.
- A key is with at most one worker. If it is added meanwhile it becomes *dirty*, and `done` puts it
  back into the queue: the change may have come after the worker had read.
- A failed key waits before its next turn, twice as long after each failure in a row, up to a cap;
  half of the wait is drawn at random, so that keys which failed together do not return together.
- A key has at most one timer, the earliest that was requested.

There is no background task: timers fire while a worker waits in `get`. If every worker is busy, there is none to wake.
"""

import asyncio
import heapq
import random

from runyard.clock import Clock

MAX_DOUBLINGS = 40  # exceeds every cap; bounds the exponent


class WorkQueue:
    """A queue of keys to reconcile. Not thread safe; every method but `get` returns at once."""

    def __init__(
        self, *, clock: Clock, rng: random.Random, base: float = 0.005, cap: float = 60.0
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._base = base
        self._cap = cap
        self._ready: dict[str, None] = {}  # a dict keeps the order of arrival and has fast lookups
        self._running: dict[str, None] = {}
        self._dirty: dict[str, None] = {}
        self._failures: dict[str, int] = {}
        self._due: dict[str, float] = {}
        self._timers: list[tuple[float, int, str]] = []
        self._ticket = 0
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        """How many keys wait for a worker now; timers do not count."""
        return len(self._ready)

    def add(self, key: str) -> None:
        """Queue this key; if it is with a worker, queue it again afterwards."""
        if key in self._running:
            self._dirty[key] = None
        elif key not in self._ready:
            self._ready[key] = None
            self._wake.set()

    def add_after(self, key: str, seconds: float) -> None:
        """Queue this key after a delay, unless it has an earlier timer."""
        if seconds <= 0:
            self.add(key)
            return
        due = self._clock.monotonic() + seconds
        if self._due.get(key, due + 1) <= due:
            return
        self._due[key] = due
        self._ticket += 1
        heapq.heappush(self._timers, (due, self._ticket, key))
        self._wake.set()  # a waiting worker must wait for a shorter time

    async def get(self) -> str:
        """The next key. It belongs to the caller until `done`."""
        while True:
            wait = self._fire()
            if self._ready:
                key = next(iter(self._ready))
                del self._ready[key]
                self._running[key] = None
                return key
            self._wake.clear()
            await self._sleep(wait)

    def done(self, key: str) -> None:
        """Give a key back. Call it exactly once for each `get`, also after a failure."""
        self._running.pop(key, None)
        if key in self._dirty:
            del self._dirty[key]
            self.add(key)

    def retry(self, key: str, *, at_least: float = 0.0) -> float:
        """Queue a failed key again after its backoff, which is returned.

        `at_least` is the server's Retry-After; it is capped and jittered, too.
        """
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        longest = min(self._cap, self._base * 2.0 ** min(failures, MAX_DOUBLINGS))
        jitter = self._rng.random()
        delay = max(longest * (0.5 + 0.5 * jitter), min(at_least, self._cap) * (1.0 + 0.1 * jitter))
        self.add_after(key, delay)
        return delay

    def forget(self, key: str) -> None:
        """Reset the key's failure count after a success."""
        self._failures.pop(key, None)

    def failures(self, key: str) -> int:
        """How often in a row this key has failed."""
        return self._failures.get(key, 0)

    def _fire(self) -> float | None:
        """Add the keys whose time has come; return the seconds until the next one, if there is one."""
        now = self._clock.monotonic() if self._timers else 0.0
        while self._timers:
            due, _, key = self._timers[0]
            if self._due.get(key) != due:
                heapq.heappop(self._timers)  # overtaken by an earlier timer of the same key
            elif due <= now:
                heapq.heappop(self._timers)
                del self._due[key]
                self.add(key)
            else:
                return due - now
        return None

    async def _sleep(self, seconds: float | None) -> None:
        if seconds is None:
            await self._wake.wait()
            return
        try:
            async with self._clock.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return
