"""Plans one pool: which runners to create and which to retire.

The order matters. Ended runners, hosts that leave and starts that timed out come first, then the surplus, then the
roll, and last the gap that all of this leaves, so that a runner is replaced in the same plan that retires it.

Invariants:
- A runner that is neither idle nor ended is never deleted. A deleted runner was idle in exactly the
  version that the deletion names.
- Scaling down takes stale runners first, then those that are not warm, then warm ones.
- Unknown facts (a node that is not listed, a creation without a response) delay actions and never cause a deletion.
- The plan is a pure function of its arguments.
"""

from runyard.pools.plans import conditions as condition
from runyard.pools.plans import predicates, rollout
from runyard.pools.plans.actions import (
    Action,
    Condition,
    CreateRunner,
    Figures,
    FinalizerChange,
    ForceDelete,
    MarkDrainEligible,
    PoolPlan,
    ReapAccount,
    ReapRunner,
    ReportStopped,
    StatusPatch,
)
from runyard.pools.plans.admission import Admission, admit
from runyard.pools.plans.reasons import Waiting, Why
from runyard.pools.plans.views import NodeView, Phase, PoolView, RunnerView, Snapshot
from runyard.pools.settings import Settings
from runyard.wire import names
from runyard.wire.instants import from_rfc3339, to_rfc3339


def plan_pool(snapshot: Snapshot, settings: Settings, now: float) -> PoolPlan:
    """Return the plan for one pool."""
    if snapshot.pool.deleting:
        return _plan_deletion(snapshot, settings, now)
    if names.POOL_DRAIN_FINALIZER not in snapshot.pool.finalizers:
        # Nothing is created that a deletion of the pool could then miss.
        return PoolPlan(finalizers=_finalizer_added(snapshot.pool), gap=snapshot.pool.spec.replicas)
    return _plan_replicas(snapshot, settings, now)


def _plan_replicas(snapshot: Snapshot, settings: Settings, now: float) -> PoolPlan:
    pool = snapshot.pool
    expected = len(snapshot.expected)
    ended, stuck = _ended(snapshot, settings, now)
    alive = tuple(runner for runner in snapshot.runners if predicates.alive(runner))
    lost = _lost(alive, snapshot, settings, now)
    kept = _without(alive, lost)
    surplus = _surplus(kept, pool, expected=expected, now=now)
    kept = _without(kept, surplus)
    roll = rollout.plan_roll(kept, pool, expected=expected)
    rolled = tuple(_reap(runner, Why.ROLLED, now) for runner in roll.reap)
    kept = _without(kept, rolled)
    gap = max(0, pool.spec.replicas - len(kept) - expected)
    admission = admit(gap, snapshot.fleet, held=snapshot.held_for > 0)
    actions: tuple[Action, ...] = (
        *ended,
        *lost,
        *surplus,
        *rolled,
        *(_mark(runner) for runner in roll.mark),
        *_orphans(snapshot, settings, now),
        *(_create(pool) for _ in range(admission.count)),
    )
    return PoolPlan(
        actions=actions,
        status=_status(
            pool,
            observed=len(alive) + expected,
            conditions=(
                condition.filled(
                    snapshot, missing=gap - admission.count, blocked=admission.blocked
                ),
                condition.rolled(roll, replicas=pool.spec.replicas),
            ),
            settings=settings,
            now=now,
        ),
        figures=_figures(alive, pool, roll, admission, stuck=stuck, expected=expected, now=now),
        gap=gap - admission.count,
    )


def _plan_deletion(snapshot: Snapshot, settings: Settings, now: float) -> PoolPlan:
    """Let jobs finish, delete everything else, and only then remove the pool's finalizer."""
    pool = snapshot.pool
    if names.POOL_DRAIN_FINALIZER not in pool.finalizers:
        return PoolPlan()
    ended, stuck = _ended(snapshot, settings, now)
    alive = tuple(runner for runner in snapshot.runners if predicates.alive(runner))
    leaving = tuple(
        _reap(runner, Why.POOL_DELETED, now) for runner in alive if predicates.idle(runner)
    )
    busy = len(alive) - len(leaving)
    present = {runner.name for runner in snapshot.runners if runner.deleting_at is None}
    accounts = tuple(
        _reap_account(account.name, account.uid, account.resource_version, Why.POOL_DELETED)
        for account in snapshot.accounts
        if not account.deleting and account.name not in present
    )
    waiting = None
    if busy:
        waiting = Waiting.BUSY_RUNNERS.because(count=busy)
    elif present or snapshot.accounts or snapshot.expected:
        waiting = Waiting.RUNNERS_TERMINATING.because()
    return PoolPlan(
        actions=(*ended, *leaving, *accounts),
        finalizers=None if waiting else _finalizer_removed(pool),
        status=_status(
            pool,
            observed=len(alive),
            conditions=(condition.deleting(waiting),),
            settings=settings,
            now=now,
        )
        if waiting
        else None,
        figures=Figures(
            stuck=stuck,
            pending=_in_phase(alive, "Pending"),
            running=_in_phase(alive, "Running"),
            unknown=_in_phase(alive, "Unknown"),
        ),
        waiting=waiting,
    )


