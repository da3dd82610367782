"""The reason codes of dispatch and recovery: transitions, refusals, findings, holds and deletions.

Slugs are stored in rows, counted in metrics and served over REST: they never change. Templates may.

`TRANSITIONS` renders what the log of transitions, a closed slot and an exclusion store.
"""

from runyard.wire.reasons import Catalogue, Code


class Why(Code):
    """Why a slot or a job has changed; stored with every transition, and with a closed slot or an exclusion."""

    FIRST_POLL = "first-poll", "its Pod polled for the first time"
    HEARTBEAT = "heartbeat", "its Pod polled again"
    OFFERED = "job-fits", "job {job:d} fits"
    BOUND = "bound", "assigned to {pod}"
    ADOPTED = "adopted", "a runner without a job is assigned job {job:d}"
    ARMED = "minted-and-stamped", "runner registered and Pod stamped"
    MINT_REFUSED = "mint-refused", "GitHub registered no runner: {kind}: {message}"
    MINT_UNCLEAR = "mint-unclear", "runner registration unclear, stamp {stamp}: {kind}: {message}"
    STAMP_FAILED = "stamp-failed", "runner registered, stamp {stamp}"
    STAMP_INVALID = "stamp-invalid", "Kubernetes does not accept {tenant!r} as a label value"

    FENCE_DELETED = "fence-deleted", "fence: GitHub deleted the runner"
    FENCE_ABSENT = "fence-absent", "fence: GitHub has no such runner"
    FENCE_BUSY = "fence-busy", "fence: GitHub says that the runner is busy"
    FENCE_STILL_BUSY = "fence-still-busy", "fence: the runner is still busy"
    INCONCLUSIVE = "inconclusive", "no answer yet; the request is repeated later"

    POD_NOT_FOUND = "pod-not-found", "Pod is gone (404)"
    POD_REPLACED = "pod-replaced", "another Pod has its name"
    POD_SUCCEEDED = "pod-succeeded", "the agent recorded the end: Succeeded"
    POD_FAILED = "pod-failed", "the agent recorded the end: Failed"
    STAMPED_WITHOUT_CLAIM = "stamped-without-claim", "stamped, and no claim exists for it"
    OWNER_UNKNOWN = (
        "stamped-by-unknown-owner",
        "stamped by {owner}, which is unknown, and no runner has its name in {scopes:d} scopes, which are all",
    )
    NOT_POLLING = "not-polling", "the Pod runs and does not poll for work"

    AWAITS_APPROVAL = "awaits-approval", "waits for an approval at GitHub"
    QUEUED = "queued", "queued at GitHub"
    STILL_QUEUED = "still-queued", "GitHub says that it is still queued"
    STARTED = "started", "started on {runner}"
    ENDED = "ended", "ended: {conclusion}"
    JOB_STARTED = "job-started", "job {job:d} started"
    JOB_ENDED = "job-ended", "job {job:d} ended"
    STILL_EXECUTING = "still-executing", "its job still runs"
    RUNNER_GOT_ANOTHER = "runner-got-another", "GitHub gave its runner job {job:d}"
    RUNNER_BUSY_ELSEWHERE = "runner-executes-another", "its runner executes another job"
    JOB_WENT_ELSEWHERE = "job-went-elsewhere", "job {job:d} went to another runner"


FENCED = (Why.FENCE_DELETED, Why.FENCE_ABSENT)  # GitHub has no such runner any more


class Refused(Code):
    """Why an event changed nothing."""

    STALE_GENERATION = "stale-generation", "the answer is about an earlier generation of this slot"
    FENCE_NOT_NEEDED = "fence-not-needed", "a slot that is {state} needs no fence"
    SCOPE_NOT_READ = "scope-not-read", "absent proves nothing: nothing in that scope could be read"
    ALREADY_CLOSED = "already-closed", "the slot is closed already"
    SLOT_CHANGED = "slot-changed", "the slot has changed since it was read"
    HAS_CLAIM = "has-claim", "the slot holds a claim"
    FENCE_DUE = "fence-due", "its fence is still due"
    ALREADY_KNOWN = "already-known", "nothing new"
    JOB_OVER = "job-over", "the job is over already"
    JOB_WENT_ON = "job-went-on", "the job is known to have started or ended"
    UNKNOWN_JOB = "unknown-job", "the job is not known"
    READ_OUTDATED = "job-read-outdated", "the job has changed since it was read at GitHub"
    SLOT_TAKEN = "slot-taken", "the slot is {state}"
    SLOT_NOT_IDLE = "slot-not-idle", "the slot is not idle any more"
    JOB_NOT_OFFERABLE = "job-not-offerable", "the job is not offerable"
    BUDGET_USED_UP = "budget-used-up", "the tenant's budget is used up"
    RUNNER_NOT_VACANT = "runner-not-vacant", "the runner is not vacant any more"
    OFFER_OVER = "offer-over", "the offer is over"
    NOT_STAMPED = "not-stamped", "the stamp was not acknowledged"
    DATABASE_FAILED_OVER = (
        "database-failed-over",
        "the database has failed over since this request was sent",
    )


