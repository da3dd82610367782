"""Every metric that runyard exports, declared once.

A metric is a frozen value; rooms pass it to a `Meter` and can neither invent a name nor a label. The
constant is the wire name in upper case, exactly and without exception, so that a dashboard's query and
the line of code that feeds it are found by the same search.

The names and labels are the wire: dashboards and alerts of existing fleets read them. Note that the
server's event counters end in `_count` and not in `_total`; that is how they are read, so it stays.

Cardinality: `fleet` and `pool` are the only labels that fan out; an account, a Pod or a job is never
a label. Polled gauges write an explicit 0, and a pool's series are cleared when the pool disappears.
"""

from enum import StrEnum

import msgspec

SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
WAIT_MILLISECONDS = (
    50.0,
    100.0,
    250.0,
    500.0,
    1000.0,
    2500.0,
    5000.0,
    10000.0,
    30000.0,
    60000.0,
    300000.0,
)
RUN_MILLISECONDS = (
    1000.0,
    5000.0,
    30000.0,
    60000.0,
    300000.0,
    900000.0,
    1800000.0,
    3600000.0,
    7200000.0,
    14400000.0,
    21600000.0,
)
JOB_MILLISECONDS = (
    100.0,
    250.0,
    500.0,
    1000.0,
    2500.0,
    5000.0,
    10000.0,
    30000.0,
    60000.0,
    300000.0,
    600000.0,
)
REQUEST_MILLISECONDS = (10.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 5000.0, 10000.0)
LONG_SECONDS = (1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 3600.0)


