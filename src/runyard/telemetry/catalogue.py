"""Every metric that runyard exports, declared once.

A metric is a frozen value; packages pass it to a `Meter` and can use no other name or label. The
constant is the wire name in upper case, exactly and without exception, so that a dashboard's query and
the line of code that feeds it are found by the same search. `docs/metrics.md` is generated from here.

The names and labels are frozen: dashboards and alerts read them. `tuist_*` and `tart_kubelet_*` are those of
existing fleets, with their labels and values. Note that the server's event counters end in `_count`
and not in `_total`; that is how they are read, so it stays. In `runyard_*` every label value is a slug.

Cardinality: `fleet` and `pool` are the only labels that fan out; an account, a Pod or a job is never
a label. Polled gauges write an explicit 0, and a pool's series are cleared when the pool disappears.
"""

from runyard.telemetry.buckets import (
    BOOT_SECONDS,
    JOB_MILLISECONDS,
    LONG_SECONDS,
    PROVISION_SECONDS,
    REQUEST_MILLISECONDS,
    RUN_MILLISECONDS,
    SECONDS,
    WAIT_MILLISECONDS,
)
from runyard.telemetry.conditions import ALL as CONDITIONS
from runyard.telemetry.metric import Declared, Label, Metric
from runyard.telemetry.names import Component, Loop
from runyard.wire.problem_codes import ENDED_UPLOADS
from runyard.wire.reasons_dispatch import DeliveryOutcome
from runyard.wire.reasons_results import Unprocessed

# ── labels ──────────────────────────────────────────────────────────────────────────────────────

POOL = Label("pool", "name of the RunnerPool")
FLEET = Label("fleet", "name of the RunnerPool")
LOOP = Label("loop", "name of the loop", tuple(Loop))
ERROR = Label("error", "`deadline`, or the kind of the error, such as `not-sent`")
CONTROLLER = Label(
    "controller",
    "name of the controller",
    (Loop.POD_CONTROLLER, Loop.RUNNER_POOL_CONTROLLER),
)
RESOURCE = Label("resource", "plural name of the Kubernetes resource, such as `pods`")
QUEUE = Label("queue", "name of the queue", ("process_xcresult",))
REPO = Label("repo", "name of the database", ("postgres",))
NO_ERROR = "none"
CODE = Label("code", "reason of the last attempt", tuple(Unprocessed))
CODE_OR_NONE = Label(
    "code", f"reason of the attempt; `{NO_ERROR}` if there was no error", (NO_ERROR, *Unprocessed)
)
COMPONENT = Label("component", "component that applied it", tuple(Component))


def _outcome(*values: str) -> Label:
    return Label("outcome", "slug of the outcome", values)


_declared = Declared()
gauge, counter, histogram = _declared.gauge, _declared.counter, _declared.histogram

_SERVER = (Component.SERVER,)
_OPERATOR = (Component.OPERATOR,)
_AGENT = (Component.AGENT,)
_PROCESSOR = (Component.PROCESSOR,)
_RESULTS = (Component.SERVER, Component.PROCESSOR)
_WATCHING = (Component.OPERATOR, Component.AGENT)
_EVERY = tuple(Component)

# ── pool operator ───────────────────────────────────────────────────────────────────────────────

