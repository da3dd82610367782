"""Sets the condition DisruptionTarget on a Pod that this server removes, which shows that the Pod did not fail.

There are three causes: a requested eviction, a taint that the Pod does not tolerate, and the removal of Pods of a
deleted Node.
"""

from runyard.embedded.kube.registry import Registry, with_condition
from runyard.embedded.kube.resources import PODS, Object
from runyard.embedded.kube.storage.store import Record
from runyard.wire.instants import to_rfc3339

EVICTED = ("EvictionByEvictionAPI", "Eviction API: evicting")
TAINTED = ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
ORPHANED = ("DeletionByPodGC", "PodGC: node no longer exists")
_FINISHED = ("Succeeded", "Failed")


def mark(registry: Registry, pod: Record, why: tuple[str, str], *, failed: bool = False) -> Record:
    """Sets the condition with its reason; with `failed` also the phase Failed."""
    status = pod.obj.get("status", {})
    before: Object = next(
        (item for item in status.get("conditions") or () if item["type"] == "DisruptionTarget"), {}
    )
    now = to_rfc3339(registry.clock.now())
    condition: Object = {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": before.get("lastTransitionTime", now),
        "reason": why[0],
        "message": why[1],
    }
    if why is not EVICTED and "generation" in pod.meta:
        condition["observedGeneration"] = pod.meta["generation"]
    if before != condition:
        status = with_condition(status, condition)
    if failed and status.get("phase") not in _FINISHED:
        status = {**status, "phase": "Failed"}
    if status is pod.obj.get("status"):
        return pod
    return registry.store.put(PODS, {**pod.obj, "status": status})