class Kind(StrEnum):
    """The three shapes that a metric can have."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class Metric(msgspec.Struct, frozen=True):
    """One declared metric."""

    kind: Kind
    name: str
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...] = ()


_declared: list[Metric] = []


def _declare(metric: Metric) -> Metric:
    if any(known.name == metric.name for known in _declared):
        raise ValueError(f"metric {metric.name} is declared twice")
    _declared.append(metric)
    return metric


def gauge(name: str, *, labels: tuple[str, ...] = (), help: str) -> Metric:
    """Declare a value that goes up and down."""
    return _declare(Metric(Kind.GAUGE, name, labels, help))


def counter(name: str, *, labels: tuple[str, ...] = (), help: str) -> Metric:
    """Declare a value that only grows."""
    return _declare(Metric(Kind.COUNTER, name, labels, help))


def histogram(
    name: str,
    *,
    labels: tuple[str, ...] = (),
    help: str,
    buckets: tuple[float, ...],
) -> Metric:
    """Declare a distribution; `buckets` are upper bounds, ascending, without infinity."""
    if not buckets or list(buckets) != sorted(set(buckets)):
        raise ValueError(f"buckets of {name} must ascend")
    return _declare(Metric(Kind.HISTOGRAM, name, labels, help, buckets))


# ── pool operator ───────────────────────────────────────────────────────────────────────────────

TUIST_RUNNERS_POOL_ROLLING_PODS = gauge(
    "tuist_runners_pool_rolling_pods",
    labels=("pool",),
    help="Pods that hold a slot of the roll budget.",
)
TUIST_RUNNERS_POOL_STALE_PODS = gauge(
    "tuist_runners_pool_stale_pods",
    labels=("pool",),
    help="Pods that still run a previous template.",
)
TUIST_RUNNERS_POOL_ROLL_CONCURRENCY_CAP = gauge(
    "tuist_runners_pool_roll_concurrency_cap",
    labels=("pool",),
    help="How many Pods may roll at once.",
)
TUIST_RUNNERS_POOL_PHASE_REPLICAS = gauge(
    "tuist_runners_pool_phase_replicas",
    labels=("pool", "phase"),
    help="Pods by phase: Pending, Running, Unknown.",
)
TUIST_RUNNERS_POOL_OLDEST_PENDING_POD_AGE_SECONDS = gauge(
    "tuist_runners_pool_oldest_pending_pod_age_seconds",
    labels=("pool",),
    help="Age of the oldest pending Pod (darwin pools).",
)
TUIST_RUNNERS_POOL_IDLE_REPLICAS = gauge(
    "tuist_runners_pool_idle_replicas",
    labels=("pool",),
    help="Running Pods that wait for a job.",
)
TUIST_RUNNERS_POOL_PENDING_PROVISIONING_PODS = gauge(
    "tuist_runners_pool_pending_provisioning_pods",
    labels=("pool",),
    help="Pods that are still being provisioned.",
)
TUIST_RUNNERS_POOL_ADMISSION_BLOCKED_TOTAL = counter(
    "tuist_runners_pool_admission_blocked_total",
    labels=("pool", "reason"),
    help="Pods not created, by what stood in the way.",
)
TUIST_RUNNERS_POOL_POD_START_TIMEOUTS_TOTAL = counter(
    "tuist_runners_pool_pod_start_timeouts_total",
    labels=("pool", "reason"),
    help="Pods deleted because they did not start in time.",
)

# ── dispatch server ─────────────────────────────────────────────────────────────────────────────

TUIST_RUNNERS_JOB_ENQUEUED_COUNT = counter(
    "tuist_runners_job_enqueued_count", labels=("fleet",), help="Jobs that entered the queue."
)
TUIST_RUNNERS_JOB_CLAIM_COUNT = counter(
    "tuist_runners_job_claim_count",
    labels=("fleet", "outcome"),
    help="Attempts to claim a job for a runner, by outcome.",
)
TUIST_RUNNERS_JOB_RUNNING_COUNT = counter(
    "tuist_runners_job_running_count", labels=("fleet",), help="Jobs that began to run."
)
TUIST_RUNNERS_JOB_COMPLETED_COUNT = counter(
    "tuist_runners_job_completed_count",
    labels=("fleet", "conclusion"),
    help="Jobs that are over, by GitHub's conclusion.",
)
TUIST_RUNNERS_JOB_REQUEUED_COUNT = counter(
    "tuist_runners_job_requeued_count",
    labels=("fleet",),
    help="Jobs that were given back to the queue after they had been given to a runner.",
)
TUIST_RUNNERS_JOB_QUEUE_TIME_MILLISECONDS = histogram(
    "tuist_runners_job_queue_time_milliseconds",
    labels=("fleet",),
    help="From entering the queue until a runner was chosen.",
    buckets=WAIT_MILLISECONDS,
)
TUIST_RUNNERS_JOB_QUEUE_TO_RUNNING_TIME_MILLISECONDS = histogram(
    "tuist_runners_job_queue_to_running_time_milliseconds",
    labels=("fleet",),
    help="From entering the queue until it ran.",
    buckets=WAIT_MILLISECONDS,
)
TUIST_RUNNERS_JOB_CLAIM_TO_RUNNING_TIME_MILLISECONDS = histogram(
    "tuist_runners_job_claim_to_running_time_milliseconds",
    labels=("fleet",),
    help="From the choice of a runner until the job ran.",
    buckets=WAIT_MILLISECONDS,
)
TUIST_RUNNERS_JOB_RUN_TIME_MILLISECONDS = histogram(
    "tuist_runners_job_run_time_milliseconds",
    labels=("fleet",),
    help="From the start of a job to its end.",
    buckets=RUN_MILLISECONDS,
)
TUIST_RUNNERS_JOB_TOTAL_TIME_MILLISECONDS = histogram(
    "tuist_runners_job_total_time_milliseconds",
    labels=("fleet",),
    help="From entering the queue to the end of the job.",
    buckets=RUN_MILLISECONDS,
)
TUIST_RUNNERS_RECOVERY_STRANDED_TIME_MILLISECONDS = histogram(
    "tuist_runners_recovery_stranded_time_milliseconds",
    labels=("fleet",),
    help="How long a job was held by a runner that never ran it, until recovery gave it back.",
    buckets=RUN_MILLISECONDS,
)
TUIST_RUNNERS_DISPATCH_REQUEST_DURATION_MILLISECONDS = histogram(
    "tuist_runners_dispatch_request_duration_milliseconds",
    labels=("fleet", "outcome"),
    help="How long a poll took, without the time that it was kept waiting for work.",
    buckets=REQUEST_MILLISECONDS,
)
TUIST_RUNNERS_DISPATCH_REQUEST_COUNT = counter(
    "tuist_runners_dispatch_request_count",
    labels=("fleet", "outcome"),
    help="Polls of runners, by outcome.",
)
RUNYARD_POLL_WAKES_TOTAL = counter(
    "runyard_poll_wakes_total",
    labels=("pool",),
    help="Polls that were woken before their time; a job should wake one.",
)
TUIST_RUNNERS_WEBHOOK_COUNT = counter(
    "tuist_runners_webhook_count",
    labels=("action", "outcome"),
    help="Webhooks received, by action and what came of them.",
)
TUIST_RUNNERS_RECOVERY_COUNT = counter(
    "tuist_runners_recovery_count",
    labels=("kind",),
    help="Leaks healed, by kind; a batch of N counts N.",
)
TUIST_RUNNERS_QUEUE_LENGTH = gauge(
    "tuist_runners_queue_length", labels=("fleet",), help="Jobs that wait."
)
TUIST_RUNNERS_QUEUE_WITHHELD = gauge(
    "tuist_runners_queue_withheld",
    labels=("fleet",),
    help="Jobs that wait although a runner is free, because of a limit.",
)
TUIST_RUNNERS_QUEUE_OLDEST_AGE_SECONDS = gauge(
    "tuist_runners_queue_oldest_age_seconds",
    labels=("fleet",),
    help="Age of the job that waits longest.",
)
TUIST_RUNNERS_QUEUE_OLDEST_DISPATCHABLE_AGE_SECONDS = gauge(
    "tuist_runners_queue_oldest_dispatchable_age_seconds",
    labels=("fleet",),
    help="Age of the oldest job that could be dispatched now; high while runners idle is a page.",
)
TUIST_RUNNERS_CLAIMS_COUNT = gauge(
    "tuist_runners_claims_count",
    labels=("fleet", "lifecycle_state"),
    help="Claims by state.",
)
TUIST_RUNNERS_SESSION_CLAMPED_COUNT = gauge(
    "tuist_runners_session_clamped_count",
    labels=("fleet",),
    help="Pods that have been given to somebody for more than six hours.",
)
TUIST_RUNNERS_POOL_REPLICAS_DESIRED = gauge(
    "tuist_runners_pool_replicas_desired",
    labels=("fleet",),
    help="Runners that a pool should have.",
)
TUIST_RUNNERS_POOL_REPLICAS_OBSERVED = gauge(
    "tuist_runners_pool_replicas_observed",
    labels=("fleet",),
    help="Runners that a pool has, by its status.",
)
TUIST_RUNNERS_POOL_REPLICAS_MAX = gauge(
    "tuist_runners_pool_replicas_max",
    labels=("fleet",),
    help="Runners that a pool may grow to; 0 if it does not grow by itself.",
)

# ── node agent ──────────────────────────────────────────────────────────────────────────────────

TART_KUBELET_POD_PROVISION_DELAY_SECONDS = histogram(
    "tart_kubelet_pod_provision_delay_seconds",
    labels=("pool",),
    help="From the Pod's creation until its VM was started.",
    buckets=LONG_SECONDS,
)
TART_KUBELET_VM_BOOT_DURATION_SECONDS = histogram(
    "tart_kubelet_vm_boot_duration_seconds",
    labels=("pool",),
    help="From the VM's start until it had an address.",
    buckets=LONG_SECONDS,
)
TART_KUBELET_GUEST_DISK_USAGE_PERCENT = gauge(
    "tart_kubelet_guest_disk_usage_percent",
    labels=("vm",),
    help="Used share of a guest's root volume: (total - available) / total.",
)
TART_KUBELET_UNOWNED_VMS = gauge(
    "tart_kubelet_unowned_vms",
    help="VMs on this host that the agent has no record for; it never touches them.",
)

# ── processor of test results ───────────────────────────────────────────────────────────────────

TUIST_OBAN_QUEUE_LENGTH_COUNT = gauge(
    "tuist_oban_queue_length_count",
    labels=("queue", "state"),
    help="Runs by what they wait for: available, retryable, scheduled, executing.",
)
TUIST_OBAN_QUEUE_OLDEST_AVAILABLE_AGE_SECONDS = gauge(
    "tuist_oban_queue_oldest_available_age_seconds",
    labels=("queue",),
    help="How long the oldest run that could be begun has waited for it.",
)
TUIST_OBAN_JOB_PROCESSING_DURATION_MILLISECONDS = histogram(
    "tuist_oban_job_processing_duration_milliseconds",
    labels=("queue", "state"),
    help="How long an attempt took, by how it ended.",
    buckets=JOB_MILLISECONDS,
)
TUIST_OBAN_JOB_QUEUE_TIME_MILLISECONDS = histogram(
    "tuist_oban_job_queue_time_milliseconds",
    labels=("queue",),
    help="How long a run waited before its first attempt.",
    buckets=WAIT_MILLISECONDS,
)
TUIST_REPO_POOL_READY_CONN_COUNT = gauge(
    "tuist_repo_pool_ready_conn_count",
    labels=("repo",),
    help="Connections to the database that are open and free.",
)
TUIST_REPO_POOL_SIZE = gauge(
    "tuist_repo_pool_size", labels=("repo",), help="Connections to the database that are open."
)
TUIST_REPO_POOL_CHECKOUT_QUEUE_STARVED_SAMPLES = gauge(
    "tuist_repo_pool_checkout_queue_starved_samples",
    labels=("repo",),
    help="How many looks of the last minute found somebody waiting although all connections were open.",
)
RUNYARD_PROCESSOR_ATTEMPTS_TOTAL = counter(
    "runyard_processor_attempts_total",
    labels=("outcome", "code"),
    help="Attempts that ended, by what became of them and why.",
)
RUNYARD_PROCESSOR_DISCARDS_TOTAL = counter(
    "runyard_processor_discards_total", labels=("code",), help="Runs that were given up, by cause."
)
RUNYARD_PROCESSOR_PHASE_SECONDS = histogram(
    "runyard_processor_phase_seconds",
    labels=("phase",),
    help="How long a phase of an attempt took: download, read, upload, write.",
    buckets=LONG_SECONDS,
)
RUNYARD_PROCESSOR_MENDED_TOTAL = counter(
    "runyard_processor_mended_total",
    labels=("what",),
    help="Runs of dead workers taken over, and disagreements of rows and queue that were mended.",
)
RUNYARD_PROCESSOR_CONSUMERS = gauge(
    "runyard_processor_consumers", help="Processors that were heard of within 30 s."
)
RUNYARD_PROCESSOR_BUSY = gauge(
    "runyard_processor_busy", help="Runs that this processor works on now."
)
RUNYARD_PROCESSOR_SCRATCH_BYTES = gauge(
    "runyard_processor_scratch_bytes", help="Bytes of all files in the scratch directory."
)
RUNYARD_PROCESSOR_SCRATCH_FREE_BYTES = gauge(
    "runyard_processor_scratch_free_bytes",
    help="Bytes that are left on the filesystem of the scratch directory.",
)
RUNYARD_PROCESSOR_SCRATCH_SWEPT_TOTAL = counter(
    "runyard_processor_scratch_swept_total",
    help="Directories that were left behind by a crash and removed.",
)
RUNYARD_PROCESSOR_ATTACHMENTS_TOTAL = counter(
    "runyard_processor_attachments_total",
    labels=("outcome",),
    help="Payloads of attachments: uploaded, known already, or dropped because their upload failed.",
)
RUNYARD_PROCESSOR_CHECKS_TOTAL = counter(
    "runyard_processor_checks_total",
    labels=("outcome",),
    help="Comparisons with Apple's own tool: same, different, failed.",
)
RUNYARD_TEST_UPLOADS_TOTAL = counter(
    "runyard_test_uploads_total",
    labels=("outcome",),
    help="Uploads of result bundles: announced, completed, missing, refused, adopted.",
)
RUNYARD_BLOBS_REMOVED_TOTAL = counter(
    "runyard_blobs_removed_total",
    labels=("kind", "outcome"),
    help="Objects that nothing refers to any more: removed, or not yet because the store failed.",
)
RUNYARD_BLOBS_GRAVES = gauge(
    "runyard_blobs_graves", help="Objects that nothing refers to and that are still to be removed."
)

# ── runyard's own ───────────────────────────────────────────────────────────────────────────────

RUNYARD_RECONCILE_TOTAL = counter(
    "runyard_reconcile_total", labels=("controller", "result"), help="Reconciles, by result."
)
RUNYARD_RECONCILE_SECONDS = histogram(
    "runyard_reconcile_seconds",
    labels=("controller",),
    help="How long a reconcile took.",
    buckets=SECONDS,
)
RUNYARD_WATCH_AGE_SECONDS = gauge(
    "runyard_watch_age_seconds",
    labels=("kind",),
    help="Seconds since the watch last proved to be alive.",
)
RUNYARD_WATCH_RESTARTS_TOTAL = counter(
    "runyard_watch_restarts_total", labels=("kind", "cause"), help="Watches begun again, by cause."
)
RUNYARD_QUEUE_DEPTH = gauge(
    "runyard_queue_depth", labels=("controller",), help="Keys that wait for a reconcile."
)
RUNYARD_LOOP_LAST_SUCCESS_SECONDS = gauge(
    "runyard_loop_last_success_seconds",
    labels=("loop",),
    help="When the loop last succeeded, in seconds since the epoch; its start before that.",
)
RUNYARD_LOOP_FAILURES_TOTAL = counter(
    "runyard_loop_failures_total", labels=("loop", "kind"), help="Failed steps of a loop, by kind."
)
RUNYARD_ACTIONS_TOTAL = counter(
    "runyard_actions_total",
    labels=("room", "action", "outcome"),
    help="Actions of plans that were applied, by outcome.",
)
RUNYARD_FENCES_TOTAL = counter(
    "runyard_fences_total", labels=("answer",), help="Fences at GitHub, by its answer."
)
RUNYARD_CONDITION = gauge(
    "runyard_condition",
    labels=("condition",),
    help="Whether that health condition is failing for longer than it may: 1 or 0.",
)
RUNYARD_FORBIDDEN_TOTAL = counter(
    "runyard_forbidden_total",
    labels=("request",),
    help="Requests that the Kubernetes API refused for want of a right, without the object's name.",
)
RUNYARD_RECONCILED_TOTAL = counter(
    "runyard_reconciled_total",
    labels=("reconciler", "outcome"),
    help="Findings of the reconcilers: healed, left, failed, or what a dry run would have done.",
)
RUNYARD_DELETIONS_TOTAL = counter(
    "runyard_deletions_total",
    labels=("what", "outcome"),
    help="Pods, accounts and registrations that the server wanted gone, by outcome.",
)
RUNYARD_PRUNED_ROWS_TOTAL = counter(
    "runyard_pruned_rows_total", labels=("table",), help="Old rows that were deleted, by table."
)
RUNYARD_GITHUB_BUDGET_RATIO = gauge(
    "runyard_github_budget_ratio",
    help="What is left of the scarcest installation's budget at GitHub, as a share of the whole.",
)
RUNYARD_GITHUB_CLOSED = gauge(
    "runyard_github_closed", help="Installations that GitHub told to wait, and that do."
)
RUNYARD_NOTICES_TOTAL = counter(
    "runyard_notices_total",
    labels=("outcome",),
    help="Notices between replicas, told and heard, and how often their connections failed.",
)

ALL: tuple[Metric, ...] = tuple(_declared)