def _ended(
    snapshot: Snapshot, settings: Settings, now: float
) -> tuple[tuple[Action, ...], tuple[str, ...]]:
    """Reap ended runners, report those that other clients deleted, and find stuck deletions."""
    nodes = {node.name: node for node in snapshot.nodes}
    actions: list[Action] = []
    stuck: list[str] = []
    for runner in snapshot.runners:
        if predicates.terminal(runner):
            early = predicates.failed_start(runner, within=settings.early_seconds)
            reason = Why.FAILED_START if early else Why.TERMINAL
            actions.append(_reap(runner, reason, now, detail=runner.phase, counted=False))
            continue
        if runner.deleting_at is None:
            continue
        if not runner.reported:
            actions.append(_report(runner, now))
        if predicates.deletion_stuck(runner, limit=settings.stuck_seconds, now=now):
            if _unhosted(runner, nodes):
                actions.append(_force(runner))
            else:
                stuck.append(runner.uid)
    return tuple(actions), tuple(stuck)


def _lost(
    alive: tuple[RunnerView, ...], snapshot: Snapshot, settings: Settings, now: float
) -> tuple[ReapRunner, ...]:
    """Reap idle runners whose host is being removed, or that did not start or drain in time."""
    nodes = {node.name: node for node in snapshot.nodes}
    reaps = []
    for runner in alive:
        reason = _loss(runner, snapshot.pool, nodes, settings=settings, now=now)
        if reason is not None and predicates.idle(runner):
            detail = runner.node or "no host"
            reaps.append(_reap(runner, reason, now, detail=detail))
    return tuple(reaps)


def _loss(
    runner: RunnerView,
    pool: PoolView,
    nodes: dict[str, NodeView],
    *,
    settings: Settings,
    now: float,
) -> Why | None:
    node = nodes.get(runner.node) if runner.node else None
    if node is not None and node.gone:
        return Why.NODE_GONE
    if node is not None and node.leaving:
        return Why.NODE_LEAVING
    floor = settings.darwin_start_seconds
    if predicates.start_overdue(runner, pool, darwin_floor=floor, now=now):
        return Why.START_TIMEOUT
    if predicates.unschedulable_overdue(runner, pool, now=now):
        return Why.UNSCHEDULABLE
    if predicates.drain_overdue(runner, limit=settings.drain_seconds, now=now):
        return Why.DRAIN_OVERDUE
    return None


def _surplus(
    kept: tuple[RunnerView, ...], pool: PoolView, *, expected: int, now: float
) -> tuple[ReapRunner, ...]:
    overflow = len(kept) + expected - pool.spec.replicas
    if overflow <= 0:
        return ()
    idle = [runner for runner in kept if predicates.idle(runner)]
    idle.sort(key=lambda runner: _retirement_order(runner, pool))
    return tuple(_reap(runner, Why.SCALED_DOWN, now) for runner in idle[:overflow])


def _retirement_order(runner: RunnerView, pool: PoolView) -> tuple[int, bool, float, str]:
    """Stale first, then not warm, then warm; among equals the youngest, which has done the least."""
    is_warm = predicates.warm(runner, pool)
    if predicates.stale(runner, pool):
        rank = 0
    else:
        rank = 2 if is_warm else 1
    return (rank, is_warm, -(runner.created_at or 0.0), runner.name)


def _orphans(snapshot: Snapshot, settings: Settings, now: float) -> tuple[ReapAccount, ...]:
    """Reap accounts that have no Pod and are too old to wait for one."""
    present = {runner.name for runner in snapshot.runners}
    present.update(snapshot.expected)
    return tuple(
        _reap_account(account.name, account.uid, account.resource_version, Why.POD_GONE)
        for account in snapshot.accounts
        if account.name not in present
        and not account.deleting
        and account.created_at is not None
        and now - account.created_at > settings.orphan_grace_seconds
    )


