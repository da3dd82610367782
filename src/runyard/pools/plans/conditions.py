"""Builds the conditions in a RunnerPool's status: why the pool differs from its spec.

The values of the decision (the admission, the step of the roll) become conditions with their reason and numbers.
`explain` reads them from the status and derives nothing itself.

A condition is written when its status or its reason changes. Numbers that change alone are written with the next
periodic status write, so that a busy pool does not write its status all the time.
"""

from typing import Any

from runyard.pools.plans.actions import Condition
from runyard.pools.plans.reasons import Blocked, PoolReason
from runyard.pools.plans.rollout import Roll
from runyard.pools.plans.views import Snapshot
from runyard.wire import names
from runyard.wire.reasons import Reason, Value, render
from runyard.wire.runnerpool import PoolCondition


def filled(snapshot: Snapshot, *, missing: int, blocked: Blocked | None) -> Condition:
    """Whether every replica exists or is being created; `missing` were not admitted because of `blocked`."""
    replicas = snapshot.pool.spec.replicas
    if missing <= 0:
        code = PoolReason.AS_ASKED if replicas else PoolReason.SCALED_TO_ZERO
        return Condition(type=names.POOL_FILLED, holds=True, reason=code.because(replicas=replicas))
    code, more = _blocked_reason(snapshot, blocked)
    reason = code.because(missing=missing, replicas=replicas, **more)
    extra: tuple[tuple[str, float], ...] = ()
    if code is PoolReason.NO_HEALTHY_HOST and snapshot.fleet is not None:
        extra = (("healthy_hosts", snapshot.fleet.healthy_nodes),)
    return Condition(type=names.POOL_FILLED, holds=False, reason=reason, extra=extra)


def _blocked_reason(
    snapshot: Snapshot, blocked: Blocked | None
) -> tuple[PoolReason, dict[str, Value]]:
    fleet = snapshot.fleet
    if blocked is Blocked.BACKOFF or fleet is None:
        return PoolReason.BACKOFF, {"pause": round(snapshot.held_for, 1)}
    if blocked is Blocked.NO_HEALTHY_NODE:
        return PoolReason.NO_HEALTHY_HOST, {"selector": str(snapshot.pool.spec.fleet_selector)}
    starting: dict[str, Value] = {"starting": fleet.provisioning, "ceiling": fleet.ceiling}
    if blocked is Blocked.POOL_SHARE:
        siblings = {"here": fleet.provisioning_here, "hungry_siblings": fleet.starved_siblings}
        return PoolReason.PROVISIONING_SHARE, {**starting, **siblings}
    return PoolReason.PROVISIONING_CEILING, starting


def deleting(waiting: Reason) -> Condition:
    """The condition of a pool that is being deleted and is never filled again."""
    reason = PoolReason.DELETING.because(waiting=render(waiting))
    return Condition(type=names.POOL_FILLED, holds=False, reason=reason)


def rolled(roll: Roll, *, replicas: int) -> Condition:
    """Whether every runner is created from the pool's current template."""
    if not roll.stale:
        return Condition(type=names.POOL_ROLLED, holds=True, reason=PoolReason.CURRENT.because())
    code = PoolReason.ROLLING if roll.reap or roll.mark else PoolReason.ROLL_CAPPED
    reason = code.because(
        stale=roll.stale, unavailable=roll.rolling, cap=roll.cap, replicas=replicas
    )
    return Condition(type=names.POOL_ROLLED, holds=False, reason=reason)


def changed(conditions: tuple[Condition, ...], written: tuple[PoolCondition, ...]) -> bool:
    """Whether a status or a reason differs from what was last written."""
    before = {each.type: (each.status, each.reason) for each in written}
    return any(before.get(each.type) != (_status(each), each.camel) for each in conditions)


def conditions(
    conditions: tuple[Condition, ...], written: tuple[PoolCondition, ...], *, now: str
) -> list[dict[str, Any]]:
    """The conditions as they are written; one whose status has not changed keeps its transition time."""
    before = {(each.type, each.status): each.last_transition_time for each in written}
    return [
        {
            "type": each.type,
            "status": _status(each),
            "reason": each.camel,
            "message": render(each.reason),
            "lastTransitionTime": before.get((each.type, _status(each))) or now,
            "numbers": dict(each.numbers),
        }
        for each in conditions
    ]


def _status(condition: Condition) -> str:
    return "True" if condition.holds else "False"