class Found(Code):
    """What a reconciler found."""

    SLOT_OVERDUE = "slot-overdue", "{state} for too long: {question}"
    POD_NOT_LISTED = "pod-not-listed", "its Pod is not listed"
    JOB_UNCHECKED = "job-unchecked", "{state}: not checked at GitHub for long"
    JOB_END_MISSED = "job-end-missed", "{state}: over at GitHub, and no event reported it"
    REGISTRATION_UNCLAIMED = "registration-unclaimed", "registered at GitHub, and no slot claims it"


class Left(Code):
    """Why a reconciler left a finding unchanged; or a `Refused` code of the machine."""

    MOVED_ON = "moved-on", "it has changed since it was read"
    RUNNER_MAY_BE_BUSY = "runner-may-be-busy", "not fenced: its runner may be executing a job"
    RUNNER_BUSY = "runner-busy", "GitHub says that its runner is busy at {scope}"
    OWNER_UNKNOWN = (
        "owner-unknown",
        "its owner is unknown, so its runner is to be looked up in every scope at GitHub",
    )
    LOOKUP_UNFINISHED = (
        "lookup-unfinished",
        "its owner is unknown, and its runner is being looked up: {left:d} to read, next {scope}",
    )
    SCOPE_UNREADABLE = (
        "scope-unreadable",
        "its runner may be executing a job, and GitHub does not show {scope}: {message}",
    )
    NO_SCOPE_KNOWN = (
        "no-scope-known",
        "its owner is unknown, and so is every scope where its runner could be looked up",
    )
    DEPENDENCY_FAILED = "dependency-failed", "it could not be read or changed: {message}"
    REGISTRATION_BUSY = "registration-busy", "GitHub says that the runner is busy"
    REGISTRATION_ABSENT = "registration-absent", "GitHub has no such runner any more"


class Would(Code):
    """What a reconciler in a dry run would have done; or a question of the sweeper."""

    READ_JOB = "read-job", "read the job at GitHub"
    VERIFY_AND_CLOSE = "verify-and-close", "verify that the Pod is gone and close its slot"
    FENCE_AND_DELETE = "fence-and-delete", "fence its runner and delete the Pod"
    DELETE_REGISTRATION = "delete-registration", "delete its registration"


class Deleting(Code):
    """Why something is deleted; or what a reconciler found."""

    RUNNER_FENCED = "runner-fenced", "its runner was fenced"
    JOB_ENDED = "job-ended", "its job is over"
    FENCE = "fence", "fence"
    LATE_MINT = "late-mint", "registered after its offer was over"


class Holding(Code):
    """Why a queued job has no runner yet."""

    TENANT_PAUSED = "tenant-paused", "{tenant} is paused"
    EXCLUDED = "excluded", "no runner is registered for the {kind} {name} for another {left:.0f} s"
    GITHUB_EXCLUDED = "github-excluded", "no runner is registered for another {left:.0f} s"
    TRIAL_RUNNING = (
        "trial-running",
        "another job tests first whether GitHub registers runners again",
    )
    NO_POOLS = "no-pools", "no pool matches: there is no pool"
    LABEL_MISSING = "label-missing", "no pool matches: none has the label {labels}"
    DISPATCH_LABEL_MISSING = (
        "dispatch-label-missing",
        "no pool matches: none of its labels is a pool's dispatch label",
    )
    LABELS_SPREAD = "labels-spread", "no pool matches: no single pool has all of its labels"
    NO_RUNNER_IDLE = "no-runner-idle", "no runner of {pools} is idle"
    NO_BUDGET = "no-budget", "{tenant} has no budget on {platform}"
    CPU_BUDGET = (
        "cpu-budget",
        "{tenant} has {left:d} of {limit:d} vCPUs left on {platform}, {needed:d} needed",
    )
    MEMORY_BUDGET = (
        "memory-budget",
        "{tenant} has {left:d} of {limit:d} GB left on {platform}, {needed:d} needed",
    )


class Proposed(Code):
    """Why a job is proposed for a runner."""

    VACANT_FIRST = "vacant-first", "a runner that lost its job is used first"
    NEXT_IN_TURN = "next-in-turn", "{tenant} is next at virtual time {vtime:g}"


