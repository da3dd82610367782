"""Types of an explanation.

A chain of steps leads from the object in question to the cause: job, pool, Pod, host. Each step repeats what the
deciding component returned or published; nothing is decided again here. A step that `leads` is caused by the next
one. The first step that does not lead is the *binding* constraint: when it is removed, the object makes progress.
"""

from enum import StrEnum
from typing import Literal

import msgspec

from runyard.wire.reasons import Reason

Subject = Literal["job", "pod", "pool", "runner"]
SUBJECTS: tuple[Subject, ...] = ("job", "pod", "pool", "runner")


class Constraint(StrEnum):
    """What can hold a job, a Pod or a pool. The first seven are the matcher's holds."""

    NO_POOL = "no-pool"
    NO_RUNNER = "no-runner"
    TENANT_CAP = "tenant-cap"
    EXCLUDED = "excluded"
    PAUSED = "paused"
    GITHUB = "github"
    NEXT = "next"

    UNEXAMINED = "unexamined"
    APPROVAL = "approval"
    ASKED_FIRST = "asked-first"
    MINTING = "minting"
    REGISTERING = "registering"
    FENCE = "fence"
    OUTAGE_GRACE = "outage-grace"
    SWITCHED_OFF = "switched-off"
    GITHUB_BUDGET = "github-budget"
    GITHUB_AWAY = "github-away"
    GITHUB_REFUSED = "github-refused"
    DATABASE_AWAY = "database-away"
    KUBERNETES_AWAY = "kubernetes-away"

    ALL_BUSY = "all-busy"
    SCALED_TO_ZERO = "scaled-to-zero"
    PROVISIONING_CEILING = "provisioning-ceiling"
    BACKOFF = "backoff"
    ROLL = "roll"
    POOL_DELETED = "pool-deleted"

    NO_HOST = "no-host"
    HOST_AWAY = "host-away"
    IMAGE_STAGING = "image-staging"
    BOOTING = "booting"
    SLOTS_FULL = "slots-full"
    START_FAILED = "start-failed"
    NOT_ASKING = "not-asking"
    STAMPED = "stamped"
    DRAINING = "draining"

    NO_JOB = "no-job"
    RUNNING = "running"
    OVER = "over"
    AS_ASKED = "as-asked"


# Nothing holds it: it is running, idle or done.
FREE = (
    Constraint.NO_JOB,
    Constraint.RUNNING,
    Constraint.OVER,
    Constraint.AS_ASKED,
)


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the chain."""

    constraint: Constraint
    subject: str  # job 7, pool mac, pod mac-runner-1, host mini-1, GitHub, Postgres, Kubernetes
    what: Reason
    who: str  # the component that decides
    since: float | None = None  # seconds since the epoch
    numbers: dict[str, float] = {}
    ends: Reason | None = None  # what would end it
    cause: Reason | None = None  # of `what`, where it is known
    leads: bool = False  # the next step is the cause
    reason: str = ""  # the exact reason code, where the component that decides publishes one

    @property
    def code(self) -> str:
        """The exact reason's slug, or that of the constraint."""
        return self.reason or self.constraint.value


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The chain of causes. `binding` is one of its steps; `unknown` are sources that could not be read.

    `facts` are true of the object and hold nothing: whether a job is trusted.
    """

    subject: Subject
    id: str
    at: float
    binding: Step
    chain: tuple[Step, ...]
    facts: tuple[Reason, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def free(self) -> bool:
        """Whether nothing holds the object."""
        return self.binding.constraint in FREE


class Unknown(msgspec.Struct, frozen=True, kw_only=True):
    """The object was not found; `searched` lists where."""

    subject: Subject
    id: str
    searched: tuple[str, ...]


def explained(
    subject: Subject,
    id_: str,
    chain: tuple[Step, ...],
    *,
    at: float,
    facts: tuple[Reason, ...] = (),
    unknown: tuple[str, ...] = (),
) -> Explanation:
    """Build an explanation. If every step leads, the cause is not known, and the last step is binding."""
    binding = next((step for step in chain if not step.leads), chain[-1])
    return Explanation(
        subject=subject,
        id=id_,
        at=at,
        binding=binding,
        chain=chain,
        facts=facts,
        unknown=unknown,
    )
