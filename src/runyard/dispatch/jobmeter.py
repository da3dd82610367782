"""What becomes of jobs, as counters and distributions, by the pool that they ran in or could.

Fed by committed transitions alone (`noting`), so that a retry, a duplicate webhook or a lost race counts nothing.
"""

from runyard.dispatch.machine.values import JobState
from runyard.dispatch.matching.values import fits
from runyard.dispatch.noting import JobMoved
from runyard.dispatch.pools import Pools
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
    Metric,
)
from runyard.telemetry.meter import Meter

_CONCLUSIONS = (
    *("success", "failure", "cancelled", "skipped", "neutral", "timed_out", "action_required"),
    *("stale", "startup_failure", "gone", "unknown"),
)


class JobMeter:
    """Counts what became of jobs."""

    def __init__(self, *, pools: Pools, meter: Meter) -> None:
        self._pools = pools
        self._meter = meter

    def saw(self, moved: JobMoved) -> None:
        """One job has moved."""
        source, target = moved.change.source, moved.change.job.state
        if source is target:
            return
        fleet = moved.pool or self._fitting(moved.labels)
        match target:
            case JobState.QUEUED if source is JobState.BOUND:
                self._given_back(moved, fleet)
            case JobState.QUEUED:
                self._meter.inc(TUIST_RUNNERS_JOB_ENQUEUED_COUNT, fleet=fleet)
            case JobState.BOUND:
                self._took(TUIST_RUNNERS_JOB_QUEUE_TIME_MILLISECONDS, moved.queued, fleet)
            case JobState.RUNNING:
                self._runs(moved, fleet)
            case JobState.DONE:
                self._over(moved, fleet)
            case JobState.WAITING:
                pass

    def _given_back(self, moved: JobMoved, fleet: str) -> None:
        self._meter.inc(TUIST_RUNNERS_JOB_REQUEUED_COUNT, fleet=fleet)
        if moved.change.why.startswith("fence"):
            self._took(TUIST_RUNNERS_RECOVERY_STRANDED_TIME_MILLISECONDS, moved.claimed, fleet)

    def _runs(self, moved: JobMoved, fleet: str) -> None:
        self._meter.inc(TUIST_RUNNERS_JOB_RUNNING_COUNT, fleet=fleet)
        self._took(TUIST_RUNNERS_JOB_QUEUE_TO_RUNNING_TIME_MILLISECONDS, moved.queued, fleet)
        if moved.change.source is JobState.BOUND:
            claimed = moved.claimed
            self._took(TUIST_RUNNERS_JOB_CLAIM_TO_RUNNING_TIME_MILLISECONDS, claimed, fleet)

    def _over(self, moved: JobMoved, fleet: str) -> None:
        said = moved.change.job.conclusion
        conclusion = said if said in _CONCLUSIONS else "other"
        self._meter.inc(TUIST_RUNNERS_JOB_COMPLETED_COUNT, fleet=fleet, conclusion=conclusion)
        if moved.started is not None:
            self._took(TUIST_RUNNERS_JOB_RUN_TIME_MILLISECONDS, moved.started, fleet)
            self._took(TUIST_RUNNERS_JOB_TOTAL_TIME_MILLISECONDS, moved.queued, fleet)

    def _took(self, metric: Metric, seconds: float | None, fleet: str) -> None:
        if seconds is not None:
            self._meter.observe(metric, max(0.0, seconds) * 1000, fleet=fleet)

    def _fitting(self, labels: tuple[str, ...]) -> str:
        """The pool that would take such a job, by its name; nothing if there is none."""
        return next((pool.name for pool in self._pools.known if fits(pool, labels)), "")
