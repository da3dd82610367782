"""Chooses the events of a pool: which action, refusal or step of a roll people see under `kubectl describe runnerpool`.

The reason of an event is a code: that of the action, or one of `EventReason`. Its message is rendered where it is sent.
Accounts and reports of stops are bookkeeping and have no event.
"""

import msgspec

from runyard.pools.plans.actions import (
    Action,
    Condition,
    CreateRunner,
    ForceDelete,
    MarkDrainEligible,
    ReapRunner,
)
from runyard.pools.plans.reasons import EventReason, Why
from runyard.pools.plans.views import PoolView
from runyard.wire import names
from runyard.wire.kube_reasons import KubeCode
from runyard.wire.reasons import Reason

_SHOWN = (CreateRunner, ReapRunner, MarkDrainEligible, ForceDelete)
_WARNINGS = (
    Why.FAILED_START,
    Why.NODE_GONE,
    Why.START_TIMEOUT,
    Why.UNSCHEDULABLE,
    Why.DRAIN_OVERDUE,
)


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a pool: its reason, and the action and the runner if it is about one."""

    code: KubeCode
    reason: Reason
    action: type[Action] | None = None
    runner: str = ""
    warning: bool = False


def acted(action: Action, runner: str) -> Notice | None:
    """The event of an action that was carried out."""
    if not isinstance(action, _SHOWN):
        return None
    why = action.reason
    return Notice(
        code=why,
        reason=why.because(),
        action=type(action),
        runner=runner,
        warning=why in _WARNINGS,
    )


def refused(action: str, error: str) -> Notice:
    """The event of a write that the API refused."""
    code = EventReason.API_REFUSED
    return Notice(code=code, reason=code.because(action=action, error=error), warning=True)


def rolled_before(pool: PoolView) -> bool:
    """Whether the written status says that every runner is current; a new pool has nothing to roll."""
    return all(
        each.status == "True" for each in pool.status.conditions if each.type == names.POOL_ROLLED
    )


def roll(pool: PoolView, condition: Condition) -> Notice:
    """The event of the first or the last step of a roll."""
    image = pool.spec.image
    if condition.holds:
        code = EventReason.ROLL_FINISHED
        return Notice(code=code, reason=code.because(image=image))
    code = EventReason.ROLL_STARTED
    stale = int(dict(condition.numbers)["stale"])
    reason = code.because(stale=stale, replicas=pool.spec.replicas, image=image)
    return Notice(code=code, reason=reason)
