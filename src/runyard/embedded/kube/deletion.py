"""Decides what a DELETE does to an object, and when the object is removed.

- An object with finalizers is marked as deleting, and removed when the last finalizer is removed. The deletion policy
  is stored as a finalizer too: `foregroundDeletion` and `orphan` are set here and handled by the collector.
- A Pod that runs on a node is only marked: its agent stops it and deletes it again with grace 0. A Pod that is not
  bound, or that has finished, needs no agent: it is marked and removed in one step, as two events.
- A grace period can be shortened, never extended, and a deletion cannot be undone.
- Grace periods of centuries overflow as in a real server, which counts nanoseconds in 64 bits.

The functions are pure: the registry commits what they return.
"""

import msgspec

from runyard.embedded.kube.resources import EVENTS, NAMESPACES, PODS, Object, Resource
from runyard.wire.instants import from_rfc3339, to_rfc3339

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
_FINISHED = ("Succeeded", "Failed")
_NANO = 10**9
_CENTURY = 100 * 366 * 86400
_POLICIES = {"Foreground": FOREGROUND, "Orphan": ORPHAN, "Background": ""}


class Deletion(msgspec.Struct, frozen=True):
    """The options of a deletion."""

    grace: int | None = None
    policy: str = ""  # Foreground, Background, Orphan; empty: as the object's finalizers say


def after_delete(
    resource: Resource, obj: Object, options: Deletion, *, now: float, held: bool = False
) -> tuple[Object, bool]:
    """Returns the object after a DELETE (the same object if nothing changes) and whether it is removed.

    `held` keeps an object that may have contents (a namespace), as a finalizer would.
    """
    if "deletionTimestamp" in obj["metadata"]:
        return _after_repeated_delete(resource, obj, options, held=held)
    obj = _with_policy(resource, obj, options.policy)
    seconds = grace_of(resource, obj, options.grace)
    waits = bool(obj["metadata"].get("finalizers")) or held
    if seconds == 0 and not waits and resource is not PODS:
        return obj, True
    marked = _marked(resource, obj, moment=now + _duration(seconds), seconds=seconds)
    return marked, seconds == 0 and not waits


def _after_repeated_delete(
    resource: Resource, obj: Object, options: Deletion, *, held: bool
) -> tuple[Object, bool]:
    """Returns the same for a repeated DELETE, which has an effect only if the grace is shorter or already zero."""
    before = int(obj["metadata"].get("deletionGracePeriodSeconds") or 0)
    requested = before if options.grace is None else options.grace if options.grace >= 0 else 1
    if before and requested >= before:
        return obj, False
    after = _with_policy(resource, obj, options.policy)
    waits = bool(after["metadata"].get("finalizers")) or held
    if not before:
        return after, not waits
    started = from_rfc3339(obj["metadata"]["deletionTimestamp"]) - _duration(before)
    moment = started + _duration(requested)
    return _marked(resource, after, moment=moment, seconds=requested), requested == 0 and not waits


def _with_policy(resource: Resource, obj: Object, policy: str) -> Object:
    wanted = _POLICIES.get(policy)
    if wanted is None or resource is EVENTS:  # Events own nothing
        return obj
    before = obj["metadata"].get("finalizers") or []
    after = [item for item in before if item not in (FOREGROUND, ORPHAN) or item == wanted]
    if wanted and wanted not in after:
        after.append(wanted)
    if after == before:
        return obj
    meta = {key: value for key, value in obj["metadata"].items() if key != "finalizers"}
    return {**obj, "metadata": meta | ({"finalizers": after} if after else {})}


def grace_of(resource: Resource, obj: Object, requested: int | None) -> int:
    """The object's grace period; a negative one counts as one second."""
    if resource is not PODS:
        return 0
    spec = obj["spec"]
    if not spec.get("nodeName") or obj.get("status", {}).get("phase") in _FINISHED:
        return 0
    if requested is None:
        requested = int(spec.get("terminationGracePeriodSeconds", 30))
    return requested if requested >= 0 else 1


def _duration(seconds: int) -> float:
    """The actual length of that many seconds."""
    if seconds < _CENTURY:
        return seconds
    return ((seconds * _NANO + (1 << 63)) % (1 << 64) - (1 << 63)) / _NANO


def _marked(resource: Resource, obj: Object, *, moment: float, seconds: int) -> Object:
    meta = dict(obj["metadata"])
    if resource.has_generation and "deletionTimestamp" not in meta:
        meta["generation"] = int(meta.get("generation", 0)) + 1
    meta["deletionTimestamp"] = to_rfc3339(moment)
    if resource is not NAMESPACES:
        meta["deletionGracePeriodSeconds"] = seconds
    return {**obj, "metadata": meta}


def finished(obj: Object) -> bool:
    """Whether a deleting object can be removed: no finalizers and no grace period are left."""
    meta = obj["metadata"]
    return (
        "deletionTimestamp" in meta
        and not meta.get("finalizers")
        and not meta.get("deletionGracePeriodSeconds")
    )
