"""What the operator tells the world about a pool: why it is not what it asks to be.

The same values that decided (the admission, the step of the roll) become conditions in the pool's status, with the
reason and the numbers. Whoever explains a waiting job reads them there; nobody derives them a second time.

A condition is written when its truth or its reason changes. Numbers that merely move travel with the next sign of
life, so that a busy pool does not write its status all the time.
"""

from typing import Any

from runyard.pools.plans.actions import Told
from runyard.pools.plans.rollout import Roll
from runyard.pools.plans.views import Snapshot
from runyard.wire import names
from runyard.wire.runnerpool import PoolCondition

_BLOCKED = {
    "backoff": names.REASON_BACKOFF,
    "no_healthy_node": names.REASON_NO_HEALTHY_HOST,
    "fleet_cap": names.REASON_PROVISIONING_CEILING,
    "pool_share": names.REASON_PROVISIONING_SHARE,
}


def filled(snapshot: Snapshot, *, missing: int, blocked: str) -> Told:
    """Does every replica exist, or is on its way? `missing` are those that were not admitted, because `blocked`."""
    replicas = snapshot.pool.spec.replicas
    if missing <= 0:
        reason = names.REASON_AS_ASKED if replicas else names.REASON_SCALED_TO_ZERO
        text = f"all {replicas} replicas exist or are being made" if replicas else "0 replicas"
        numbers: tuple[tuple[str, float], ...] = (("replicas", replicas),)
        return Told(
            type=names.POOL_FILLED, holds=True, reason=reason, message=text, numbers=numbers
        )
    text, more = _hindrance(snapshot, blocked)
    return Told(
        type=names.POOL_FILLED,
        holds=False,
        reason=_BLOCKED.get(blocked, blocked),
        message=f"{missing} of {replicas} replicas missing: {text}",
        numbers=(("missing", missing), ("replicas", replicas), *more),
    )


def _hindrance(snapshot: Snapshot, blocked: str) -> tuple[str, tuple[tuple[str, float], ...]]:
    fleet = snapshot.fleet
    if blocked == "backoff" or fleet is None:
        pause = round(snapshot.held_for, 1)
        return f"what was created failed at once; next attempt in {pause:g} s", (("pause", pause),)
    if blocked == "no_healthy_node":
        selector = snapshot.pool.spec.fleet_selector
        return f"no healthy host in {selector}", (("healthy_hosts", fleet.healthy_nodes),)
    starting = (("starting", fleet.provisioning), ("ceiling", fleet.ceiling))
    text = f"{fleet.provisioning} of at most {fleet.ceiling} runners start on the shared hosts"
    if blocked == "pool_share":
        waiting = (("here", fleet.provisioning_here), ("hungry_siblings", fleet.hungry_siblings))
        more = f", {fleet.provisioning_here} of them here; {fleet.hungry_siblings} other pools have none"
        return text + more, (*starting, *waiting)
    return text, starting


def leaves(waiting: str) -> Told:
    """A pool that is being deleted waits for something, and is never filled again."""
    text = f"the pool is being deleted and waits for {waiting}"
    return Told(type=names.POOL_FILLED, holds=False, reason=names.REASON_DELETING, message=text)


def rolled(roll: Roll, *, replicas: int) -> Told:
    """Is every runner made from the template that the pool asks for?"""
    if not roll.stale:
        text = "every runner is current"
        return Told(type=names.POOL_ROLLED, holds=True, reason=names.REASON_AS_ASKED, message=text)
    capped = not (roll.reap or roll.mark)
    text = f"{roll.stale} of {replicas} runners are made from an older template;"
    text += f" {roll.rolling} are unavailable, at most {roll.cap} may be"
    return Told(
        type=names.POOL_ROLLED,
        holds=False,
        reason=names.REASON_ROLL_CAPPED if capped else names.REASON_ROLLING,
        message=text,
        numbers=(
            ("stale", roll.stale),
            ("unavailable", roll.rolling),
            ("cap", roll.cap),
            ("replicas", replicas),
        ),
    )


def news(told: tuple[Told, ...], written: tuple[PoolCondition, ...]) -> bool:
    """Is something so that was not, or for another reason?"""
    before = {each.type: (each.status, each.reason) for each in written}
    return any(before.get(each.type) != (_status(each), each.reason) for each in told)


def conditions(
    told: tuple[Told, ...], written: tuple[PoolCondition, ...], *, now: str
) -> list[dict[str, Any]]:
    """As they are written; what has not changed keeps its moment."""
    before = {(each.type, each.status): each.last_transition_time for each in written}
    return [
        {
            "type": each.type,
            "status": _status(each),
            "reason": each.reason,
            "message": each.message,
            "lastTransitionTime": before.get((each.type, _status(each))) or now,
            "numbers": dict(each.numbers),
        }
        for each in told
    ]


def _status(told: Told) -> str:
    return "True" if told.holds else "False"
