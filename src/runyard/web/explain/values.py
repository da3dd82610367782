"""An explanation as a value: what holds something up, with its numbers, and who decided so.

A chain of steps leads from what was asked about towards the cause: job, pool, Pod, host. Each step repeats what
the part that decides has returned or published; nothing here is a guess of a second mind. A step that `leads` is itself
caused by the next one; the first step that does not is the *binding* constraint: remove it, and the thing moves on.
"""

from enum import StrEnum
from typing import Literal

import msgspec

Subject = Literal["job", "pod", "pool", "runner"]
SUBJECTS: tuple[Subject, ...] = ("job", "pod", "pool", "runner")


class Constraint(StrEnum):
    """Everything that can hold a job, a Pod or a pool up. The first seven are the matcher's own words."""

    NO_POOL = "no_pool"
    NO_RUNNER = "no_runner"
    TENANT_CAP = "tenant_cap"
    EXCLUDED = "excluded"
    PAUSED = "paused"
    GITHUB = "github"
    NEXT = "next"

    APPROVAL = "approval"
    ASKED_FIRST = "asked_first"
    MINTING = "minting"
    REGISTERING = "registering"
    FENCE = "fence"
    OUTAGE_GRACE = "outage_grace"
    SWITCHED_OFF = "switched_off"
    GITHUB_BUDGET = "github_budget"
    GITHUB_AWAY = "github_away"
    GITHUB_REFUSED = "github_refused"
    DATABASE_AWAY = "database_away"
    KUBERNETES_AWAY = "kubernetes_away"

    ALL_BUSY = "all_busy"
    SCALED_TO_ZERO = "scaled_to_zero"
    PROVISIONING_CEILING = "provisioning_ceiling"
    BACKOFF = "backoff"
    ROLL = "roll"
    POOL_DELETED = "pool_deleted"

    NO_HOST = "no_host"
    HOST_AWAY = "host_away"
    IMAGE_STAGING = "image_staging"
    BOOTING = "booting"
    START_FAILED = "start_failed"
    NOT_ASKING = "not_asking"
    STAMPED = "stamped"
    DRAINING = "draining"

    NO_JOB = "no_job"
    RUNNING = "running"
    OVER = "over"
    AS_ASKED = "as_asked"


# Nothing holds it up: it works, it waits for somebody to need it, or it is over.
FREE = (
    Constraint.NO_JOB,
    Constraint.RUNNING,
    Constraint.OVER,
    Constraint.AS_ASKED,
)


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One link of the chain."""

    constraint: Constraint
    subject: str  # job 7, pool mac, pod mac-runner-1, host mini-1, GitHub, Postgres, Kubernetes
    what: str
    who: str  # the part that decides
    since: float | None = None  # seconds since the epoch
    numbers: dict[str, float] = {}
    ends: str = ""  # what would end it
    leads: bool = False  # the next step is why


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why it is as it is. `binding` is one of the chain; `unknown` are sources that could not be read."""

    subject: Subject
    id: str
    at: float
    binding: Step
    chain: tuple[Step, ...]
    unknown: tuple[str, ...] = ()

    @property
    def free(self) -> bool:
        """Nothing holds it up."""
        return self.binding.constraint in FREE


class Unknown(msgspec.Struct, frozen=True, kw_only=True):
    """There is no such thing, as far as this was searched."""

    subject: Subject
    id: str
    searched: tuple[str, ...]


def explained(
    subject: Subject, id_: str, chain: tuple[Step, ...], *, at: float, unknown: tuple[str, ...] = ()
) -> Explanation:
    """Name the binding constraint of a chain; a chain whose last step leads on ends there for want of knowledge."""
    binding = next((step for step in chain if not step.leads), chain[-1])
    return Explanation(
        subject=subject, id=id_, at=at, binding=binding, chain=chain, unknown=unknown
    )
