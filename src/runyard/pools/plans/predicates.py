"""Predicates on one runner.

"Idle" guards every deletion, so it must never be true for a busy runner: a runner is idle
only if nothing marks it as busy and all of its fields could be read.
"""

from runyard.pools.plans.views import PoolView, RunnerView

TERMINAL = ("Succeeded", "Failed")


def alive(runner: RunnerView) -> bool:
    """Neither ended nor being deleted."""
    return runner.deleting_at is None and runner.phase not in TERMINAL


def terminal(runner: RunnerView) -> bool:
    """Ended, and not being deleted."""
    return runner.deleting_at is None and runner.phase in TERMINAL


def failed_start(runner: RunnerView, *, within: float) -> bool:
    """Failed without ever having been given a job, and so soon that its replacement would fail too."""
    if not terminal(runner) or runner.phase != "Failed" or not idle(runner):
        return False
    ended = runner.finished_at
    if runner.created_at is None or ended is None:
        return True
    return ended - runner.created_at < within


def idle(runner: RunnerView) -> bool:
    """Without a stamp, without a poller that ended with a job, and with every field readable."""
    return runner.readable and not runner.owner and runner.poller != "terminated"


def warm(runner: RunnerView, pool: PoolView) -> bool:
    """Able to take a job now. Under a stock kubelet a warm idle Pod is Pending all its life: its poller runs."""
    if pool.spec.agent_runtime:
        return runner.phase == "Running"
    return runner.poller == "running"


def stale_image(runner: RunnerView, pool: PoolView) -> bool:
    """Created from another image than the pool's; False for a Pod without containers."""
    return bool(runner.image) and runner.image != pool.spec.image


def stale_runtime(runner: RunnerView, pool: PoolView) -> bool:
    """Created for another revision of the runtime class."""
    return (
        pool.spec.os == "linux"
        and bool(pool.spec.runtime_class)
        and bool(pool.runtime_revision)
        and runner.runtime_revision != pool.runtime_revision
    )


def stale(runner: RunnerView, pool: PoolView) -> bool:
    """Created from a template that is no longer the pool's."""
    return stale_image(runner, pool) or stale_runtime(runner, pool)


def kata_pool(pool: PoolView) -> bool:
    """A pool whose starts are limited over the hosts that it shares."""
    return pool.spec.os == "linux" and pool.spec.runtime_class == "kata-qemu"


def provisioning(runner: RunnerView, pool: PoolView) -> bool:
    """Starting: alive, idle and not warm yet; runners without a host are included on purpose."""
    return alive(runner) and idle(runner) and not warm(runner, pool)


def start_seconds(pool: PoolView, *, darwin_floor: float) -> float:
    """How long a bound runner may make no progress before it is reaped; 0 means no limit."""
    seconds = float(max(0, pool.spec.provisioning.start_timeout_seconds))
    if seconds and pool.spec.os == "darwin":
        return max(seconds, darwin_floor)
    return seconds


def start_overdue(runner: RunnerView, pool: PoolView, *, darwin_floor: float, now: float) -> bool:
    """Bound to a host, not warm, and without progress for longer than the pool allows.

    The time counts from the binding, not from the creation, and anew from each progress. Progress in the future
    counts as now: a host with a wrong clock must not hide a stuck start.
    """
    limit = start_seconds(pool, darwin_floor=darwin_floor)
    if not limit or not runner.node or not provisioning(runner, pool):
        return False
    begun = runner.bound_at if runner.bound_at is not None else runner.created_at
    if begun is None:
        return False
    if runner.progress_at is not None:
        begun = max(begun, min(runner.progress_at, now))
    return now - begun > limit


def unschedulable_overdue(runner: RunnerView, pool: PoolView, *, now: float) -> bool:
    """No host has taken it for longer than the pool allows a start to last."""
    limit = max(0, pool.spec.provisioning.start_timeout_seconds)
    since = runner.unschedulable_since
    if not limit or runner.node or since is None or not provisioning(runner, pool):
        return False
    return now - since > limit


def drain_overdue(runner: RunnerView, *, limit: float, now: float) -> bool:
    """Marked, still idle, and without a poll for so long that none is expected any more."""
    return runner.marked and runner.marked_at is not None and now - runner.marked_at > limit


def deletion_stuck(runner: RunnerView, *, limit: float, now: float) -> bool:
    """Being deleted for longer than its grace period and the limit.

    Kubernetes writes the *end* of the grace period as `deletionTimestamp`; the grace period is added once more
    to be safe.
    """
    if runner.deleting_at is None or not runner.readable:
        return False
    return now - runner.deleting_at > runner.grace_seconds + limit
