"""Reconciles RunnerPools into Pods: as many runners as each pool asks for, created from its image.

    watches ──▶ queue ──▶ snapshot ──▶ plan (pure) ──▶ actions, one by one

One worker, on purpose: the plans of sibling pools share a budget of starts, and a plan may rely on no
other being carried out at the same time.

Invariants:
- Before every cache has been filled once there is no plan at all.
- The operator never deletes a runner that is busy: plans do not, and every deletion names the
  version in which the runner was idle, so a stamp that lands in between turns it into a conflict.
- What fails is counted and planned again; nothing is retried blindly.
"""

import asyncio

import msgspec

from runyard.kube.controller import Capacity, Controller, Result
from runyard.kube.events import Recorder
from runyard.kube.objects import HasMeta, Node, Pod, RunnerPool, ServiceAccount, key, split_key
from runyard.kube.workqueue import WorkQueue
from runyard.pools import metrics
from runyard.pools.caches import Caches, Changes, pool_keys
from runyard.pools.client import StopReports
from runyard.pools.deps import Deps
from runyard.pools.effects import HARMLESS, Effects
from runyard.pools.memory import Memory
from runyard.pools.observe import Observer
from runyard.pools.plans.actions import CreateRunner, PoolPlan, ReapRunner
from runyard.pools.plans.pool import plan_pool
from runyard.pools.plans.reasons import Why
from runyard.pools.plans.views import PoolView
from runyard.pools.projection import healthy, project_node, project_runner
from runyard.telemetry.catalogue import RUNYARD_LOOP_LAST_SUCCESS_SECONDS
from runyard.telemetry.freshness import due_within
from runyard.telemetry.names import Loop

AT_ONCE = 0.01
UNSYNCED_SECONDS = 1.0
NAME = Loop.RUNNER_POOL_CONTROLLER


class _Tally(msgspec.Struct):
    """What became of a plan."""

    created: int = 0
    reaped: int = 0
    spared: int = 0
    """Runners that the plan counted out and that are still there: as many creations too many."""
    setbacks: int = 0
    conflicts: int = 0
    failures: int = 0


