"""Exports counters and histograms of jobs, by the pool that they run in or fit.

Only committed transitions are counted (`recorded_tx`), so a retried transaction, a duplicate webhook or a lost race is
not counted.
"""

from runyard.dispatch.machine.values import JobState
from runyard.dispatch.matching.values import fits
from runyard.dispatch.pools import Pools
from runyard.dispatch.recorded_tx import JobTransition
from runyard.telemetry.catalogue import (
    TUIST_RUNNERS_JOB_CLAIM_TO_RUNNING_TIME_MILLISECONDS,
    TUIST_RUNNERS_JOB_COMPLETED_COUNT,
    TUIST_RUNNERS_JOB_ENQUEUED_COUNT,
    TUIST_RUNNERS_JOB_QUEUE_TIME_MILLISECONDS,
    TUIST_RUNNERS_JOB_QUEUE_TO_RUNNING_TIME_MILLISECONDS,
    TUIST_RUNNERS_JOB_REQUEUED_COUNT,
    TUIST_RUNNERS_JOB_RUN_TIME_MILLISECONDS,
    TUIST_RUNNERS_JOB_RUNNING_COUNT,
    TUIST_RUNNERS_JOB_TOTAL_TIME_MILLISECONDS,
    TUIST_RUNNERS_RECOVERY_STRANDED_TIME_MILLISECONDS,
)
from runyard.telemetry.meter import Meter
from runyard.telemetry.metric import Metric
from runyard.wire.reasons_dispatch import FENCED

_CONCLUSIONS = (
    *("success", "failure", "cancelled", "skipped", "neutral", "timed_out", "action_required"),
    *("stale", "startup_failure", "gone", "unknown"),
)


class JobMetrics:
    """Counts and times the transitions of jobs."""

    def __init__(self, *, pools: Pools, meter: Meter) -> None:
        self._pools = pools
        self._meter = meter

    def record(self, transition: JobTransition) -> None:
        """Count one committed transition."""
        source, target = transition.change.source, transition.change.job.state
        if source is target:
            return
        fleet = transition.pool or self._pool_for(transition.labels)
        match target:
            case JobState.QUEUED if transition.requeued:
                self._count_requeued(transition, fleet)
            case JobState.QUEUED:
                self._meter.inc(TUIST_RUNNERS_JOB_ENQUEUED_COUNT, fleet=fleet)
            case JobState.BOUND:
                self._observe(TUIST_RUNNERS_JOB_QUEUE_TIME_MILLISECONDS, transition.queued, fleet)
            case JobState.RUNNING:
                self._count_started(transition, fleet)
            case JobState.DONE:
                self._count_ended(transition, fleet)
            case JobState.WAITING:
                pass

    def _count_requeued(self, transition: JobTransition, fleet: str) -> None:
        self._meter.inc(TUIST_RUNNERS_JOB_REQUEUED_COUNT, fleet=fleet)
        if transition.change.reason.code in FENCED:
            self._observe(
                TUIST_RUNNERS_RECOVERY_STRANDED_TIME_MILLISECONDS, transition.claimed, fleet
            )

    def _count_started(self, transition: JobTransition, fleet: str) -> None:
        self._meter.inc(TUIST_RUNNERS_JOB_RUNNING_COUNT, fleet=fleet)
        self._observe(
            TUIST_RUNNERS_JOB_QUEUE_TO_RUNNING_TIME_MILLISECONDS, transition.queued, fleet
        )
        if transition.change.source is JobState.BOUND:
            claimed = transition.claimed
            self._observe(TUIST_RUNNERS_JOB_CLAIM_TO_RUNNING_TIME_MILLISECONDS, claimed, fleet)

    def _count_ended(self, transition: JobTransition, fleet: str) -> None:
        reported = transition.change.job.conclusion
        conclusion = reported if reported in _CONCLUSIONS else "other"
        self._meter.inc(TUIST_RUNNERS_JOB_COMPLETED_COUNT, fleet=fleet, conclusion=conclusion)
        if transition.started is not None:
            self._observe(TUIST_RUNNERS_JOB_RUN_TIME_MILLISECONDS, transition.started, fleet)
            self._observe(TUIST_RUNNERS_JOB_TOTAL_TIME_MILLISECONDS, transition.queued, fleet)

    def _observe(self, metric: Metric, seconds: float | None, fleet: str) -> None:
        if seconds is not None:
            self._meter.observe(metric, max(0.0, seconds) * 1000, fleet=fleet)

    def _pool_for(self, labels: tuple[str, ...]) -> str:
        """The name of the first pool that fits these labels; empty if none does."""
        return next((pool.name for pool in self._pools.known if fits(pool, labels)), "")