TUIST_RUNNERS_POOL_ROLLING_PODS = gauge(
    "tuist_runners_pool_rolling_pods",
    "Pods that count against the roll's limit.",
    POOL,
    of=_OPERATOR,
)
TUIST_RUNNERS_POOL_STALE_PODS = gauge(
    "tuist_runners_pool_stale_pods", "Pods that run a previous template.", POOL, of=_OPERATOR
)
TUIST_RUNNERS_POOL_ROLL_CONCURRENCY_CAP = gauge(
    "tuist_runners_pool_roll_concurrency_cap",
    "How many Pods may roll at once.",
    POOL,
    of=_OPERATOR,
)
TUIST_RUNNERS_POOL_PHASE_REPLICAS = gauge(
    "tuist_runners_pool_phase_replicas",
    "Pods by phase.",
    POOL,
    Label("phase", "phase of the Pod", ("Pending", "Running", "Unknown")),
    of=_OPERATOR,
)
TUIST_RUNNERS_POOL_OLDEST_PENDING_POD_AGE_SECONDS = gauge(
    "tuist_runners_pool_oldest_pending_pod_age_seconds",
    "Age of the oldest pending Pod (darwin pools).",
    POOL,
    of=_OPERATOR,
)
TUIST_RUNNERS_POOL_IDLE_REPLICAS = gauge(
    "tuist_runners_pool_idle_replicas", "Running Pods that wait for a job.", POOL, of=_OPERATOR
)
TUIST_RUNNERS_POOL_PENDING_PROVISIONING_PODS = gauge(
    "tuist_runners_pool_pending_provisioning_pods",
    "Pods that are still being provisioned.",
    POOL,
    of=_OPERATOR,
)
TUIST_RUNNERS_POOL_ADMISSION_BLOCKED_TOTAL = counter(
    "tuist_runners_pool_admission_blocked_total",
    "Reconciles in which missing Pods were not created, by reason.",
    POOL,
    Label("reason", "why", ("backoff", "no_healthy_node", "fleet_cap", "pool_share")),
    of=_OPERATOR,
)
TUIST_RUNNERS_POOL_POD_START_TIMEOUTS_TOTAL = counter(
    "tuist_runners_pool_pod_start_timeouts_total",
    "Pods deleted because they did not start in time, by reason.",
    POOL,
    Label("reason", "why", ("poller_not_started", "unschedulable")),
    of=_OPERATOR,
)

# ── dispatch server ─────────────────────────────────────────────────────────────────────────────

