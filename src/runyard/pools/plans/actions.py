"""What a plan can ask for. Each action says why, and for which version of the object it was decided.

An action whose precondition no longer holds is refused by the API and does nothing: that is how a
stamp which lands between plan and deletion saves its Pod.
"""

from typing import Literal

import msgspec

ReapReason = Literal[
    "terminal",
    "failed-start",
    "node-leaving",
    "node-gone",
    "start-timeout",
    "unschedulable",
    "drain-overdue",
    "rolled",
    "scaled-down",
    "pool-deleted",
]


class CreateRunner(msgspec.Struct, frozen=True, kw_only=True):
    """Create one ServiceAccount and one Pod, under a name that the operator draws."""

    pool_uid: str
    reason: str


class ReapRunner(msgspec.Struct, frozen=True, kw_only=True):
    """Report the stop, delete the Pod, delete its ServiceAccount."""

    name: str
    uid: str
    resource_version: str
    ended_at: float
    reason: ReapReason
    detail: str = ""
    counted: bool = True
    """The plan counted this runner as alive until now: if it survives, one creation less is needed."""


class ReapAccount(msgspec.Struct, frozen=True, kw_only=True):
    """Delete a ServiceAccount whose Pod is proven gone."""

    name: str
    uid: str
    resource_version: str
    reason: str


class MarkDrainEligible(msgspec.Struct, frozen=True, kw_only=True):
    """Allow the server to answer this stale runner's next poll with "drain"."""

    name: str
    uid: str
    resource_version: str
    reason: str


class ForceDelete(msgspec.Struct, frozen=True, kw_only=True):
    """Remove a Pod that is being deleted and whose host will never confirm it."""

    name: str
    uid: str
    resource_version: str
    reason: str


class ReportStopped(msgspec.Struct, frozen=True, kw_only=True):
    """Tell the server that a runner which somebody else deleted has stopped."""

    name: str
    uid: str
    ended_at: float
    reason: str


Action = CreateRunner | ReapRunner | ReapAccount | MarkDrainEligible | ForceDelete | ReportStopped


class FinalizerChange(msgspec.Struct, frozen=True, kw_only=True):
    """The pool's complete new list of finalizers, valid for this version of the pool only."""

    uid: str
    resource_version: str
    finalizers: tuple[str, ...]
    reason: str


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """One condition of the pool: what is so or not, the deciding function's reason, and its numbers."""

    type: str
    holds: bool
    reason: str
    message: str
    numbers: tuple[tuple[str, float], ...] = ()


class StatusPatch(msgspec.Struct, frozen=True, kw_only=True):
    """The status fields that the operator owns, as they should read.

    `observed` counts the runners before this plan's creations and deletions; the operator adds what
    it achieved.
    """

    uid: str
    observed: int
    image: str
    image_rolled_at: str
    written: int
    written_image: str
    told: tuple[Told, ...]
    news: bool
    """Another reason than the one that was last written."""
    due: bool
    """Long enough since the last write that it is repeated as a sign of life."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What the metrics say about this pool after the plan."""

    rolling: int = 0
    stale: int = 0
    cap: int = 1
    idle: int = 0
    provisioning: int = 0
    pending: int = 0
    running: int = 0
    unknown: int = 0
    oldest_pending_seconds: float | None = None
    stuck: tuple[str, ...] = ()
    """uids of runners that are being deleted for too long, on hosts that still exist."""
    blocked: str = ""
    """Why creations were held back; empty when they were not."""


class PoolPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The decision for one pool."""

    actions: tuple[Action, ...] = ()
    finalizers: FinalizerChange | None = None
    status: StatusPatch | None = None
    figures: Figures = Figures()
    gap: int = 0
    """Runners still missing after this plan, were all of it carried out."""
    waiting: str = ""
    """What a pool that is being deleted waits for."""
