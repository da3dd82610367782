"""The codes of explanations: what holds an object, and what would end that.

Programs compare the slugs; the texts are rendered where an explanation is shown (`views.py`). A step about a queued job
has the matcher's own code (`Holding`) as its `what`.
"""

from runyard.wire.reasons import Code


class What(Code):
    """What holds an object, or its state if nothing does."""

    # jobs
    BEING_MATCHED = "being-matched", "a fitting runner is idle: the job is being matched"
    POOLS_UNREAD = (
        "pools-unread",
        "this replica of the server has just started and has not read the pools yet",
    )
    NOT_EXAMINED = "not-examined", "the matcher has not examined it yet"
    BEING_ASSIGNED = "being-assigned", "is being assigned to a runner"
    AWAITS_APPROVAL = (
        "awaits-approval",
        "GitHub holds it until its environment or its run is approved",
    )
    REQUEUED = "requeued", "was requeued: GitHub must confirm that it is still queued"
    ASSIGNED_TO_RUNNER = "assigned-to-runner", "is assigned to runner {runner}"
    RUNS = "runs", "runs"
    RUNS_ON = "runs-on", "runs on {runner}"
    JOB_DONE = "job-done", "is done: {conclusion}"

    # runners
    POD_GONE_UNFENCED = (
        "pod-gone-unfenced",
        "its Pod is gone: its runner must be deleted at GitHub first",
    )
    STATE_OVERDUE = (
        "state-overdue",
        "was {state} for too long: its runner must be deleted at GitHub first",
    )
    OFFER_GIVEN_UP = (
        "offer-given-up",
        "whether GitHub registered its runner is unknown: the runner must be deleted there first",
    )
    AFTER_OUTAGE = (
        "after-outage",
        "after an outage of the service, runners get time to poll again before any is removed",
    )
    WAITS_FOR_WORK = "waits-for-work", "waits for work in pool {pool}"
    NOT_POLLING = "not-polling", "has not polled for work for {silent}"
    POLL_CUT_OFF = (
        "poll-cut-off",
        "the connection of its last poll was cut, and it has not polled again",
    )
    REGISTERS_RUNNER = "registers-runner", "its runner is being registered at GitHub for job {job}"
    RUNNER_CONNECTS = (
        "runner-connects",
        "has its configuration for job {job:d}; its runner is connecting to GitHub",
    )
    RUNNER_CONNECTS_VACANT = (
        "runner-connects-vacant",
        "has its configuration for no job; its runner is connecting to GitHub",
    )
    RUNS_JOB = "runs-job", "runs job {job:d}"
    RUNS_UNKNOWN_JOB = "runs-unknown-job", "runs a job whose number is not known yet"
    STOPPING = "stopping", "is stopping; its budget is held until its Pod is gone"
    POD_GONE = "pod-gone", "its Pod is gone"

    # Pods and hosts
    STAMPED_UNCLAIMED = (
        "stamped-unclaimed",
        "has the owner label {owner} and no claim: it counts as busy",
    )
    MARKED_BY_OPERATOR = (
        "marked-by-operator",
        "an operator marked this Pod for removal: its next poll is answered with 410",
    )
    OLDER_IMAGE = (
        "older-image",
        "has an older image; its next poll is answered with 410",
    )
    BEING_DELETED = "being-deleted", "is being deleted"
    POD_FAILED = "pod-failed", "failed"
    POD_ENDED = "pod-ended", "has ended"
    WAITS_FOR_HOST = "waits-for-host", "waits for a host"
    NOT_SCHEDULED = "not-scheduled", "cannot be scheduled: {message}"
    UP_NOT_POLLING = "up-not-polling", "is running and has not polled for work yet"
    PULLS_IMAGE = "pulls-image", "its host is pulling {image}"
    NO_VM_SLOT = "no-vm-slot", "its host runs as many VMs as it can"
    VM_NOT_CREATED = "vm-not-created", "its VM could not be created: {message}"
    NOT_STARTED = "not-started", "its agent has not started it yet"
    VM_BOOTS = "vm-boots", "its VM is booting"
    HOST_GONE = "host-gone", "the host of this Pod no longer exists"
    HOST_DOWN = "host-down", "{state}"

    # pools
    POOL_CONDITION = "pool-condition", "{message}"  # of the operator, in its words
    POOL_DELETED = "pool-deleted", "the pool is being deleted"
    RUNNERS_STARTING = (
        "runners-starting",
        "{starting:g} of {replicas:d} runners are starting, {busy:g} busy",
    )
    SCALED_TO_ZERO = "scaled-to-zero", "the pool is scaled to zero"
    ALL_BUSY = "all-busy", "all runners are busy: {busy:g} of {replicas:d}"
    RUNNERS_STOPPING = "runners-stopping", "{stopping:g} runners are stopping"
    RUNNERS_IDLE = "runners-idle", "{idle:g} of {replicas:d} runners are idle"

    # dependencies
    CONDITION = "condition", "{title}"  # a health condition of this server
    BUDGET_USED_UP = "budget-used-up", "the rate budget is used up for {wait}"
    RECONCILER_OFF = (
        "reconciler-off",
        "the reconciler {reconciler} is set to {mode}: it repairs nothing",
    )
    DATABASE_AWAY = "database-away", "Postgres does not answer: {message}"
    KUBERNETES_AWAY = "kubernetes-away", "the Kubernetes API does not answer: {message}"
    MESSAGE = "message", "{text}"  # what another program or a release without codes said


