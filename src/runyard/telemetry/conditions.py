"""The health conditions of all components: a closed set, each with its code, title and fix.

The code is what `/readyz`, the metric `runyard_condition`, the dashboard and alerts use; title and fix are for people
and may be reworded. The name of a constant is its code in upper case.
"""

from runyard.telemetry.health import Condition, Severity

STARTING = Condition(
    code="starting",
    title="The component is starting or stopping",
    fix="The message says what it waits for. It continues by itself as soon as that is available.",
)
DATABASE_UNREACHABLE = Condition(
    code="database-unreachable",
    title="Postgres does not answer",
    fix="Check that Postgres runs and that the database URL is right. Nothing is reaped meanwhile.",
    visible_after=10.0,
)
KUBERNETES_UNREACHABLE = Condition(
    code="kubernetes-unreachable",
    title="The Kubernetes API does not answer",
    fix="Check the API server and the network to it. Running jobs continue; no Pod is created or deleted.",
    visible_after=15.0,
)
HOST_CREDENTIAL_ENDED = Condition(
    code="host-credential-ended",
    title="The main machine no longer accepts this host",
    fix="The host was removed or has joined again, or its credential expired. End it with 'runyard host leave', then"
    " join again.",
    depends_on=("kubernetes-unreachable",),
    visible_after=5.0,
)
KUBERNETES_REFUSED = Condition(
    code="kubernetes-refused",
    title="The Kubernetes API refuses this component",
    fix="Compare the ServiceAccount's roles with the shipped manifests and apply them again.",
    depends_on=("kubernetes-unreachable", "host-credential-ended"),
    visible_after=5.0,
)
WATCH_STALE = Condition(
    code="watch-stale",
    title="A watch delivers no events",
    fix="Decisions are made on old data. The component lists again by itself; if this remains, restart it.",
    depends_on=("kubernetes-unreachable", "kubernetes-refused"),
    visible_after=60.0,
)
GITHUB_UNREACHABLE = Condition(
    code="github-unreachable",
    title="GitHub does not answer",
    fix="Check GitHub's status page. Queued jobs are kept and dispatched when GitHub is back.",
    visible_after=30.0,
)
GITHUB_REFUSED = Condition(
    code="github-refused",
    title="GitHub refuses the App's credentials",
    fix="Check the App's id and private key, and that the installation is not suspended.",
    depends_on=("github-unreachable",),
    visible_after=5.0,
)
GITHUB_BUDGET_LOW = Condition(
    code="github-budget-low",
    title="GitHub's rate limit is nearly used up",
    fix="Dispatch slows down until the limit resets. Check for other clients of the same App.",
    severity=Severity.WARNING,
    depends_on=("github-unreachable", "github-refused"),
    visible_after=30.0,
)
DRIVER_FAILING = Condition(
    code="driver-failing",
    title="Virtual machines cannot be run on this host",
    fix="List the VMs with the driver's own command on this host and read its error.",
    visible_after=30.0,
)
HOST_DISK_FULL = Condition(
    code="host-disk-full",
    title="This host's disk is full",
    fix="Remove images or files that runyard does not own; its own are collected already.",
    visible_after=60.0,
)
LOOP_STALLED = Condition(
    code="loop-stalled",
    title="A loop has not succeeded in time",
    fix="The message names the loop; the log says why its steps fail.",
    severity=Severity.WARNING,
    visible_after=60.0,
)
RECONCILER_OFF = Condition(
    code="reconciler-off",
    title="A reconciler is switched off",
    fix="What it repairs accumulates meanwhile. Switch it on with --reconciler NAME=enabled.",
    severity=Severity.WARNING,
)
FENCES_UNANSWERED = Condition(
    code="fences-unanswered",
    title="GitHub does not confirm that runners are deleted",
    fix="Their jobs and budget are held until it does. A runner that died with its job is busy there until GitHub"
    " gives the job up, after ten minutes or so. If the App was uninstalled there, install it again.",
    severity=Severity.WARNING,
    depends_on=("github-unreachable", "github-refused"),
)
UNKNOWN_STAMP_OWNER = Condition(
    code="unknown-stamp-owner",
    title="Stamped Pods without a claim stay, because a job may be running in them",
    fix="Give the App access to the scope in the message, or delete the Pod if no job runs in it.",
    severity=Severity.WARNING,
)
JOBS_STARVE = Condition(
    code="jobs-starve",
    title="Jobs wait although fitting runners are idle",
    fix="The server does not dispatch jobs that it could. Its log and `runyard explain job` say why; then restart it.",
    severity=Severity.WARNING,  # an alert pages on it, but taking the replica out of service would not help
    depends_on=("database-unreachable", "github-unreachable", "github-refused"),
    visible_after=60.0,
)
NO_CONSUMER = Condition(
    code="no-consumer",
    title="Test results wait and no processor takes them",
    fix="Start `runyard processor`, or check why those that run cannot reach the database. Nothing is lost meanwhile.",
    severity=Severity.WARNING,  # the server itself works
    depends_on=("database-unreachable",),
    visible_after=30.0,
)
OBJECT_STORE_UNREACHABLE = Condition(
    code="object-store-unreachable",
    title="Object storage cannot be used",
    fix="Check what the message names: credentials, bucket, endpoint, disk (--blobs). Uploads and processing wait.",
    severity=Severity.WARNING,  # runners are served all the same
    visible_after=30.0,
)
SCRATCH_FULL = Condition(
    code="scratch-full",
    title="The processor's scratch directory is full",
    fix="Free space on its filesystem, or use another with --scratch. Other processors take the runs meanwhile.",
    visible_after=30.0,
)

# A server with one of these cannot serve. With any other it still takes webhooks and holds polls.
TO_SERVE = (STARTING.code, DATABASE_UNREACHABLE.code)

ALL: tuple[Condition, ...] = (
    STARTING,
    DATABASE_UNREACHABLE,
    KUBERNETES_UNREACHABLE,
    HOST_CREDENTIAL_ENDED,
    KUBERNETES_REFUSED,
    WATCH_STALE,
    GITHUB_UNREACHABLE,
    GITHUB_REFUSED,
    GITHUB_BUDGET_LOW,
    DRIVER_FAILING,
    HOST_DISK_FULL,
    LOOP_STALLED,
    RECONCILER_OFF,
    FENCES_UNANSWERED,
    UNKNOWN_STAMP_OWNER,
    JOBS_STARVE,
    NO_CONSUMER,
    OBJECT_STORE_UNREACHABLE,
    SCRATCH_FULL,
)
