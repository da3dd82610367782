"""Defines the matcher's snapshot and its result: proposals, and what holds every other kind of job.

Nothing here is stored. A `Snapshot` is read in one transaction; proposals carry the generation of the
slot that they were made for, and the store checks budget and rows again under their locks.
"""

from enum import StrEnum

import msgspec

from runyard.dispatch.machine.events import Claim
from runyard.dispatch.machine.values import Headroom
from runyard.wire.reasons import Reason


class PoolView(msgspec.Struct, frozen=True, kw_only=True):
    """A RunnerPool, as far as matching needs it."""

    name: str
    platform: str
    labels: tuple[str, ...]  # lower case: the runner's labels and the dispatch label
    dispatch_label: str  # lower case
    mint_labels: tuple[str, ...]  # as they are sent to GitHub
    vcpus: int
    memory_gb: int
    image: str = ""


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """An idle slot whose Pod has an open poll."""

    pod_uid: str
    pod_name: str
    pool: str
    generation: int


class Vacancy(msgspec.Struct, frozen=True, kw_only=True):
    """An armed runner whose job is gone."""

    pod_uid: str
    pool: str
    generation: int
    tenant: str
    scope: str


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """The offerable jobs of one repository with one set of labels; every pool fits all or none of them."""

    tenant: str
    repository: str
    labels: tuple[str, ...]
    paused: bool = False  # the tenant is paused
    trial: str = (
        ""  # the exclusion that has run out: one of these jobs may try whether it still holds
    )


class Exclusion(msgspec.Struct, frozen=True, kw_only=True):
    """GitHub refuses runners for these; they are skipped for `left` more seconds.

    After that one job is tried; the exclusion ends with a success.
    """

    kind: str  # repository, account, github
    name: str
    left: float
    reason: Reason


Times = dict[str, float]  # virtual time by platform; 0 if missing


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A job that may be offered."""

    job_id: int
    labels: tuple[str, ...]
    priority: int = 0


class RepositoryQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A repository and its next jobs, in their order: by priority, then by age."""

    repository: str
    weight: float = 1.0
    vtimes: Times = {}
    jobs: tuple[Candidate, ...] = ()
    trial: str = ""  # see `Kind`


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """What a tenant may use on one platform, and what is left of it."""

    platform: str
    headroom: Headroom
    limit: Headroom


class TenantQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant and the next jobs of its repositories."""

    tenant: str
    installation_id: int
    at_org: bool  # its runners are registered at the organisation, not at the repository
    weight: float
    repositories: tuple[RepositoryQueue, ...]
    vtimes: Times = {}
    budgets: tuple[Budget, ...] = ()
    floors: Times = {}  # where in the tenant's own virtual time the last served repository began


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The input of the matcher."""

    pools: tuple[PoolView, ...]
    waiting: tuple[Waiting, ...]
    vacancies: tuple[Vacancy, ...]
    tenants: tuple[TenantQueue, ...]
    floors: Times = {}  # where in virtual time the last served tenant began


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """A claim to make, with its reason. `cost` is added to virtual time, divided by the weights."""

    pod_uid: str
    event: Claim
    tenant: str
    repository: str
    pool: str
    cost: float
    reason: Reason
    platform: str = ""  # whose virtual time is charged
    floor: float = 0.0  # of the tenants' virtual time on this platform
    own_floor: float = 0.0  # of the repositories' virtual time within the tenant
    trial: str = ""  # the exclusion that this job tests


class Hold(StrEnum):
    """What holds a job."""

    PAUSED = "paused"
    EXCLUDED = "excluded"
    GITHUB = "github"  # no runner at all can be minted now
    NO_POOL = "no-pool"
    TENANT_CAP = "tenant-cap"
    NO_RUNNER = "no-runner"
    NEXT = "next"  # a fitting runner waits: the job is matched next


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """Why jobs of one kind were not proposed: the kind of hold, the reason, and its cause."""

    tenant: str
    repository: str
    labels: tuple[str, ...]
    hold: Hold
    reason: Reason
    cause: Reason | None = None  # why GitHub mints no runner
    pools: tuple[str, ...] = ()  # those that fit


class Matching(msgspec.Struct, frozen=True, kw_only=True):
    """The proposals, and what holds the other kinds."""

    proposals: tuple[Proposal, ...] = ()
    held: tuple[Held, ...] = ()
    pools_read: bool = True  # False: the replica has just started, and does not know the pools yet


def fits(pool: PoolView, labels: tuple[str, ...]) -> bool:
    """Whether GitHub would assign such a job to a runner of this pool, and the job has the pool's dispatch label."""
    wanted = tuple(label.lower() for label in labels)
    return pool.dispatch_label in wanted and all(label in pool.labels for label in wanted)
