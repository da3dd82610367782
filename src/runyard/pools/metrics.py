"""Publishes the metrics of a pool, and removes them when the pool is gone.

A gauge is always written, zero included: an alert on a series that is missing never fires.
"""

from runyard.pools.plans.actions import Figures
from runyard.pools.plans.reasons import Why
from runyard.telemetry import catalogue
from runyard.telemetry.meter import Meter
from runyard.telemetry.names import Component, slug_of

_OF_POOL = (
    catalogue.TUIST_RUNNERS_POOL_ROLLING_PODS,
    catalogue.TUIST_RUNNERS_POOL_STALE_PODS,
    catalogue.TUIST_RUNNERS_POOL_ROLL_CONCURRENCY_CAP,
    catalogue.TUIST_RUNNERS_POOL_PHASE_REPLICAS,
    catalogue.TUIST_RUNNERS_POOL_OLDEST_PENDING_POD_AGE_SECONDS,
    catalogue.TUIST_RUNNERS_POOL_IDLE_REPLICAS,
    catalogue.TUIST_RUNNERS_POOL_PENDING_PROVISIONING_PODS,
    catalogue.TUIST_RUNNERS_POOL_ADMISSION_BLOCKED_TOTAL,
    catalogue.TUIST_RUNNERS_POOL_POD_START_TIMEOUTS_TOTAL,
)

_START_TIMEOUTS = {
    Why.START_TIMEOUT: "poller_not_started",
    Why.UNSCHEDULABLE: "unschedulable",
}


def publish(meter: Meter, pool: str, figures: Figures) -> None:
    """Write the metrics of one pool."""
    meter.set(catalogue.TUIST_RUNNERS_POOL_ROLLING_PODS, figures.rolling, pool=pool)
    meter.set(catalogue.TUIST_RUNNERS_POOL_STALE_PODS, figures.stale, pool=pool)
    meter.set(catalogue.TUIST_RUNNERS_POOL_ROLL_CONCURRENCY_CAP, figures.cap, pool=pool)
    meter.set(catalogue.TUIST_RUNNERS_POOL_IDLE_REPLICAS, figures.idle, pool=pool)
    phases = catalogue.TUIST_RUNNERS_POOL_PHASE_REPLICAS
    meter.set(phases, figures.pending, pool=pool, phase="Pending")
    meter.set(phases, figures.running, pool=pool, phase="Running")
    meter.set(phases, figures.unknown, pool=pool, phase="Unknown")
    provisioning = catalogue.TUIST_RUNNERS_POOL_PENDING_PROVISIONING_PODS
    meter.set(provisioning, figures.provisioning, pool=pool)
    if figures.oldest_pending_seconds is not None:
        age = catalogue.TUIST_RUNNERS_POOL_OLDEST_PENDING_POD_AGE_SECONDS
        meter.set(age, figures.oldest_pending_seconds, pool=pool)
    if figures.blocked is not None:
        blocked = catalogue.TUIST_RUNNERS_POOL_ADMISSION_BLOCKED_TOTAL
        meter.inc(blocked, pool=pool, reason=figures.blocked.label)


def start_timed_out(meter: Meter, pool: str, reason: Why) -> None:
    """Count a runner that was deleted because it did not start in time; ignores other reasons."""
    if reason in _START_TIMEOUTS:
        metric = catalogue.TUIST_RUNNERS_POOL_POD_START_TIMEOUTS_TOTAL
        meter.inc(metric, pool=pool, reason=_START_TIMEOUTS[reason])


def outcome(meter: Meter, action: str, result: str) -> None:
    """Count the outcome of one action."""
    meter.inc(
        catalogue.RUNYARD_ACTIONS_TOTAL,
        component=Component.OPERATOR,
        action=slug_of(action),
        outcome=result,
    )


def forget(meter: Meter, pool: str) -> None:
    """Remove the series of a deleted pool, or an alert would keep firing on their last values."""
    for metric in _OF_POOL:
        meter.clear(metric, pool=pool)
