"""Workers that take keys from a queue and reconcile them.

A reconcile gets a key, never an event: it reads the current state, compares it with the desired one and
acts. It may be called at any time and any number of times, so it must be idempotent; in exchange it
needs no history.

What comes of one reconcile, and what happens then:

    result     because                                then
    success    it returned `Result()`                 nothing until the key is added again
    requeue    it returned `Result(requeue_after=s)`  again in `s` seconds, or earlier if it changes
    error      it raised                              again after the key's backoff, and not before the time
                                                      in the server's Retry-After
    timeout    it lasted longer than `deadline`       again after the key's backoff
    terminal   it raised `Terminal`                   nothing until the key is added again: a retry cannot help

If it raises there is no `Result`, so `requeue_after` cannot hide an error.
"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from runyard.clock import Clock
from runyard.http.errors import TransportError
from runyard.kube.errors import KubeError
from runyard.kube.workqueue import WorkQueue
from runyard.telemetry.catalogue import (
    RUNYARD_QUEUE_DEPTH,
    RUNYARD_RECONCILE_SECONDS,
    RUNYARD_RECONCILE_TOTAL,
)
from runyard.telemetry.log import Logger, bound
from runyard.telemetry.meter import Meter

SOONEST = 0.005  # a reconcile that always requeues at once must not starve the process


class Result(msgspec.Struct, frozen=True):
    """When to reconcile the key again, after a success."""

    requeue_after: float | None = None


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """How many keys are reconciled at once, and how many seconds one reconcile may take."""

    workers: int = 1
    deadline: float = 60.0


ONE_AT_A_TIME = Capacity()


class Terminal(Exception):
    """Reconciling this key again cannot help until the object changes."""


class Controller:
    """Runs `reconcile(key)` for each key of the queue, `workers` at a time, one key at most once."""

    def __init__(
        self,
        name: str,
        reconcile: Callable[[str], Awaitable[Result]],
        *,
        queue: WorkQueue,
        clock: Clock,
        meter: Meter,
        log: Logger,
        capacity: Capacity = ONE_AT_A_TIME,
    ) -> None:
        self._name = name
        self._reconcile = reconcile
        self._queue = queue
        self._clock = clock
        self._meter = meter
        self._log = log
        self._workers = capacity.workers
        self._deadline = capacity.deadline
        self._count = 0

    async def run(self) -> None:
        """Work until cancelled. Failing reconciles do not end it."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._workers):
                group.create_task(self._work(), name=f"{self._name}-{number}")

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            self._meter.set(RUNYARD_QUEUE_DEPTH, len(self._queue), controller=self._name)
            self._count += 1
            try:
                with bound(controller=self._name, key=key, reconcile_id=self._count):
                    await self._handle(key)
            finally:
                self._queue.done(key)

    async def _handle(self, key: str) -> None:
        began = self._clock.monotonic()
        limit = self._clock.timeout(self._deadline)
        result = "cancelled"
        try:
            async with limit:
                returned = await self._reconcile(key)
            result = self._succeeded(key, returned)
        except Terminal as error:
            result = "terminal"
            self._queue.forget(key)
            self._log.error("reconcile failed for good; it is not retried", error=str(error))
        except Exception as error:  # noqa: BLE001 the failure of one key must not stop the others
            result = "timeout" if limit.expired() else "error"
            retry_after = error.retry_after if isinstance(error, KubeError) else 0.0
            again = self._queue.retry(key, at_least=retry_after)
            self._log_failure(error, result=result, again=again)
        finally:
            spent = self._clock.monotonic() - began
            self._meter.inc(RUNYARD_RECONCILE_TOTAL, controller=self._name, result=result)
            self._meter.observe(RUNYARD_RECONCILE_SECONDS, spent, controller=self._name)

    def _succeeded(self, key: str, result: Result) -> str:
        self._queue.forget(key)
        if result.requeue_after is None:
            return "success"
        self._queue.add_after(key, max(result.requeue_after, SOONEST))
        return "requeue"

    def _log_failure(self, error: Exception, *, result: str, again: float) -> None:
        expected = isinstance(error, KubeError | TransportError) or result == "timeout"
        self._log.warning(
            "reconcile failed",
            result=result,
            error=str(error) or type(error).__name__,
            again_in=round(again, 3),
            exc_info=None if expected else error,
        )
