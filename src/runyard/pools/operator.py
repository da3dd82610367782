"""Reconciles RunnerPools into Pods: as many runners as each spec requests, created from its image.

    watches ──▶ queue ──▶ snapshot ──▶ plan (pure) ──▶ actions, one by one

There is one worker on purpose: the plans of sibling pools share a budget of starts, so only one plan may be
applied at a time.

Invariants:
- Before every cache has been filled once there is no plan at all.
- The operator never deletes a runner that is busy: plans do not, and every deletion names the
  version in which the runner was idle, so a stamp that lands in between turns it into a conflict.
- A failed action is counted and planned again from a new snapshot, never repeated as it was.
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
from runyard.pools.events import PoolEvents
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
    """Counts the outcomes of a plan's actions."""

    created: int = 0
    reaped: int = 0
    survived: int = 0
    """Runners that the plan counts as removed and that still exist: so many creations are skipped."""
    failed_starts: int = 0
    conflicts: int = 0
    failures: int = 0


class Operator:
    """Reconciles all pools until cancelled. An instance can be run once."""

    def __init__(self, deps: Deps) -> None:
        clock, meter, settings = deps.clock, deps.meter, deps.settings
        self._clock = clock
        self._freshness = deps.freshness
        self._succeeded: dict[
            str, float
        ] = {}  # pool → when its plan was last applied without a failure
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
        recorder = Recorder(deps.kube, component=NAME, clock=clock, rng=deps.rng)
        self._events = PoolEvents(recorder, clock=clock, every=settings.event_seconds)
        self._effects = Effects(
            deps,
            reports=StopReports(
                deps.server, clock=clock, token=deps.token, timeout=settings.report_seconds
            ),
            recorder=recorder,
            events=self._events,
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
        """Remove its loops from `freshness`, because this replica does not lead any more."""
        for cache in self._caches.all:
            cache.untrack_freshness(self._freshness)
        self._freshness.forget(NAME)

    def _last_success(self) -> float | None:
        """The oldest among the last successes of all pools; now if there is no pool."""
        if not self._caches.filled():
            return None
        earliest = self._clock.monotonic()
        for pool in self._caches.pools.store.values():
            last = self._succeeded.get(key(pool))
            if last is None:
                return None
            earliest = min(earliest, last)
        return earliest

    async def reconcile(self, pool_key: str) -> Result:
        """Plan one pool and apply the plan."""
        if not self._caches.filled():
            return Result(requeue_after=UNSYNCED_SECONDS)
        pool = self._caches.pools.store.get(pool_key)
        if pool is None:
            metrics.forget(self._meter, split_key(pool_key)[1])
            self._memory.forget_pool(pool_key)
            self._events.forget(pool_key)
            self._succeeded.pop(pool_key, None)
            return Result()
        snapshot = await self._observer.snapshot(pool)
        plan = plan_pool(snapshot, self._settings, self._clock.now())
        self._publish(snapshot.pool, plan)
        tally = await self._apply(snapshot.pool, plan)
        await self._events.flush(snapshot.pool)
        if not tally.failures:
            self._succeeded[pool_key] = self._clock.monotonic()
            self._meter.set(RUNYARD_LOOP_LAST_SUCCESS_SECONDS, self._clock.now(), loop=NAME)
        return Result(requeue_after=self._pause(plan, tally))

    def _publish(self, pool: PoolView, plan: PoolPlan) -> None:
        metrics.publish(self._meter, pool.name, plan.figures)
        for uid in plan.figures.stuck:
            if self._memory.first_stuck(uid):
                metrics.outcome(self._meter, "StuckTermination", "host-still-there")
                self._log.warning("Pod deletion is stuck", pool=pool.name, uid=uid)

    async def _apply(self, pool: PoolView, plan: PoolPlan) -> _Tally:
        tally = _Tally()
        for action in plan.actions[: self._settings.actions_per_reconcile]:
            if isinstance(action, CreateRunner) and (tally.survived or tally.failed_starts):
                tally.survived = max(0, tally.survived - 1)
                continue
            result = await self._effects.apply(pool, action)
            tally.conflicts += result == "conflict"
            tally.failures += result not in HARMLESS
            if isinstance(action, ReapRunner) and action.reason is Why.FAILED_START:
                self._back_off(pool)
                tally.failed_starts += 1
            if isinstance(action, ReapRunner) and action.counted:
                survived = result not in ("done", "gone")
                tally.survived += survived
                tally.reaped += not survived
            if isinstance(action, CreateRunner):
                tally.created += result == "done"
                if result not in HARMLESS:
                    self._back_off(pool)
                    break  # a full quota or a failing API would refuse the next one, too
        if plan.finalizers is not None:
            result = await self._effects.finalize(pool, plan.finalizers)
            tally.failures += result not in HARMLESS
        if plan.status is not None:
            observed = plan.status.observed - tally.reaped + tally.created
            await self._effects.publish(pool, plan.status, observed=observed)
            self._events.add_roll(pool, plan.status)
        return tally

    def _back_off(self, pool: PoolView) -> None:
        pool_key, now = f"{pool.namespace}/{pool.name}", self._clock.monotonic()
        self._memory.back_off(pool_key, now=now, pauses=self._settings.backoff_seconds)

    def _pause(self, plan: PoolPlan, tally: _Tally) -> float:
        settings = self._settings
        if tally.failures:
            return settings.error_seconds
        if len(plan.actions) > settings.actions_per_reconcile:
            return AT_ONCE
        if plan.gap or tally.conflicts or tally.failed_starts or plan.finalizers is not None:
            return settings.gap_seconds
        return settings.error_seconds if plan.waiting else settings.steady_seconds

    def _on_pool(self, pool_key: str, old: RunnerPool | None, new: RunnerPool | None) -> None:
        # The operator's own status writes arrive as changes too: they must not cause another reconcile.
        if old is None or new is None or _plan_inputs(old) != _plan_inputs(new):
            self._queue.add(pool_key)

    def _on_pod(self, pod_key: str, old: Pod | None, new: Pod | None) -> None:
        if new is None:
            self._observer.forget(pod_key)
        else:
            self._memory.settled(pod_key)
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._memory.forget(old.metadata.uid)
        if old is None or new is None or _may_change_plan(old, new):
            self._add(old, new)

    def _on_account(
        self, account_key: str, old: ServiceAccount | None, new: ServiceAccount | None
    ) -> None:
        # Only a pool that is being deleted waits for the deletion of accounts.
        pools = self._caches.pools.store
        for pool in pool_keys(old) if old is not None and new is None else ():
            if (found := pools.get(pool)) is not None and found.metadata.deletion_timestamp:
                self._queue.add(pool)

    def _on_node(self, node_key: str, old: Node | None, new: Node | None) -> None:
        if old is not None and new is not None:
            before = (project_node(old), healthy(old))
            if before == (project_node(new), healthy(new)):
                return  # a heartbeat
        for pool in self._caches.pools.store.values():
            self._queue.add(key(pool))

    def _add(self, *objects: HasMeta | None) -> None:
        for obj in objects:
            for pool_key in pool_keys(obj) if obj is not None else ():
                self._queue.add(pool_key)


def _plan_inputs(pool: RunnerPool) -> tuple[object, ...]:
    """The fields of a pool that its plan depends on."""
    meta = pool.metadata
    return (meta.uid, pool.spec, meta.deletion_timestamp, meta.finalizers, meta.annotations)


def _may_change_plan(old: Pod, new: Pod) -> bool:
    """Whether this change of a Pod could change a plan; a new version or progress alone cannot."""
    after = project_runner(new)
    before = msgspec.structs.replace(
        project_runner(old),
        resource_version=after.resource_version,
        progress_at=after.progress_at,
    )
    return before != after or old.metadata.labels != new.metadata.labels