class Operator:
    """Reconciles all pools until cancelled. `run` it once; after it ended, make a new one."""

    def __init__(self, deps: Deps) -> None:
        clock, meter, settings = deps.clock, deps.meter, deps.settings
        self._clock = clock
        self._freshness = deps.freshness
        self._served: dict[str, float] = {}  # pool → when it was last carried out without a failure
        self._meter = meter
        self._log = deps.log
        self._settings = settings
        self._memory = Memory()
        self._queue = WorkQueue(clock=clock, rng=deps.rng)
        changes = Changes(
            pool=self._on_pool, pod=self._on_pod, account=self._on_account, node=self._on_node
        )
        self._caches = Caches(deps, changes)
        self._observer = Observer(
            kube=deps.kube,
            caches=self._caches,
            memory=self._memory,
            clock=clock,
            settings=settings,
        )
        self._effects = Effects(
            deps,
            reports=StopReports(
                deps.server, clock=clock, token=deps.token, timeout=settings.report_seconds
            ),
            recorder=Recorder(deps.kube, component=NAME, clock=clock, rng=deps.rng),
            memory=self._memory,
            pod=self._caches.pods.store.get,
        )
        self._controller = Controller(
            NAME,
            self.reconcile,
            queue=self._queue,
            clock=clock,
            meter=meter,
            log=deps.log,
            capacity=Capacity(deadline=settings.reconcile_seconds),
        )

    async def run(self) -> None:
        """Watch and reconcile."""
        self._announce()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._caches.run(), name="caches")
            group.create_task(self._controller.run(), name=NAME)

    def _announce(self) -> None:
        for cache in self._caches.all:
            cache.track_freshness(self._freshness)
        settings = self._settings
        within = due_within(every=settings.steady_seconds, deadline=settings.reconcile_seconds)
        self._freshness.follow(NAME, within, self._last_success)

    def withdraw(self) -> None:
        """Expect nothing of its loops any more: the replica follows another leader now."""
        for cache in self._caches.all:
            cache.untrack_freshness(self._freshness)
        self._freshness.forget(NAME)

    def _last_success(self) -> float | None:
        """Of the pool that waits longest for one; without pools there is nothing to fail at."""
        if not self._caches.filled():
            return None
        earliest = self._clock.monotonic()
        for pool in self._caches.pools.store.values():
            last = self._served.get(key(pool))
            if last is None:
                return None
            earliest = min(earliest, last)
        return earliest

    async def reconcile(self, where: str) -> Result:
        """Bring one pool closer to what it asks for."""
        if not self._caches.filled():
            return Result(requeue_after=UNSYNCED_SECONDS)
        pool = self._caches.pools.store.get(where)
        if pool is None:
            metrics.forget(self._meter, split_key(where)[1])
            self._memory.forget_pool(where)
            self._served.pop(where, None)
            return Result()
        snapshot = await self._observer.snapshot(pool)
        plan = plan_pool(snapshot, self._settings, self._clock.now())
        self._publish(snapshot.pool, plan)
        tally = await self._apply(snapshot.pool, plan)
        if not tally.failures:
            self._served[where] = self._clock.monotonic()
            self._meter.set(RUNYARD_LOOP_LAST_SUCCESS_SECONDS, self._clock.now(), loop=NAME)
        return Result(requeue_after=self._pause(plan, tally))

    def _publish(self, pool: PoolView, plan: PoolPlan) -> None:
        metrics.publish(self._meter, pool.name, plan.figures)
        for uid in plan.figures.stuck:
            if self._memory.first_stuck(uid):
                metrics.outcome(self._meter, "StuckTermination", "host-still-there")
                self._log.warning("deletion is stuck", pool=pool.name, uid=uid)

    async def _apply(self, pool: PoolView, plan: PoolPlan) -> _Tally:
        tally = _Tally()
        for action in plan.actions[: self._settings.actions_per_reconcile]:
            if isinstance(action, CreateRunner) and (tally.spared or tally.setbacks):
                tally.spared = max(0, tally.spared - 1)
                continue
            result = await self._effects.apply(pool, action)
            tally.conflicts += result == "conflict"
            tally.failures += result not in HARMLESS
            if isinstance(action, ReapRunner) and action.reason is Why.FAILED_START:
                self._setback(pool)
                tally.setbacks += 1
            if isinstance(action, ReapRunner) and action.counted:
                survived = result not in ("done", "gone")
                tally.spared += survived
                tally.reaped += not survived
            if isinstance(action, CreateRunner):
                tally.created += result == "done"
                if result not in HARMLESS:
                    self._setback(pool)
                    break  # a full quota or an API in trouble would refuse the next one, too
        if plan.finalizers is not None:
            result = await self._effects.finalize(pool, plan.finalizers)
            tally.failures += result not in HARMLESS
        if plan.status is not None:
            observed = plan.status.observed - tally.reaped + tally.created
            await self._effects.publish(pool, plan.status, observed=observed)
        return tally

    def _setback(self, pool: PoolView) -> None:
        where, now = f"{pool.namespace}/{pool.name}", self._clock.monotonic()
        self._memory.setback(where, now=now, pauses=self._settings.setback_seconds)

    def _pause(self, plan: PoolPlan, tally: _Tally) -> float:
        settings = self._settings
        if tally.failures:
            return settings.error_seconds
        if len(plan.actions) > settings.actions_per_reconcile:
            return AT_ONCE
        if plan.gap or tally.conflicts or tally.setbacks or plan.finalizers is not None:
            return settings.gap_seconds
        return settings.error_seconds if plan.waiting else settings.steady_seconds

    def _on_pool(self, where: str, old: RunnerPool | None, new: RunnerPool | None) -> None:
        # Our own status writes come back as changes too: they must not start another round.
        if old is None or new is None or _asks(old) != _asks(new):
            self._queue.add(where)

    def _on_pod(self, where: str, old: Pod | None, new: Pod | None) -> None:
        if new is None:
            self._observer.forget(where)
        else:
            self._memory.settled(where)
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._memory.forget(old.metadata.uid)
        if old is None or new is None or _matters(old, new):
            self._add(old, new)

    def _on_account(
        self, where: str, old: ServiceAccount | None, new: ServiceAccount | None
    ) -> None:
        # Only a pool that is being deleted waits for accounts to go.
        pools = self._caches.pools.store
        for pool in pool_keys(old) if old is not None and new is None else ():
            if (found := pools.get(pool)) is not None and found.metadata.deletion_timestamp:
                self._queue.add(pool)

    def _on_node(self, where: str, old: Node | None, new: Node | None) -> None:
        if old is not None and new is not None:
            before = (project_node(old), healthy(old))
            if before == (project_node(new), healthy(new)):
                return  # a heartbeat
        for pool in self._caches.pools.store.values():
            self._queue.add(key(pool))

    def _add(self, *objects: HasMeta | None) -> None:
        for obj in objects:
            for where in pool_keys(obj) if obj is not None else ():
                self._queue.add(where)


def _asks(pool: RunnerPool) -> tuple[object, ...]:
    """What of a pool, besides the clock, a plan depends on."""
    meta = pool.metadata
    return (meta.uid, pool.spec, meta.deletion_timestamp, meta.finalizers, meta.annotations)


def _matters(old: Pod, new: Pod) -> bool:
    """Whether a change could change a plan; a new version or a sign of progress alone cannot."""
    after = project_runner(new)
    before = msgspec.structs.replace(
        project_runner(old),
        resource_version=after.resource_version,
        progress_at=after.progress_at,
    )
    return before != after or old.metadata.labels != new.metadata.labels
