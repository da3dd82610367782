"""Computes taints from a Node's state, and which Pods tolerate them and for how long. Pure.

The state of a Node (its conditions, whether it is cordoned) becomes taints with the effect NoSchedule at
once. The effect NoExecute, which evicts Pods, depends on the Ready condition alone, and is set later by the
node lifecycle (`lifecycle`). Other taints are not changed here.
"""

import math
from collections.abc import Iterable, Sequence

from runyard.embedded.kube.resources import Object
from runyard.embedded.kube.shapes import Taint, Toleration

_PREFIX = "node.kubernetes.io/"
NOT_READY = _PREFIX + "not-ready"
UNREACHABLE = _PREFIX + "unreachable"
UNSCHEDULABLE = _PREFIX + "unschedulable"
NO_SCHEDULE, NO_EXECUTE, PREFER = "NoSchedule", "NoExecute", "PreferNoSchedule"

_BY_CONDITION = {
    ("Ready", "False"): NOT_READY,
    ("Ready", "Unknown"): UNREACHABLE,
    ("MemoryPressure", "True"): _PREFIX + "memory-pressure",
    ("DiskPressure", "True"): _PREFIX + "disk-pressure",
    ("PIDPressure", "True"): _PREFIX + "pid-pressure",
    ("NetworkUnavailable", "True"): _PREFIX + "network-unavailable",
}
_OURS = (*_BY_CONDITION.values(), UNSCHEDULABLE)
_LOST = (NOT_READY, UNREACHABLE)


def covers(toleration: Toleration, taint: Taint) -> bool:
    """Whether this toleration covers the taint."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.value == taint.value


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Whether any toleration covers the taint."""
    return any(covers(item, taint) for item in tolerations)


def seconds_tolerated(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> float:
    """How many seconds a Pod stays on a node with those NoExecute taints; infinite: without limit."""
    limit = math.inf
    for taint in taints:
        fitting = next((item for item in tolerations if covers(item, taint)), None)
        if fitting is None:
            return 0.0
        if fitting.toleration_seconds is not None:
            limit = min(limit, max(0.0, float(fitting.toleration_seconds)))
    return limit


# ---- taints from a Node's state


def state_keys(spec: Object, conditions: Iterable[Object]) -> tuple[str, ...]:
    """The keys of the NoSchedule taints that a Node's conditions and its cordon require."""
    found = [
        key
        for item in conditions
        if (key := _BY_CONDITION.get((item.get("type", ""), item.get("status", ""))))
    ]
    return (*found, UNSCHEDULABLE) if spec.get("unschedulable") else tuple(found)


def with_state_taints(spec: Object, conditions: Sequence[Object], *, now: str) -> Object:
    """The spec with taints that correspond to the Node's state; the same object if they do.

    NoExecute is only removed or replaced here, not added: a Node that is Ready loses it.
    """
    held: list[Object] = spec.get("taints") or []
    keys = state_keys(spec, conditions)
    lost = next((key for key in keys if key in _LOST), "")
    was_lost = any(_by_lifecycle(item) for item in held)
    required = [(key, NO_SCHEDULE) for key in keys]
    required += [(lost, NO_EXECUTE)] if was_lost and lost else []
    kept = [item for item in held if not _ours(item) or (item["key"], item["effect"]) in required]
    there = [(item["key"], item["effect"]) for item in kept]
    added = [
        {"key": key, "effect": effect, "timeAdded": now}
        for key, effect in required
        if (key, effect) not in there
    ]
    if not added and len(kept) == len(held):
        return spec
    return with_taints(spec, kept + added)


def registered(node: Object) -> Object:
    """A new Node at admission: nothing is scheduled to it before its conditions were evaluated."""
    spec = node.get("spec") or {}
    held = spec.get("taints") or []
    if any(item.get("key") == NOT_READY and item.get("effect") == NO_SCHEDULE for item in held):
        return node
    first = {"key": NOT_READY, "effect": NO_SCHEDULE}
    return {**node, "spec": with_taints(spec, [*held, first])}


def with_lost_taint(spec: Object, key: str, *, now: str) -> Object:
    """The spec with the NoExecute taint of a Node that is lost."""
    return with_taints(
        spec, [*(spec.get("taints") or []), {"key": key, "effect": NO_EXECUTE, "timeAdded": now}]
    )


def without_lost_taint(spec: Object) -> Object:
    """The spec without the NoExecute taints of the node lifecycle; itself if it has none."""
    held: list[Object] = spec.get("taints") or []
    kept = [item for item in held if not _by_lifecycle(item)]
    return spec if len(kept) == len(held) else with_taints(spec, kept)


def has_lost_taint(spec: Object) -> bool:
    """Whether the node lifecycle has set NoExecute on that Node."""
    return any(_by_lifecycle(item) for item in spec.get("taints") or ())


def lost_key(status: str) -> str:
    """The key of the taint for a Ready condition of that status; empty if the Node is Ready or has none."""
    return _BY_CONDITION.get(("Ready", status), "")


def with_taints(spec: Object, taints: list[Object]) -> Object:
    """The spec with those taints and no others."""
    rest = {key: value for key, value in spec.items() if key != "taints"}
    return {**rest, "taints": taints} if taints else rest


def no_execute_taints(spec: Object) -> tuple[Taint, ...]:
    """Returns all NoExecute taints."""
    return tuple(
        Taint(key=item["key"], effect="NoExecute", value=item.get("value", ""))
        for item in spec.get("taints") or ()
        if item.get("effect") == NO_EXECUTE
    )


def _ours(item: Object) -> bool:
    return (item["effect"] == NO_SCHEDULE and item["key"] in _OURS) or _by_lifecycle(item)


def _by_lifecycle(item: Object) -> bool:
    return bool(item["effect"] == NO_EXECUTE and item["key"] in _LOST)
