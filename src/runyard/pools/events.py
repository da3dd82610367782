"""Writes the events of pools, few enough that a pool in a loop does not flood the API.

There is one Event object for each pool and reason; what repeats raises its count and replaces its message. A series is
written at once and then at most every `event_seconds`; a later reconcile writes the number of those in between.
While the API does not accept events, one is tried in that time, of all pools, so that the operator's one worker does
not wait for each.
"""

import msgspec

from runyard.clock import Clock
from runyard.kube.events import Recorder
from runyard.kube.kinds import RUNNER_POOLS
from runyard.kube.objects import Meta
from runyard.pools.plans import events as plan
from runyard.pools.plans.actions import (
    Action,
    CreateRunner,
    ForceDelete,
    MarkDrainEligible,
    ReapRunner,
    StatusPatch,
)
from runyard.pools.plans.events import Notice
from runyard.pools.plans.views import PoolView
from runyard.wire import names
from runyard.wire.kube_reasons import KubeCode
from runyard.wire.reasons import render

_DONE: dict[type[Action], str] = {
    CreateRunner: "created runner",
    ReapRunner: "retired runner",
    MarkDrainEligible: "allowed to drain runner",
    ForceDelete: "removed, without its host, runner",
}


class _Series(msgspec.Struct):
    notice: Notice
    count: int = 0
    written_at: float | None = None


class _Pool(msgspec.Struct):
    uid: str
    rolled: bool
    """What the last event of a roll was: its end or, if False, its start."""
    series: dict[KubeCode, _Series] = {}


class PoolEvents:
    """Collects the events of all pools and writes them."""

    def __init__(self, recorder: Recorder, *, clock: Clock, every: float) -> None:
        self._recorder = recorder
        self._clock = clock
        self._every = every
        self._pools: dict[str, _Pool] = {}
        self._pause_until = 0.0

    def _of(self, pool: PoolView) -> _Pool:
        key = f"{pool.namespace}/{pool.name}"
        known = self._pools.get(key)
        if known is None or known.uid != pool.uid:
            known = self._pools[key] = _Pool(pool.uid, plan.rolled_before(pool))
        return known

    def add(self, pool: PoolView, notice: Notice | None) -> None:
        """Count an event; None is none."""
        if notice is not None:
            series = self._of(pool).series.setdefault(notice.code, _Series(notice))
            series.notice, series.count = notice, series.count + 1

    def add_roll(self, pool: PoolView, status: StatusPatch) -> None:
        """Count the start or the end of a roll."""
        known = self._of(pool)
        for condition in status.conditions:
            if condition.type == names.POOL_ROLLED and condition.holds != known.rolled:
                known.rolled = condition.holds
                self.add(pool, plan.roll(pool, condition))

    async def flush(self, pool: PoolView) -> None:
        """Write what is due; the rest waits if the API does not accept an event now."""
        now = self._clock.monotonic()
        if now < self._pause_until:
            return
        for series in self._of(pool).series.values():
            due = series.written_at is None or now - series.written_at >= self._every
            if series.count and due:
                count = series.count
                if not await self._write(pool, series.notice, count):
                    self._pause_until = self._clock.monotonic() + self._every
                    return
                series.count, series.written_at = series.count - count, now

    async def _write(self, pool: PoolView, notice: Notice, count: int) -> bool:
        return await self._recorder.latest(
            RUNNER_POOLS,
            Meta(pool.name, pool.namespace, pool.uid, pool.resource_version),
            type="Warning" if notice.warning else "Normal",
            reason=notice.code.camel,
            message=_message(notice),
            count=count,
        )

    def forget(self, pool_key: str) -> None:
        """Discard the series of a pool that is gone."""
        self._pools.pop(pool_key, None)


def _message(notice: Notice) -> str:
    text = render(notice.reason)
    return text if notice.action is None else f"{_DONE[notice.action]} {notice.runner}: {text}"
