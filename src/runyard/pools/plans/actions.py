"""The actions of a pool plan. Each carries its reason and the version of the object it was decided on.

An action whose precondition no longer holds is refused by the API and does nothing: a stamp that lands between the
plan and the deletion protects its Pod.
"""

import msgspec

from runyard.pools.plans.reasons import Blocked, PoolReason, Why
from runyard.wire.reasons import Reason


class CreateRunner(msgspec.Struct, frozen=True, kw_only=True):
    """Create one ServiceAccount and one Pod, under one random name."""

    pool_uid: str
    reason: Why


class ReapRunner(msgspec.Struct, frozen=True, kw_only=True):
    """Report the stop, delete the Pod, delete its ServiceAccount."""

    name: str
    uid: str
    resource_version: str
    ended_at: float
    reason: Why
    detail: str = ""
    counted: bool = True
    """The plan counts this runner as removed: if the deletion fails, one creation less is needed."""


class ReapAccount(msgspec.Struct, frozen=True, kw_only=True):
    """Delete a ServiceAccount whose Pod is proven gone."""

    name: str
    uid: str
    resource_version: str
    reason: Why


class MarkDrainEligible(msgspec.Struct, frozen=True, kw_only=True):
    """Allow the server to answer this stale runner's next poll with "drain"."""

    name: str
    uid: str
    resource_version: str
    reason: Why


class ForceDelete(msgspec.Struct, frozen=True, kw_only=True):
    """Remove a Pod that is being deleted and whose host will never confirm it."""

    name: str
    uid: str
    resource_version: str
    reason: Why


class ReportStopped(msgspec.Struct, frozen=True, kw_only=True):
    """Report to the server that a runner which another client deleted has stopped."""

    name: str
    uid: str
    ended_at: float
    reason: Why


Action = CreateRunner | ReapRunner | ReapAccount | MarkDrainEligible | ForceDelete | ReportStopped


class FinalizerChange(msgspec.Struct, frozen=True, kw_only=True):
    """The pool's complete new list of finalizers, valid for this version of the pool only."""

    uid: str
    resource_version: str
    finalizers: tuple[str, ...]
    reason: Why


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """One condition of the pool: its type, whether it holds, and the reason with its numbers."""

    type: str
    holds: bool
    reason: Reason
    extra: tuple[tuple[str, float], ...] = ()
    """Numbers that the reason's text does not show."""

    @property
    def camel(self) -> str:
        """The reason as the status carries it."""
        assert isinstance(self.reason.code, PoolReason), "a pool's condition has a pool's reason"
        return self.reason.code.camel

    @property
    def numbers(self) -> tuple[tuple[str, float], ...]:
        """Every number, by name."""
        shown = [(name, value) for name, value in self.reason.detail if not isinstance(value, str)]
        return (*shown, *self.extra)


class StatusPatch(msgspec.Struct, frozen=True, kw_only=True):
    """The status fields that the operator owns, as they should be written.

    `observed` counts the runners before this plan's creations and deletions; the operator adds those that
    succeeded.
    """

    uid: str
    observed: int
    image: str
    image_rolled_at: str
    written: int
    written_image: str
    conditions: tuple[Condition, ...]
    changed: bool
    """A condition's status or reason differs from the one that was last written."""
    due: bool
    """The last write is so long ago that it is repeated as a heartbeat."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The values of the pool's metrics after the plan."""

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
    blocked: Blocked | None = None
    """Why not all missing runners are created; None if all are."""


class PoolPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The decision for one pool."""

    actions: tuple[Action, ...] = ()
    finalizers: FinalizerChange | None = None
    status: StatusPatch | None = None
    figures: Figures = Figures()
    gap: int = 0
    """Runners that are still missing if all of this plan succeeds."""
    waiting: Reason | None = None
    """What a pool that is being deleted waits for."""