class Ends(Code):
    """What would end it."""

    # jobs
    POOL_FITS = "pool-fits", "a pool with these labels exists, or the job asks for others"
    RUNNER_IDLE = "runner-idle", "a runner of a fitting pool is idle"
    TENANT_HAS_BUDGET = (
        "tenant-has-budget",
        "a job of this tenant ends, or its cap is raised (runyard tenant set)",
    )
    EXCLUSION_ENDS = (
        "exclusion-ends",
        "the exclusion ends or a registration succeeds; the reason says what GitHub refused",
    )
    GITHUB_REGISTERS = "github-registers", "GitHub answers and accepts a registration again"
    TENANT_RESUMED = "tenant-resumed", "the tenant is resumed (runyard tenant resume)"
    POOLS_READ = "pools-read", "the pools are read from Kubernetes"
    NEXT_MATCH = "next-match", "the matcher's next step"
    APPROVED = "approved", "it is approved at GitHub"
    ASKED_IN = "asked-in", "GitHub is asked in {wait}"
    ASKED_NEXT = "asked-next", "GitHub is asked in the next pass"
    JOB_ENDS = "job-ends", "GitHub reports its end"

    # runners
    RUNNER_FENCED = "runner-fenced", "GitHub deletes the runner, or reports that it is busy"
    NO_OUTAGE_FOR = "no-outage-for", "{left} more without an outage"
    JOB_FITS = "job-fits", "a fitting job is queued"
    POLLS_OR_REMOVED = "polls-or-removed", "it polls again, or recovery removes it"
    GITHUB_ANSWERS_OR_FENCE = (
        "github-answers-or-fence",
        "GitHub answers, or its deadline passes and the runner is fenced",
    )
    GETS_JOB_OR_FENCE = (
        "gets-job-or-fence",
        "GitHub gives it a job, or its deadline passes and the runner is fenced",
    )
    JOB_ENDS_OR_READ = "job-ends-or-read", "the job ends; GitHub is asked again in {left}"
    POD_ENDS = "pod-ends", "the Pod ends, or it is removed in {left}"

    # Pods and hosts
    RECOVERED_AT_AGE = (
        "recovered-at-age",
        "recovery fences the runner and removes the Pod once it is {age} old",
    )
    RECOVERED_NEXT = (
        "recovered-next",
        "recovery fences the runner and removes the Pod in its next pass",
    )
    POD_REPLACED = "pod-replaced", "the Pod ends, and the pool creates another one"
    IMAGE_REPLACED = (
        "image-replaced",
        "the Pod ends, and the pool creates one with the new image",
    )
    VM_GONE = "vm-gone", "its host reports that the VM is gone"
    OPERATOR_REPLACES = "operator-replaces", "the operator deletes it and creates another one"
    HOST_FREE = "host-free", "a host of its fleet has free capacity, or a host joins"
    POLLS = "polls", "it polls for work"
    PULL_ENDS = "pull-ends", "the pull ends"
    SLOT_FREE = "slot-free", "another VM on that host ends"
    ATTEMPT_OF_AGENT = "attempt-of-agent", "the agent's next attempt succeeds"
    DISK_FREED = "disk-freed", "space on the disk of {host} is freed"
    IMAGE_CORRECTED = (
        "image-corrected",
        "the registry has the image, or the pool names another one",
    )
    REGISTRY_LOGIN = "registry-login", "{host} has credentials that the registry accepts"
    REGISTRY_ANSWERS = "registry-answers", "the registry can be reached from {host}"
    AGENT_STARTS = "agent-starts", "its agent starts it"
    GUEST_POLLS = "guest-polls", "the guest polls for work"
    AGENT_REPORTS = "agent-reports", "its agent reports again, or the Node is removed"

    # pools
    ATTEMPT_SUCCEEDS = (
        "attempt-succeeds",
        "the next attempt succeeds; the condition's message says why the last runners failed",
    )
    HOST_READY = "host-ready", "a host of this fleet is Ready and schedulable"
    CEILING_FREE = (
        "ceiling-free",
        "a starting runner is up, or the ceiling is raised",
    )
    OTHER_POOL = "other-pool", "its last runners end; create another pool for these labels"
    ROLLED = (
        "rolled",
        "the runners with the new image are up; spec.rollout.maxConcurrentPercent limits how many start at once",
    )
    FIRST_POLLS = "first-polls", "the first of them polls for work"
    REPLICAS_RAISED = "replicas-raised", "spec.replicas is raised, by you or by the autoscaler"
    JOB_ENDS_OR_REPLICAS = (
        "job-ends-or-replicas",
        "a job ends and its runner is replaced, or the pool gets more replicas",
    )
    HOSTS_REPORT = (
        "hosts-report",
        "their hosts report that they are gone, and the pool creates others",
    )

    # dependencies
    CONDITION_FIXED = "condition-fixed", "{fix}"
    GITHUB_ANSWERS = "github-answers", "GitHub answers again"
    LIMIT_RESETS = "limit-resets", "the rate limit resets in {wait}"
    RECONCILER_ENABLED = (
        "reconciler-enabled",
        "the server runs with --reconciler {reconciler}=enabled",
    )
    DATABASE_ANSWERS = (
        "database-answers",
        "Postgres answers again; until then no runner is removed, and deadlines are extended",
    )
    KUBERNETES_ANSWERS = "kubernetes-answers", "the Kubernetes API answers again"