TUIST_RUNNERS_JOB_ENQUEUED_COUNT = counter(
    "tuist_runners_job_enqueued_count",
    "Jobs that entered the queue. A waiting job counts for the first pool that fits it.",
    FLEET,
    of=_SERVER,
)
TUIST_RUNNERS_JOB_CLAIM_COUNT = counter(
    "tuist_runners_job_claim_count",
    "Attempts to claim a job for a runner, by outcome.",
    FLEET,
    _outcome(),
    of=_SERVER,
)
TUIST_RUNNERS_JOB_RUNNING_COUNT = counter(
    "tuist_runners_job_running_count", "Jobs that started to run.", FLEET, of=_SERVER
)
TUIST_RUNNERS_JOB_COMPLETED_COUNT = counter(
    "tuist_runners_job_completed_count",
    "Completed jobs, by GitHub's conclusion.",
    FLEET,
    Label("conclusion", "GitHub's conclusion; `other` if GitHub does not document it"),
    of=_SERVER,
)
TUIST_RUNNERS_JOB_REQUEUED_COUNT = counter(
    "tuist_runners_job_requeued_count",
    "Jobs that were requeued after they had been assigned to a runner.",
    FLEET,
    of=_SERVER,
)
TUIST_RUNNERS_JOB_QUEUE_TIME_MILLISECONDS = histogram(
    "tuist_runners_job_queue_time_milliseconds",
    "From entering the queue until a runner was assigned.",
    FLEET,
    buckets=WAIT_MILLISECONDS,
    of=_SERVER,
)
TUIST_RUNNERS_JOB_QUEUE_TO_RUNNING_TIME_MILLISECONDS = histogram(
    "tuist_runners_job_queue_to_running_time_milliseconds",
    "From entering the queue until the job ran.",
    FLEET,
    buckets=WAIT_MILLISECONDS,
    of=_SERVER,
)
TUIST_RUNNERS_JOB_CLAIM_TO_RUNNING_TIME_MILLISECONDS = histogram(
    "tuist_runners_job_claim_to_running_time_milliseconds",
    "From the assignment of a runner until the job ran.",
    FLEET,
    buckets=WAIT_MILLISECONDS,
    of=_SERVER,
)
TUIST_RUNNERS_JOB_RUN_TIME_MILLISECONDS = histogram(
    "tuist_runners_job_run_time_milliseconds",
    "From the start of a job to its end; jobs that ran.",
    FLEET,
    buckets=RUN_MILLISECONDS,
    of=_SERVER,
)
TUIST_RUNNERS_JOB_TOTAL_TIME_MILLISECONDS = histogram(
    "tuist_runners_job_total_time_milliseconds",
    "From entering the queue to the end of the job; jobs that ran.",
    FLEET,
    buckets=RUN_MILLISECONDS,
    of=_SERVER,
)
TUIST_RUNNERS_RECOVERY_STRANDED_TIME_MILLISECONDS = histogram(
    "tuist_runners_recovery_stranded_time_milliseconds",
    "How long a job was held by a runner that never ran it, until recovery requeued it.",
    FLEET,
    buckets=RUN_MILLISECONDS,
    of=_SERVER,
)
TUIST_RUNNERS_DISPATCH_REQUEST_DURATION_MILLISECONDS = histogram(
    "tuist_runners_dispatch_request_duration_milliseconds",
    "How long a poll took, without the time it was held waiting for work.",
    FLEET,
    _outcome(),
    buckets=REQUEST_MILLISECONDS,
    of=_SERVER,
)
TUIST_RUNNERS_DISPATCH_REQUEST_COUNT = counter(
    "tuist_runners_dispatch_request_count",
    "Polls of runners, by outcome.",
    FLEET,
    _outcome(),
    of=_SERVER,
)
RUNYARD_POLL_WAKES_TOTAL = counter(
    "runyard_poll_wakes_total",
    "Polls that were woken before their wait ended; one job should wake one poll.",
    POOL,
    of=_SERVER,
)
TUIST_RUNNERS_WEBHOOK_COUNT = counter(
    "tuist_runners_webhook_count",
    "Webhook deliveries, received or pulled, by action and outcome.",
    Label("action", "GitHub's action"),
    _outcome(*DeliveryOutcome),
    of=_SERVER,
)
TUIST_RUNNERS_RECOVERY_COUNT = counter(
    "tuist_runners_recovery_count",
    "Rows that recovery repaired, by kind; a batch of seven counts seven.",
    Label("kind", "kind of leak; see the table below"),
    of=_SERVER,
)
TUIST_RUNNERS_QUEUE_LENGTH = gauge(
    "tuist_runners_queue_length", "Jobs that wait.", FLEET, of=_SERVER
)
TUIST_RUNNERS_QUEUE_WITHHELD = gauge(
    "tuist_runners_queue_withheld",
    "Jobs that wait because of a budget, a pause, or because GitHub registers no runner for them.",
    FLEET,
    of=_SERVER,
)
TUIST_RUNNERS_QUEUE_OLDEST_AGE_SECONDS = gauge(
    "tuist_runners_queue_oldest_age_seconds",
    "Age of the job that waits longest.",
    FLEET,
    of=_SERVER,
)
TUIST_RUNNERS_QUEUE_OLDEST_DISPATCHABLE_AGE_SECONDS = gauge(
    "tuist_runners_queue_oldest_dispatchable_age_seconds",
    "Age of the oldest job that could be dispatched now; alerts while fitting runners are idle.",
    FLEET,
    of=_SERVER,
)
TUIST_RUNNERS_CLAIMS_COUNT = gauge(
    "tuist_runners_claims_count",
    "Claims by state.",
    FLEET,
    Label("lifecycle_state", "state of the claim", ("claimed", "running")),
    of=_SERVER,
)
TUIST_RUNNERS_SESSION_CLAMPED_COUNT = gauge(
    "tuist_runners_session_clamped_count",
    "Pods that have been assigned for more than six hours.",
    FLEET,
    of=_SERVER,
)
TUIST_RUNNERS_POOL_REPLICAS_DESIRED = gauge(
    "tuist_runners_pool_replicas_desired", "Runners that a pool's spec requests.", FLEET, of=_SERVER
)
TUIST_RUNNERS_POOL_REPLICAS_OBSERVED = gauge(
    "tuist_runners_pool_replicas_observed", "Runners in a pool's status.", FLEET, of=_SERVER
)
TUIST_RUNNERS_POOL_REPLICAS_MAX = gauge(
    "tuist_runners_pool_replicas_max",
    "Runners a pool may scale up to; 0 without autoscaling.",
    FLEET,
    of=_SERVER,
)

# ── node agent ──────────────────────────────────────────────────────────────────────────────────

