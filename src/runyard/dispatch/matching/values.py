"""What the matcher looks at, and what it says: proposals, and for everything else what holds it.

Nothing here is stored. A `Snapshot` is read in one transaction; proposals carry the generation of the
slot that they were made for, and the store checks budget and rows again under their locks.
"""

from enum import StrEnum

import msgspec

from runyard.dispatch.machine.events import Adopt, Offer
from runyard.dispatch.machine.values import Room


class PoolView(msgspec.Struct, frozen=True, kw_only=True):
    """What a pool's runners offer."""

    name: str
    platform: str
    labels: tuple[str, ...]  # lower case: the runner's labels and the dispatch label
    dispatch_label: str  # lower case
    mint_labels: tuple[str, ...]  # as GitHub is told them
    vcpus: int
    memory_gb: int
    image: str = ""


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """An idle slot whose Pod waits for an answer."""

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
    """The offerable jobs of one repository with one set of labels: alike to every pool."""

    tenant: str
    repository: str
    labels: tuple[str, ...]
    paused: bool = False  # its tenant is
    trial: str = (
        ""  # the exclusion that has run out: one of these jobs may try whether it still holds
    )


class Exclusion(msgspec.Struct, frozen=True, kw_only=True):
    """GitHub refuses runners for these; they are passed over for so many seconds more.

    One that has run out still stands until a success: then one job may try.
    """

    kind: str  # repository, account, github
    name: str
    left: float
    why: str


Times = dict[str, float]  # virtual time on each platform; on one that is not there it is 0


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
    room: Room
    limit: Room


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
    """Everything that the matcher looks at."""

    pools: tuple[PoolView, ...]
    waiting: tuple[Waiting, ...]
    vacancies: tuple[Vacancy, ...]
    tenants: tuple[TenantQueue, ...]
    floors: Times = {}  # where in virtual time the last served tenant began


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """Do this, because of that. `cost` is what virtual time is charged, before the weights."""

    pod_uid: str
    event: Offer | Adopt
    tenant: str
    repository: str
    pool: str
    cost: float
    reason: str
    platform: str = ""  # on which it is charged
    floor: float = 0.0  # of virtual time there, for the tenant
    own_floor: float = 0.0  # of the tenant's own virtual time, for its repositories
    trial: str = ""  # the exclusion that this one tries


class Hold(StrEnum):
    """What stands between a job and a runner."""

    PAUSED = "paused"
    EXCLUDED = "excluded"
    GITHUB = "github"  # nothing can be minted at all just now
    NO_POOL = "no_pool"
    TENANT_CAP = "tenant_cap"
    NO_RUNNER = "no_runner"
    NEXT = "next"  # a runner waits that fits: it is being matched


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """Why the jobs of one kind that were not proposed were not, with the numbers that decided."""

    tenant: str
    repository: str
    labels: tuple[str, ...]
    hold: Hold
    text: str
    numbers: tuple[tuple[str, float], ...] = ()
    pools: tuple[str, ...] = ()  # those that fit


class Matching(msgspec.Struct, frozen=True, kw_only=True):
    """Who gets what, and why the others get nothing now."""

    proposals: tuple[Proposal, ...] = ()
    held: tuple[Held, ...] = ()


def fits(pool: PoolView, labels: tuple[str, ...]) -> bool:
    """Would GitHub give a job with these labels to a runner of this pool, and is it meant to?"""
    wanted = tuple(label.lower() for label in labels)
    return pool.dispatch_label in wanted and all(label in pool.labels for label in wanted)
