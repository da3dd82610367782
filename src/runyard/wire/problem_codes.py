"""The codes of refused HTTP requests: `code` in the body of a problem.

Programs compare the slug; `error` is the template's text for people. A refusal whose cause is a reason of dispatch (a
caller that is not accepted, an event that cannot be applied, a request about a job) or of the slots of uploads has that
reason's slug instead: `PROBLEMS` knows all of them, and the OpenAPI document lists them.

Slugs never change. Templates may, except for those of the polls of runners, whose guests read `error`.
"""

from runyard.wire.reasons import Catalogue, Code
from runyard.wire.reasons_dispatch import Denied, Objection, Requested
from runyard.wire.reasons_results import Yielded


class ProblemCode(Code):
    """Why a request is refused, where no more exact reason code exists."""

    # every server
    PATH_UNKNOWN = "path-unknown", "no such path"
    METHOD_UNKNOWN = "method-unknown", "no such method here"
    TARGET_UNREADABLE = "target-unreadable", "unreadable request target"
    REQUEST_UNREADABLE = "request-unreadable", "the request cannot be read"
    BODY_LATE = "body-late", "the body did not arrive in time"
    BODY_SLOW = "body-slow", "the body arrived too slowly"
    BODY_MALFORMED = "body-malformed", "the body is malformed"
    BODY_TOO_LARGE = "body-too-large", "the body is too large"
    BODY_NOT_JSON = "body-not-json", "the body is not JSON"
    BODY_COMPRESSED = "body-compressed", "the body is compressed"
    BODY_INVALID_JSON = "body-invalid-json", "the body is not valid JSON"
    BODY_UNEXPECTED = "body-unexpected", "the body does not match the schema"
    SERVER_BUSY = "server-busy", "the server is busy with other bodies"
    CLIENT_NOT_ALLOWED = "client-not-allowed", "requests from this address are not allowed"
    SERVER_FAILED = "server-failed", "the server failed"
    NO_CONNECTION = "no-connection", "there is no connection here that could be handed over"

    # polls of runners, webhooks, reports
    DISPATCH_DATABASE = "dispatch-database-unavailable", "dispatch failed"
    DISPATCH_SEALED = "dispatch-seal-unreadable", "dispatch failed"
    DISPATCH_FAILED = "dispatch-failed", "dispatch failed"
    KUBERNETES_UNAVAILABLE = "kubernetes-unavailable", "kubernetes unavailable"
    REPORT_INVALID = "report-invalid", "bad report"
    SAMPLES_INVALID = "samples-invalid", "bad samples"
    POOL_NOT_NAMED = "pool-not-named", "the request names no pool"
    SIGNATURE_INVALID = "signature-invalid", "bad signature"
    DELIVERY_NOT_NAMED = "delivery-not-named", "no x-github-delivery header"

    # REST, the dashboard
    PARAMETER_INVALID = "parameter-invalid", "a parameter is not valid"
    DATABASE_UNAVAILABLE = "database-unavailable", "the database is unavailable"
    STORAGE_UNAVAILABLE = "storage-unavailable", "object storage is unavailable"
    GITHUB_CALL_FAILED = "github-call-failed", "the request to GitHub failed"
    TENANT_UNKNOWN = "tenant-unknown", "there is no such tenant"
    JOB_NOT_FOUND = "job-not-found", "there is no such job"
    JOB_NUMBER_INVALID = "job-number-invalid", "the job id is not a number"
    FILE_UNKNOWN = "file-unknown", "there is no such static file"
    DASHBOARD_TOKEN_NEEDED = "dashboard-token-needed", "this needs the dashboard's token"
    METRICS_TOKEN_NEEDED = "metrics-token-needed", "this needs the token for metrics"
    HOST_UNKNOWN = "host-unknown", "the Host header is not one of this server's names"
    HOST_MISSING = "host-missing", "the request has no usable Host header"
    FORM_OF_ANOTHER_SITE = "form-of-another-site", "this form was sent by another site"
    KIND_UNEXPLAINED = "kind-unexplained", "a {kind} cannot be explained"
    SUBJECT_UNKNOWN = "subject-unknown", "there is no {kind} {id}"

    # hosts that join
    JOIN_TOKEN_WRONG = "join-token-wrong", "this join token is not known here"
    JOIN_TOKEN_USED = "join-token-used", "this join token was used already"
    JOIN_TOKEN_EXPIRED = "join-token-expired", "this join token has expired"
    JOIN_TOKEN_OTHER_NAME = "join-token-other-name", "this join token is for the host {name}"
    JOIN_TOO_MANY_FAILURES = "join-too-many-failures", "too many failed attempts from your address"
    JOIN_INTERRUPTED = (
        "join-interrupted",
        "the {what} failed while this join token was used, so the token may be used up",
    )
    JOIN_NAME_INVALID = "join-name-invalid", "a host cannot have this name"
    JOIN_NAME_TAKEN = "join-name-taken", "another machine has joined as {name}"
    HOST_CREDENTIAL_NEEDED = "host-credential-needed", "only hosts that joined may call this"
    HOST_CREDENTIAL_REVOKED = "host-credential-revoked", "the credential of this host is not valid"
    CONTROL_PLANE_AWAY = "control-plane-away", "the {what} does not respond"

    # test results, objects
    RESULT_NOT_FOUND = "result-not-found", "{what} not found"
    RESULT_TOKEN_INVALID = "result-token-invalid", "the token is not valid"
    RESULT_TOKEN_EXPIRED = "result-token-expired", "the token has expired"
    RESULT_TOKEN_NARROW = "result-token-narrow", "the token does not allow this"
    RESULT_TOKEN_MAKES_NONE = (
        "result-token-makes-none",
        "a token for test results cannot make another one",
    )
    RUN_ID_IN_USE = "run-id-in-use", "the id is already in use"
    RUN_TIME_INVALID = "run-time-invalid", "the body is not valid"
    UPLOAD_MISSING = "upload-missing", "nothing was uploaded"
    UPLOAD_SIZE = "upload-size", "the upload is empty or too large"
    UPLOAD_INCOMPLETE = "upload-incomplete", "the bundle is not uploaded yet"
    UPLOAD_DELETED = "upload-deleted", "the upload was deleted: it is too old"
    UPLOAD_CUT = "upload-cut", "the upload ended early"
    UPLOAD_LATE = "upload-late", "the upload took too long"
    UPLOAD_SLOW = "upload-slow", "the upload arrived too slowly"
    OBJECT_UNKNOWN = "object-unknown", "the object does not exist"
    LINK_INVALID = "link-invalid", "the link is not valid"

    # the practice GitHub's own routes
    PRACTICE_DISABLED = "practice-disabled", "the practice routes are disabled"
    PRACTICE_CREDENTIALS = "practice-credentials", "bad credentials"
    PRACTICE_INSTALLED_OTHERWISE = "practice-installed-otherwise", "installed as another kind"
    PRACTICE_ACCOUNT_UNKNOWN = "practice-account-unknown", "no such account"
    PRACTICE_REPOSITORY_UNKNOWN = "practice-repository-unknown", "no such repository"
    PRACTICE_JOB_UNKNOWN = "practice-job-unknown", "no such job"
    PRACTICE_JOB_INVALID = "practice-job-invalid", "this job could not be run"
    PRACTICE_JOB_REFUSED = "practice-job-refused", "the job was refused"
    PRACTICE_JOB_STATE = "practice-job-state", "the job is not in a state for that"
    PRACTICE_DELIVERY_UNKNOWN = "practice-delivery-unknown", "no such delivery"
    PRACTICE_NOT_KEPT = "practice-not-kept", "not kept"
    SESSION_OVER = "session-over", "session over"
    SESSION_UNKNOWN = "session-unknown", "session unknown"
    SESSION_EXISTS = "session-exists", "session exists"
    SESSION_WITHOUT_JOB = "session-without-job", "no job"
    LOG_OFFSET_INVALID = "log-offset-invalid", "bad offset"
    LOG_CHUNK_TOO_LONG = "log-chunk-too-long", "chunk too long"
    LOG_FULL = "log-full", "log full"
    JIT_UNKNOWN = "jit-unknown", "unknown JIT configuration"
    JIT_USED = "jit-used", "JIT configuration used"


# Why an upload through the server ended before it was complete, or never started.
ENDED_UPLOADS: tuple[Code, ...] = (
    ProblemCode.UPLOAD_CUT,
    ProblemCode.UPLOAD_LATE,
    ProblemCode.UPLOAD_SLOW,
    ProblemCode.STORAGE_UNAVAILABLE,
    *Yielded,
)
PROBLEMS = Catalogue(ProblemCode, Denied, Objection, Requested, Yielded)