TART_KUBELET_POD_PROVISION_DELAY_SECONDS = histogram(
    "tart_kubelet_pod_provision_delay_seconds",
    "From the Pod's creation until its VM was started.",
    POOL,
    buckets=PROVISION_SECONDS,
    of=_AGENT,
)
TART_KUBELET_VM_BOOT_DURATION_SECONDS = histogram(
    "tart_kubelet_vm_boot_duration_seconds",
    "From the VM's start until it had an address.",
    POOL,
    buckets=BOOT_SECONDS,
    of=_AGENT,
)
TART_KUBELET_GUEST_DISK_USAGE_PERCENT = gauge(
    "tart_kubelet_guest_disk_usage_percent",
    "Used share of a guest's root volume: (total - available) / total.",
    Label("vm", "name of the VM"),
    of=_AGENT,
)
RUNYARD_GUEST_DISK_AGE_SECONDS = gauge(
    "runyard_guest_disk_age_seconds",
    "Age of that share; of a guest that was never measured, the time since it was first seen running.",
    Label("vm", "name of the VM"),
    of=_AGENT,
)
TART_KUBELET_UNOWNED_VMS = gauge(
    "tart_kubelet_unowned_vms",
    "VMs on this host that the agent has no record of and never touches.",
    of=_AGENT,
)

# ── processor of test results ───────────────────────────────────────────────────────────────────

TUIST_OBAN_QUEUE_LENGTH_COUNT = gauge(
    "tuist_oban_queue_length_count",
    "Runs by state: never tried, to be retried, not due yet, in progress.",
    QUEUE,
    Label("state", "state", ("available", "retryable", "scheduled", "executing")),
    of=_RESULTS,
)
TUIST_OBAN_QUEUE_OLDEST_AVAILABLE_AGE_SECONDS = gauge(
    "tuist_oban_queue_oldest_available_age_seconds",
    "How long the oldest run that could be started has waited.",
    QUEUE,
    of=_RESULTS,
)
TUIST_OBAN_JOB_PROCESSING_DURATION_MILLISECONDS = histogram(
    "tuist_oban_job_processing_duration_milliseconds",
    "How long an attempt took, by how it ended.",
    QUEUE,
    Label("state", "how it ended", ("completed", "retryable", "discarded", "released", "fenced")),
    buckets=JOB_MILLISECONDS,
    of=_PROCESSOR,
)
TUIST_OBAN_JOB_QUEUE_TIME_MILLISECONDS = histogram(
    "tuist_oban_job_queue_time_milliseconds",
    "How long a run waited before its first attempt.",
    QUEUE,
    buckets=WAIT_MILLISECONDS,
    of=_PROCESSOR,
)
TUIST_REPO_POOL_READY_CONN_COUNT = gauge(
    "tuist_repo_pool_ready_conn_count",
    "Database connections that are open and free.",
    REPO,
    of=_PROCESSOR,
)
TUIST_REPO_POOL_SIZE = gauge(
    "tuist_repo_pool_size", "Database connections that are open.", REPO, of=_PROCESSOR
)
TUIST_REPO_POOL_CHECKOUT_QUEUE_STARVED_SAMPLES = gauge(
    "tuist_repo_pool_checkout_queue_starved_samples",
    "Samples of the last minute that found a caller waiting while all connections were open.",
    REPO,
    of=_PROCESSOR,
)
RUNYARD_PROCESSOR_ATTEMPTS_TOTAL = counter(
    "runyard_processor_attempts_total",
    "Attempts that ended, by outcome and error code.",
    _outcome("processed", "retry", "released", "lost", "failed", "fenced"),
    CODE_OR_NONE,
    of=_PROCESSOR,
)
RUNYARD_PROCESSOR_DISCARDS_TOTAL = counter(
    "runyard_processor_discards_total", "Runs that failed for good, by code.", CODE, of=_PROCESSOR
)
RUNYARD_PROCESSOR_PHASE_SECONDS = histogram(
    "runyard_processor_phase_seconds",
    "How long a phase of an attempt took.",
    Label("phase", "phase of the attempt", ("download", "read", "upload", "write")),
    buckets=LONG_SECONDS,
    of=_PROCESSOR,
)
RUNYARD_PROCESSOR_REPAIRS_TOTAL = counter(
    "runyard_processor_repairs_total",
    "Runs of failed processors that were requeued or given up, and queue entries that were repaired.",
    Label("repair", "what was done", ("rescued", "given-up", "redelivered", "retired")),
    of=_PROCESSOR,
)
RUNYARD_PROCESSOR_CONSUMERS = gauge(
    "runyard_processor_consumers",
    "Processors that sent a heartbeat within 30 s.",
    of=_RESULTS,
)
RUNYARD_PROCESSOR_RUNS_IN_PROGRESS = gauge(
    "runyard_processor_runs_in_progress", "Runs that this processor works on.", of=_PROCESSOR
)
RUNYARD_PROCESSOR_SCRATCH_BYTES = gauge(
    "runyard_processor_scratch_bytes",
    "Bytes of all files in the scratch directory.",
    of=_PROCESSOR,
)
RUNYARD_PROCESSOR_SCRATCH_FREE_BYTES = gauge(
    "runyard_processor_scratch_free_bytes",
    "Free bytes on the filesystem of the scratch directory.",
    of=_PROCESSOR,
)
RUNYARD_PROCESSOR_SCRATCH_REMOVED_TOTAL = counter(
    "runyard_processor_scratch_removed_total",
    "Directories in the scratch directory that a crash left behind and that were removed.",
    of=_PROCESSOR,
)
RUNYARD_PROCESSOR_ATTACHMENTS_TOTAL = counter(
    "runyard_processor_attachments_total",
    "Attachments that were uploaded, were stored already, or were dropped because the upload failed.",
    _outcome("uploaded", "known", "dropped"),
    of=_PROCESSOR,
)
RUNYARD_PROCESSOR_VERIFICATIONS_TOTAL = counter(
    "runyard_processor_verifications_total",
    "Comparisons with Apple's own tool (`--verify-with-xcresulttool`).",
    _outcome("same", "different", "failed"),
    of=_PROCESSOR,
)
RUNYARD_TEST_UPLOADS_TOTAL = counter(
    "runyard_test_uploads_total",
    "Uploads of result bundles: announced; completed; completed without an object (missing);"
    " empty or too large (refused); uploaded but never completed (adopted).",
    _outcome("announced", "completed", "missing", "refused", "adopted"),
    of=_SERVER,
)
RUNYARD_UPLOADS_RUNNING = gauge(
    "runyard_uploads_running", "Uploads that pass through the server and have a slot.", of=_SERVER
)
RUNYARD_UPLOADS_WAITING = gauge(
    "runyard_uploads_waiting", "Uploads through the server that wait for a slot.", of=_SERVER
)
RUNYARD_UPLOADS_ENDED_TOTAL = counter(
    "runyard_uploads_ended_total",
    "Uploads through the server that were ended before they were complete, or never started.",
    Label("reason", "slug of the reason", tuple(ENDED_UPLOADS)),
    of=_SERVER,
)
RUNYARD_BLOBS_REMOVED_TOTAL = counter(
    "runyard_blobs_removed_total",
    "Unreferenced objects that were removed, or could not be removed yet.",
    Label("kind", "kind of object"),
    _outcome("removed", "failed"),
    of=_SERVER,
)
RUNYARD_BLOBS_PENDING_DELETION = gauge(
    "runyard_blobs_pending_deletion",
    "Unreferenced objects that are still to be removed.",
    of=_SERVER,
)