class Requested(Code):
    """The outcome of a user's request about a job; stored in the audit trail."""

    CANCELLING = "cancelling", "GitHub cancels its run"
    RERUN_QUEUED = "rerun-queued", "queued again under a new number"
    GITHUB_FAILED = "github-failed", "GitHub refused or did not answer: {message}"
    JOB_UNKNOWN = "job-unknown", "there is no such job"
    RUN_UNKNOWN = "run-unknown", "its run is not known"
    JOB_OVER = "job-over", "the job is over already"
    JOB_NOT_OVER = "job-not-over", "the job is not over yet"
    RERUN_REFUSED = "rerun-refused", "GitHub does not allow it: {message}"
    RUN_HAS_OTHERS = "run-has-others", "its run has other jobs that are not over"
    TRIED_AGAIN = "tried-again", "tried again at once"  # an exclusion that a user ended


class Denied(Code):
    """Why a caller is not accepted."""

    TOKEN_MISSING = "token-missing", "there is no bearer token"
    TOKEN_MALFORMED = "token-malformed", "the token has characters that are not allowed"
    TOKEN_UNKNOWN = "token-unknown", "the Kubernetes API does not know the token"
    TOKEN_OUT_OF_AUDIENCE = (
        "token-out-of-audience",
        "the Kubernetes API does not accept the token for this audience, or no longer",
    )
    TOKEN_UNBOUND = (
        "token-unbound",
        "the token names no Pod, or another one than its ServiceAccount was made for",
    )
    OTHER_PRINCIPAL = "other-principal", "the token belongs to another account"
    OTHER_POD = "other-pod", "a runner may report for its own Pod only"
    NOT_AN_ACCOUNT = "not-a-service-account", "the token is not that of a ServiceAccount"
    OTHER_NAMESPACE = "other-namespace", "only runners of the namespace {namespace} may poll"
    ACCOUNT_DELETED = (
        "account-deleted",
        "the ServiceAccount was deleted: its runner is being removed",
    )
    ACCOUNT_WITHOUT_POOL = "account-without-pool", "the ServiceAccount belongs to no pool"


class DeliveryOutcome(Code):
    """The outcome of a webhook delivery: `deliveries.outcome`, a label of a counter, and the response to GitHub."""

    APPLIED = "applied", "the event changed the stored state"
    KNOWN = "known", "the event was known already"
    DUPLICATE = "duplicate", "the delivery was applied before"  # in the response, never stored
    IGNORED = "ignored", "the event is not used"
    UNREADABLE = "unreadable", "the body cannot be read"
    INVALID = "invalid", "the event cannot be applied"


class Objection(Code):
    """Why an event of GitHub cannot be applied."""

    UNREADABLE = "unreadable", "{message}"
    NO_INSTALLATION = (
        "no-installation",
        "there is no installation, or it is another repository than the token's",
    )
    ID_OUT_OF_RANGE = "id-out-of-range", "the id of the job or of the installation is out of range"
    REPOSITORY_INVALID = "repository-invalid", "{message}"
    TEXT_INVALID = (
        "text-invalid",
        "a label, a name or a conclusion is longer than {limit:d} characters or not printable",
    )
    LABELS_TOO_LONG = (
        "labels-too-long",
        "the labels take more than {limit:d} bytes ({extra:d} for each, and its text)",
    )


class Trust(Code):
    """Whether the code of a job is trusted. Only `SAME_REPOSITORY` is; `UNDECIDED` is shown and never stored."""

    SAME_REPOSITORY = "same-repository", "trusted: its code is from the repository itself"
    FORK = "fork", "untrusted: its code is from a fork"
    PULL_REQUEST_TARGET = (
        "pull-request-target",
        "untrusted: pull_request_target started it, which may run the code of a fork",
    )
    OUTSIDE_ACTOR = (
        "outside-actor",
        "untrusted: who started it is no owner, member or collaborator",
    )
    OPEN_EVENT = "open-event", "untrusted: an event that any account can cause started it"
    UNKNOWN = "trust-unknown", "untrusted: it is not known where its code is from"
    UNDECIDED = (
        "trust-undecided",
        "untrusted so far: GitHub is asked where its code is from when it has a runner",
    )


class PodLabels(Code):
    """How the labels of a Pod differ from what its job alone would give it."""

    OF_ANOTHER_JOB = (
        "labels-of-another-job",
        "the labels of its Pod are still about job {job:d}, which its runner was meant for; they are being corrected",
    )
    STAY_UNTRUSTED = (
        "labels-stay-untrusted",
        "its Pod stays marked as untrusted: its runner was meant for an untrusted job before",
    )


TRANSITIONS = Catalogue(Why)
REQUESTS = Catalogue(Requested)
TRUST = Catalogue(Trust)
