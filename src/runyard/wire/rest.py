"""Bodies of the REST API for tenants and jobs. Refusals have the body of `http.problems`.

Moments are seconds since the epoch; nothing here holds a credential.
"""

from typing import Annotated, Literal

import msgspec

TENANTS = "/api/v1/tenants"
TENANT = "/api/v1/tenants/{tenant}"
JOBS = "/api/v1/jobs"
JOB = "/api/v1/jobs/{job}"
CANCEL = "/api/v1/jobs/{job}/cancel"
RETRY = "/api/v1/jobs/{job}/retry"
ACTOR = "x-runyard-actor"  # the caller's own name, for the audit trail

Detail = dict[str, str | int | float]
Platform = Literal["linux", "macos"]
Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
Weight = Annotated[float, msgspec.Meta(gt=0, le=1_000_000)]
Priority = Annotated[int, msgspec.Meta(ge=-1_000_000, le=1_000_000)]
# The end of the text: in Python `$` alone also matches before a final newline, and other languages have no `\Z`.
_END = r"$(?!\n)"
Why = Annotated[str, msgspec.Meta(max_length=500, pattern=r"^[^\x00-\x1f\x7f]*" + _END)]
RepositoryName = Annotated[
    str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100}" + _END)
]


class Limit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a tenant may use on one platform at once."""

    platform: Platform
    vcpus: Count | None = None  # None in a patch: unchanged
    memory_gb: Count | None = None


class RepositoryPatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A repository's share of its tenant, and the priority of its jobs."""

    repository: RepositoryName
    weight: Weight | None = None
    priority: Priority | None = None


class TenantPatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The changes of a tenant; fields that are left out stay unchanged."""

    weight: Weight | None = None
    paused: bool | None = None
    limits: Annotated[tuple[Limit, ...], msgspec.Meta(max_length=2)] = ()
    repositories: Annotated[tuple[RepositoryPatch, ...], msgspec.Meta(max_length=100)] = ()
    why: Why = ""


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """A limit, and how much of it is used."""

    platform: str
    vcpus: int
    memory_gb: int
    vcpus_used: int
    memory_gb_used: int


class Repository(msgspec.Struct, frozen=True, kw_only=True):
    """One repository of a tenant."""

    repository: str
    weight: float
    priority: int


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the audit trail."""

    at: float
    field: str
    source: str  # a value, or a reason's slug
    target: str
    why: str  # as the caller wrote it
    actor: str
    detail: Detail = {}  # of the reason
    text: str = ""  # the reason for people


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """One account at GitHub."""

    tenant: str
    kind: str
    installation_id: int
    weight: float
    paused: bool
    mint_at: str
    limits: tuple[Use, ...] = ()
    repositories: tuple[Repository, ...] = ()  # for one tenant, not in a list of them
    changes: tuple[Change, ...] = ()  # likewise, newest first


class Tenants(msgspec.Struct, frozen=True, kw_only=True):
    """A page of tenants; `next` is the `after` of the next page, empty at the end."""

    items: tuple[Tenant, ...]
    next: str = ""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One workflow job."""

    job: int
    tenant: str
    repository: str
    name: str
    workflow: str
    branch: str
    head_sha: str
    run_id: int
    run_attempt: int
    labels: tuple[str, ...]
    state: str
    verified: bool
    priority: int
    runner_name: str
    conclusion: str
    trust: str = ""  # a code, empty until it is decided; only `same-repository` is trusted
    trust_text: str = ""
    enqueued_at: float
    claimed_at: float | None = None
    started_at: float | None = None
    completed_at: float | None = None


class Jobs(msgspec.Struct, frozen=True, kw_only=True):
    """A page of jobs, newest first; `next` is the `before` of the next page, 0 at the end."""

    items: tuple[Job, ...]
    next: int = 0


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """The runner that a job is meant for or runs on."""

    pod_uid: str
    pod_name: str
    pool: str
    state: str
    generation: int
    intended_job: int | None
    executing_job: int | None
    runner_name: str
    runner_id: int | None
    fence: str
    close_reason: str  # a slug; empty while it is open
    close_text: str  # the same for people
    deadline: float
    last_beat: float
    opened_at: float
    closed_at: float | None = None


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """One change of state, of the job or of its runner's slot."""

    at: float
    subject: str
    pod_uid: str | None
    job_id: int | None
    source: str
    target: str
    reason: str  # a slug
    detail: Detail
    text: str  # the reason for people
    actor: str


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A request about a job that was passed to GitHub, and its outcome."""

    at: float
    what: str
    outcome: str  # a slug
    detail: Detail
    text: str  # the outcome for people
    actor: str


class JobDetail(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is known of a job."""

    job: Job
    slots: tuple[Slot, ...]
    transitions: tuple[Transition, ...]  # oldest first
    asked: tuple[Question, ...] = ()  # newest first


class Cancel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """GitHub cancels whole runs: `others` says that the run's other jobs may end with this one."""

    others: bool = False


class Retry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Run a job once more."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """GitHub accepted the request; its result arrives by webhook."""

    job: int
    run_id: int
    others: tuple[int, ...] = ()  # other jobs of the same run that are affected
    outcome: str  # a slug
    text: str  # the outcome for people