# ── leader election, under the name that Kubernetes' own components use ─────────────────────────

LEADER_ELECTION_MASTER_STATUS = gauge(
    "leader_election_master_status",
    "1 while this replica holds the lease of that name, else 0.",
    Label("name", "name of the Lease"),
    of=_OPERATOR,
)

# ── runyard's own ───────────────────────────────────────────────────────────────────────────────

RUNYARD_RECONCILE_TOTAL = counter(
    "runyard_reconcile_total",
    "Reconciles, by result.",
    CONTROLLER,
    Label("result", "result", ("success", "requeue", "error", "timeout", "terminal", "cancelled")),
    of=_WATCHING,
)
RUNYARD_RECONCILE_SECONDS = histogram(
    "runyard_reconcile_seconds",
    "How long a reconcile took.",
    CONTROLLER,
    buckets=SECONDS,
    of=_WATCHING,
)
RUNYARD_WATCH_AGE_SECONDS = gauge(
    "runyard_watch_age_seconds",
    "Seconds since the watch last received anything.",
    RESOURCE,
    of=_WATCHING,
)
RUNYARD_WATCH_RESTARTS_TOTAL = counter(
    "runyard_watch_restarts_total",
    "Watches that were started again, by cause.",
    RESOURCE,
    Label(
        "cause",
        "why the last watch ended",
        (
            *("closed", "resync", "silent", "cut", "gone", "throttled"),
            *("refused", "transport", "malformed", "error"),
        ),
    ),
    of=_WATCHING,
)
RUNYARD_QUEUE_DEPTH = gauge(
    "runyard_queue_depth", "Keys that wait for a reconcile.", CONTROLLER, of=_WATCHING
)
RUNYARD_LOOP_LAST_SUCCESS_SECONDS = gauge(
    "runyard_loop_last_success_seconds",
    "When the loop last succeeded, in seconds since the epoch; when it started, before that.",
    LOOP,
    of=_EVERY,
)
RUNYARD_LOOP_FAILURES_TOTAL = counter(
    "runyard_loop_failures_total", "Failed steps of a loop, by error.", LOOP, ERROR, of=_EVERY
)
RUNYARD_ACTIONS_TOTAL = counter(
    "runyard_actions_total",
    "Actions of plans that were applied, by outcome.",
    COMPONENT,
    Label("action", "slug of the action, such as `verify-pod`"),
    Label(
        "outcome",
        "slug of the outcome: `ok`, `conflict`, or the kind of the error;"
        " of `mint`: `arm`, `fail`, `clear-stamp-and-fail` or `abandon`, and `database` or how a refusal is"
        " handled, such as `retry`;"
        " of `redeliver`: `requested` or `no-longer-stored`; of `request`: `internal-error`;"
        " of a question about a slot: `failed`, or the event that it led to",
    ),
    of=(Component.SERVER, Component.OPERATOR, Component.AGENT),
)
RUNYARD_FENCES_TOTAL = counter(
    "runyard_fences_total",
    "Fences, by GitHub's answer.",
    Label("answer", "GitHub's answer", ("deleted", "busy", "absent", "none")),
    of=_SERVER,
)
RUNYARD_CONDITION = gauge(
    "runyard_condition",
    "1 while that health condition fails and is visible, else 0.",
    Label("condition", "code of the health condition", tuple(each.code for each in CONDITIONS)),
    of=_EVERY,
)
RUNYARD_KUBERNETES_FORBIDDEN_TOTAL = counter(
    "runyard_kubernetes_forbidden_total",
    "Requests that the Kubernetes API refused for lack of a permission.",
    Label("verb", "RBAC verb, such as `delete`"),
    Label("resource", "RBAC resource, such as `pods/status`"),
    of=_EVERY,
)
RUNYARD_RECOVERY_FINDINGS_TOTAL = counter(
    "runyard_recovery_findings_total",
    "Findings of the recovery reconcilers, by outcome; `dry-run` would have been acted on.",
    Label("reconciler", "name of the reconciler, as in `--reconciler`"),
    _outcome("healed", "left", "failed", "dry-run"),
    of=_SERVER,
)
RUNYARD_DELETIONS_TOTAL = counter(
    "runyard_deletions_total",
    "Deletions that the server attempted, by outcome; `forbidden` needs a permission.",
    Label("kind", "kind of object", ("pod", "service-account", "registration")),
    _outcome(
        *("deleted", "gone", "absent", "another", "busy", "capped", "dry-run", "moved-on"),
        *("forbidden", "failed", "unanswered"),
    ),
    of=_SERVER,
)
RUNYARD_PRUNED_ROWS_TOTAL = counter(
    "runyard_pruned_rows_total",
    "Rows deleted after their retention, by table.",
    Label("table", "name of the table"),
    of=_SERVER,
)
RUNYARD_GITHUB_RATE_BUDGET_RATIO = gauge(
    "runyard_github_rate_budget_ratio",
    "Remaining share of GitHub's rate limit, for the installation with the least.",
    of=_SERVER,
)
RUNYARD_GITHUB_RATE_LIMITED_INSTALLATIONS = gauge(
    "runyard_github_rate_limited_installations",
    "Installations that GitHub has rate limited and that wait.",
    of=_SERVER,
)
RUNYARD_NOTIFICATIONS_TOTAL = counter(
    "runyard_notifications_total",
    "Notifications between replicas of the server, and failures of their connections.",
    _outcome("sent", "received", "send-failed", "listen-failed"),
    of=_SERVER,
)

ALL: tuple[Metric, ...] = tuple(_declared)
