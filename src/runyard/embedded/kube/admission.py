"""Completes Pods at admission, as the default admission plugins of a real server do.

It adds a priority, tolerations for lost nodes, a QoS class and a ServiceAccount, and the overhead and scheduling fields
of the RuntimeClass. These fields belong to the server: they have no field manager.
"""

from typing import Any

from runyard.embedded.kube.resources import PODS, RUNTIME_CLASSES, Object
from runyard.embedded.kube.schema import quantity
from runyard.embedded.kube.status import forbidden
from runyard.embedded.kube.storage.store import Store

TOLERATION_SECONDS = 300
_LOST_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_ACCOUNT = "default"
_COUNTED = ("cpu", "memory")


def filled(pod: Object, *, tolerated: int = TOLERATION_SECONDS) -> Object:
    """Returns a new Pod with the fields that the server adds; it tolerates the loss of its node for so long."""
    spec = pod["spec"]
    account = spec.get("serviceAccountName") or spec.get("serviceAccount") or _ACCOUNT
    made = {
        **spec,
        "serviceAccountName": account,
        "serviceAccount": account,
        "priority": spec.get("priority", 0),
        "preemptionPolicy": spec.get("preemptionPolicy") or "PreemptLowerPriority",
        "tolerations": _tolerations(spec.get("tolerations") or [], tolerated),
    }
    status: Object = {"phase": "Pending", "qosClass": service_class(spec)}
    if spec.get("schedulingGates"):
        status["conditions"] = [_gated(pod["metadata"]["creationTimestamp"])]
    return {**pod, "spec": made, "status": status}


def restored(pod: Object, old: Object, *, tolerated: int = TOLERATION_SECONDS) -> Object:
    """Restores the server's fields that the writer of a changed Pod left out."""
    spec = pod["spec"]
    tolerations = spec.get("tolerations") or []
    made: Object = {}
    if (completed := _tolerations(tolerations, tolerated)) is not tolerations:
        made["tolerations"] = completed
    for key in ("priority", "preemptionPolicy"):
        if key not in spec and key in old["spec"]:
            made[key] = old["spec"][key]
    return {**pod, "spec": spec | made} if made else pod


def _gated(now: str) -> Object:
    return {
        "type": "PodScheduled",
        "status": "False",
        "lastProbeTime": None,
        "lastTransitionTime": now,
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
    }


def _tolerations(given: list[Object], seconds: int) -> list[Object]:
    added = [
        {
            "key": key,
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": seconds,
        }
        for key in _LOST_TAINTS
        if not any(_covers(item, key) for item in given)
    ]
    return [*given, *added] if added else given


def _covers(toleration: Object, key: str) -> bool:
    named = toleration.get("key", "")
    return named in ("", key) and toleration.get("effect", "") in ("", "NoExecute")


def service_class(spec: Object) -> str:
    """The QoS class: Guaranteed, Burstable or BestEffort."""
    guaranteed, requested = True, False
    for part in ("containers", "initContainers"):
        for container in spec.get(part) or ():
            resources = container.get("resources") or {}
            requests = _amounts(resources.get("requests"))
            limits = _amounts(resources.get("limits"))
            requested = requested or bool(requests or limits)
            guaranteed = guaranteed and len(limits) == len(_COUNTED) and requests == limits
    if not requested:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _amounts(given: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for key in _COUNTED:
        try:
            amount = quantity.milli((given or {}).get(key, "0"))
        except ValueError:
            continue  # validation reports it
        if amount:
            found[key] = amount
    return found


def with_runtime_class(store: Store, pod: Object) -> Object:
    """Adds the fields of the Pod's RuntimeClass; raises 403 if there is no such class."""
    spec, meta = pod["spec"], pod["metadata"]
    name = spec.get("runtimeClassName")
    if not name:
        if spec.get("overhead") is not None:
            why = (
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
            )
            raise forbidden(PODS, meta["name"], why)
        return pod
    record = store.get(RUNTIME_CLASSES, "", name)
    if record is None:
        why = f'pod rejected: RuntimeClass "{name}" not found'
        raise forbidden(PODS, meta["name"], why)
    return {**pod, "spec": spec | _of_class(record.obj, spec, meta["name"])}


def _of_class(given: Object, spec: Object, name: str) -> Object:
    added: Object = {}
    if overhead := (given.get("overhead") or {}).get("podFixed"):
        added["overhead"] = overhead
    scheduling = given.get("scheduling") or {}
    wanted, own = scheduling.get("nodeSelector") or {}, spec.get("nodeSelector") or {}
    for key, value in wanted.items():
        if own.get(key, value) != value:
            why = f"pod rejected: conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}"
            raise forbidden(PODS, name, f"{why}; pod.spec.nodeSelector[{key}] = {own[key]}")
    if wanted:
        added["nodeSelector"] = own | wanted
    tolerations = list(spec.get("tolerations") or [])
    more = [item for item in scheduling.get("tolerations") or () if item not in tolerations]
    if more:
        added["tolerations"] = tolerations + more
    return added