def _figures(
    alive: tuple[RunnerView, ...],
    pool: PoolView,
    roll: rollout.Roll,
    admission: Admission,
    *,
    stuck: tuple[str, ...],
    expected: int,
    now: float,
) -> Figures:
    idle = [runner for runner in alive if predicates.idle(runner)]
    ready = [r for r in idle if predicates.warm(r, pool) and not predicates.stale(r, pool)]
    pending = [r.created_at for r in alive if r.phase == "Pending" and r.created_at is not None]
    oldest = None
    if pool.spec.os == "darwin":
        oldest = max(0.0, now - min(pending, default=now))
    return Figures(
        rolling=roll.rolling,
        stale=sum(predicates.stale(runner, pool) for runner in alive),
        cap=roll.cap,
        idle=len(ready),
        provisioning=sum(not predicates.warm(runner, pool) for runner in idle) + expected,
        oldest_pending_seconds=oldest,
        stuck=stuck,
        blocked=admission.blocked,
        pending=_in_phase(alive, "Pending"),
        running=_in_phase(alive, "Running"),
        unknown=_in_phase(alive, "Unknown"),
    )


def _in_phase(alive: tuple[RunnerView, ...], phase: Phase) -> int:
    return sum(runner.phase == phase for runner in alive)


def _status(
    pool: PoolView,
    *,
    observed: int,
    conditions: tuple[Condition, ...],
    settings: Settings,
    now: float,
) -> StatusPatch:
    rolled_at = pool.status.image_rolled_at
    if pool.spec.image != pool.status.observed_image:
        rolled_at = to_rfc3339(now)
    return StatusPatch(
        uid=pool.uid,
        observed=observed,
        image=pool.spec.image,
        image_rolled_at=rolled_at,
        written=pool.status.observed_replicas,
        written_image=pool.status.observed_image,
        conditions=conditions,
        changed=condition.changed(conditions, pool.status.conditions),
        due=_due(pool.status.last_reconcile, settings.steady_seconds, now),
    )


def _due(last: str, every: float, now: float) -> bool:
    try:
        return now - from_rfc3339(last) >= every
    except ValueError:
        return True


def _unhosted(runner: RunnerView, nodes: dict[str, NodeView]) -> bool:
    """Whether no host will ever confirm this deletion: the Pod never had one, or its host is proven gone."""
    if not runner.node:
        return True
    node = nodes.get(runner.node)
    return node is not None and node.gone


def _without(
    runners: tuple[RunnerView, ...], reaps: tuple[ReapRunner, ...]
) -> tuple[RunnerView, ...]:
    gone = {reap.uid for reap in reaps}
    return tuple(runner for runner in runners if runner.uid not in gone)


def _reap(
    runner: RunnerView, reason: Why, now: float, *, detail: str = "", counted: bool = True
) -> ReapRunner:
    return ReapRunner(
        name=runner.name,
        uid=runner.uid,
        resource_version=runner.resource_version,
        ended_at=_ended_at(runner, now),
        reason=reason,
        detail=detail,
        counted=counted,
    )


def _ended_at(runner: RunnerView, now: float) -> float:
    """When it stopped: its container's end, else its deletion, else now; never in the future."""
    moment = runner.finished_at if runner.finished_at is not None else runner.deleting_at
    return now if moment is None else min(moment, now)


def _report(runner: RunnerView, now: float) -> ReportStopped:
    return ReportStopped(
        name=runner.name,
        uid=runner.uid,
        ended_at=_ended_at(runner, now),
        reason=Why.DELETED_EXTERNALLY,
    )


def _force(runner: RunnerView) -> ForceDelete:
    return ForceDelete(
        name=runner.name,
        uid=runner.uid,
        resource_version=runner.resource_version,
        reason=Why.NODE_GONE if runner.node else Why.NEVER_SCHEDULED,
    )


def _mark(runner: RunnerView) -> MarkDrainEligible:
    return MarkDrainEligible(
        name=runner.name,
        uid=runner.uid,
        resource_version=runner.resource_version,
        reason=Why.STALE_TEMPLATE,
    )


def _reap_account(name: str, uid: str, resource_version: str, reason: Why) -> ReapAccount:
    return ReapAccount(name=name, uid=uid, resource_version=resource_version, reason=reason)


def _create(pool: PoolView) -> CreateRunner:
    return CreateRunner(pool_uid=pool.uid, reason=Why.REPLICAS_MISSING)


def _finalizer_added(pool: PoolView) -> FinalizerChange:
    return FinalizerChange(
        uid=pool.uid,
        resource_version=pool.resource_version,
        finalizers=(*pool.finalizers, names.POOL_DRAIN_FINALIZER),
        reason=Why.GUARD_JOBS,
    )


def _finalizer_removed(pool: PoolView) -> FinalizerChange:
    return FinalizerChange(
        uid=pool.uid,
        resource_version=pool.resource_version,
        finalizers=tuple(f for f in pool.finalizers if f != names.POOL_DRAIN_FINALIZER),
        reason=Why.NO_RUNNER_LEFT,
    )
