"""The conditions that more than one part reports, declared once with the operator's instructions."""

from runyard.telemetry.health import Condition, Severity

STARTING = Condition(
    code="starting",
    title="The server does not work yet, or not any more",
    text="The message says what it waits for. It goes on by itself as soon as that is there.",
)
DATABASE_UNREACHABLE = Condition(
    code="database-unreachable",
    title="Postgres does not answer",
    text="Check that Postgres runs and that the database URL is right. Nothing is reaped meanwhile.",
    visible_after=10.0,
)
KUBERNETES_UNREACHABLE = Condition(
    code="kubernetes-unreachable",
    title="The Kubernetes API does not answer",
    text="Check the API server and the network to it. Running jobs go on; no Pod is created or removed.",
    visible_after=15.0,
)
KUBERNETES_REFUSED = Condition(
    code="kubernetes-refused",
    title="The Kubernetes API refuses this part",
    text="Compare the ServiceAccount's roles with the shipped manifests and apply them again.",
    depends_on=("kubernetes-unreachable",),
    visible_after=5.0,
)
WATCH_STALE = Condition(
    code="watch-stale",
    title="A watch has stopped to deliver",
    text="The part decides on an old picture. It lists again by itself; if this stays, restart it.",
    depends_on=("kubernetes-unreachable", "kubernetes-refused"),
    visible_after=60.0,
)
GITHUB_UNREACHABLE = Condition(
    code="github-unreachable",
    title="GitHub does not answer",
    text="Look at GitHub's status page. Queued jobs are kept and dispatched when it is back.",
    visible_after=30.0,
)
GITHUB_REFUSED = Condition(
    code="github-refused",
    title="GitHub refuses the app's credentials",
    text="Check the app's id, its private key and that the installation was not suspended.",
    depends_on=("github-unreachable",),
    visible_after=5.0,
)
GITHUB_BUDGET_LOW = Condition(
    code="github-budget-low",
    title="The GitHub rate limit is nearly used up",
    text="Dispatch slows down until the limit resets. Look for another client of the same app.",
    severity=Severity.WARNING,
    depends_on=("github-unreachable", "github-refused"),
    visible_after=30.0,
)
DRIVER_FAILING = Condition(
    code="driver-failing",
    title="Virtual machines cannot be run on this host",
    text="Run the driver's own listing by hand on this host and read its error.",
    visible_after=30.0,
)
HOST_DISK_FULL = Condition(
    code="host-disk-full",
    title="This host's disk is full",
    text="Remove unused images or files that runyard does not own; its own are collected already.",
    visible_after=60.0,
)
LOOP_STALLED = Condition(
    code="loop-stalled",
    title="A loop has not succeeded for long",
    text="The message names the loop; the log says why its steps fail.",
    severity=Severity.WARNING,
    visible_after=60.0,
)
RECONCILER_OFF = Condition(
    code="reconciler-off",
    title="A reconciler is switched off",
    text="What it heals piles up meanwhile. Switch it on again with --reconciler NAME=enabled.",
    severity=Severity.WARNING,
)
FENCES_UNANSWERED = Condition(
    code="fences-unanswered",
    title="GitHub does not say that runners are gone",
    text="Their jobs and their budget are held until it does. If the App was uninstalled there, install it again.",
    severity=Severity.WARNING,
    depends_on=("github-unreachable", "github-refused"),
)
STAMPS_OF_STRANGERS = Condition(
    code="stamps-of-strangers",
    title="Pods carry the stamp of an owner whom nobody knows",
    text="A runner may be at work there, and nobody can be asked. Look at the Pod; if nothing runs in it, delete it.",
    severity=Severity.WARNING,
)
JOBS_STARVE = Condition(
    code="jobs-starve",
    title="Jobs wait although fitting runners are idle",
    text="The server does not hand out what it could. Its log and `runyard explain job` say why; then restart it.",
    severity=Severity.WARNING,  # to be woken by, but no reason to take a replica from the runners
    depends_on=("database-unreachable", "github-unreachable", "github-refused"),
    visible_after=60.0,
)
NO_CONSUMER = Condition(
    code="no-consumer",
    title="Test results wait and nobody processes them",
    text="Start `runyard processor`, or look why those that run cannot reach the database. Nothing is lost meanwhile.",
    severity=Severity.WARNING,  # the server itself can do its work
    depends_on=("database-unreachable",),
    visible_after=30.0,
)
OBJECTS_UNREACHABLE = Condition(
    code="objects-unreachable",
    title="Object storage cannot be used",
    text="Look at the reason: credentials, bucket, endpoint, disk (--blobs). Uploads and processing wait meanwhile.",
    severity=Severity.WARNING,  # runners are served all the same
    visible_after=30.0,
)
SCRATCH_FULL = Condition(
    code="scratch-full",
    title="The scratch directory of the processor has no room",
    text="Free some on its filesystem, or point --scratch to another. Runs go to other processors meanwhile.",
    visible_after=30.0,
)

# A server without these can answer nobody. With anything else wrong it still takes webhooks and holds polls.
TO_SERVE = (STARTING.code, DATABASE_UNREACHABLE.code)

ALL: tuple[Condition, ...] = (
    STARTING,
    DATABASE_UNREACHABLE,
    KUBERNETES_UNREACHABLE,
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
    STAMPS_OF_STRANGERS,
    JOBS_STARVE,
    NO_CONSUMER,
    OBJECTS_UNREACHABLE,
    SCRATCH_FULL,
)
