"""Deletion: what a DELETE does to an object, and when an object is really gone.

- Finalizers keep an object, marked as deleting, until their owners have removed them.
- A Pod that runs on a node is only marked: its agent stops it and deletes it again with grace 0. A Pod
  that is bound nowhere, or that has finished, needs nobody's help and goes at once.
- A grace period can be shortened, never extended, and a deletion is never taken back.

The functions are pure: the registry commits what they return.
"""

from runyard.embedded.kube.resources import PODS, Object, Resource
from runyard.wire.instants import from_rfc3339, to_rfc3339

_FINISHED = ("Succeeded", "Failed")


def after_delete(
    resource: Resource, obj: Object, *, grace: int | None, now: float, held: bool = False
) -> Object | None:
    """The object after a DELETE: itself if nothing changes, None if it goes at once.

    `held` keeps an object that still has contents (a namespace), as a finalizer would.
    """
    meta = obj["metadata"]
    seconds = grace_of(resource, obj, grace)
    if seconds == 0 and not meta.get("finalizers") and not held:
        return None
    if "deletionTimestamp" not in meta:
        return _marked(resource, obj, moment=now + seconds, seconds=seconds)
    before = int(meta.get("deletionGracePeriodSeconds", 0))
    if seconds >= before:
        return obj
    begun = from_rfc3339(meta["deletionTimestamp"]) - before
    return _marked(resource, obj, moment=begun + seconds, seconds=seconds)


def grace_of(resource: Resource, obj: Object, asked: int | None) -> int:
    """How long the object may take to go."""
    if resource is not PODS:
        return 0
    spec = obj["spec"]
    if not spec.get("nodeName") or obj.get("status", {}).get("phase") in _FINISHED:
        return 0
    if asked is None:
        return int(spec.get("terminationGracePeriodSeconds", 30))
    return max(asked, 0)


def _marked(resource: Resource, obj: Object, *, moment: float, seconds: int) -> Object:
    meta = dict(obj["metadata"])
    if resource.counted and "deletionTimestamp" not in meta:
        meta["generation"] = int(meta.get("generation", 0)) + 1
    meta["deletionTimestamp"] = to_rfc3339(moment)
    meta["deletionGracePeriodSeconds"] = seconds
    return {**obj, "metadata": meta}


def finished(obj: Object) -> bool:
    """Whether a deleting object has nothing left to wait for."""
    meta = obj["metadata"]
    return (
        "deletionTimestamp" in meta
        and not meta.get("finalizers")
        and meta.get("deletionGracePeriodSeconds", 0) == 0
    )
