"""A Pod that this server takes away: marked with the reason first, so that its owner can tell it from a failure.

Three hands do it: an eviction that somebody asked for, a taint that the Pod does not bear, and the removal of
what lies on a Node that is no more. The mark is the condition DisruptionTarget.
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
    """Write down why a Pod goes; with `failed` also that it has not succeeded."""
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
