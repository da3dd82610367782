"""What the server fills in on a create, because clients rely on finding it there."""

from base64 import b64encode
from typing import Any

from runyard.embedded.kube.resources import (
    NAMESPACES,
    PODS,
    RUNNER_POOLS,
    SECRETS,
    Object,
    Resource,
)

_POD = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "serviceAccountName": "default",
    "schedulerName": "default-scheduler",
    "dnsPolicy": "ClusterFirst",
}
_POOL = {"replicas": 0, "os": "darwin", "podCPUMilli": 8000, "podMemoryMB": 14336}


def fill(resource: Resource, obj: Object) -> Object:
    """The object as it is stored: defaults in, and a status that only the server may begin."""
    if resource.has_status and not resource.status_on_create:
        obj = {key: value for key, value in obj.items() if key != "status"}
    if resource is PODS:
        return _pod(obj)
    if resource is RUNNER_POOLS and isinstance(obj.get("spec"), dict):
        return {**obj, "spec": _POOL | obj["spec"]}
    if resource is NAMESPACES:
        return {**obj, "status": {"phase": "Active"}}
    if resource is SECRETS:
        return {"type": "Opaque"} | obj
    return obj


def _pod(obj: Object) -> Object:
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return obj
    filled: Object = {**_POD, **spec}
    for key in ("containers", "initContainers"):
        if isinstance(filled.get(key), list):
            filled[key] = [_requests_from_limits(item) for item in filled[key]]
    return {**obj, "spec": filled, "status": {"phase": "Pending"}}


def _requests_from_limits(container: Any) -> Any:
    resources = container.get("resources") if isinstance(container, dict) else None
    if not isinstance(resources, dict) or not isinstance(resources.get("limits"), dict):
        return container
    requests = resources.get("requests", {})
    if not isinstance(requests, dict):
        return container  # validation will say so
    return {**container, "resources": {**resources, "requests": resources["limits"] | requests}}


def fold(resource: Resource, obj: Object) -> Object:
    """A Secret's plain `stringData` moved into `data`, where readers look."""
    plain = obj.get("stringData") if resource is SECRETS else None
    if not isinstance(plain, dict):
        return obj
    kept = {key: value for key, value in obj.items() if key != "stringData"}
    data = {key: b64encode(str(value).encode()).decode() for key, value in plain.items()}
    before = kept.get("data", {})
    return {**kept, "data": before | data} if isinstance(before, dict) else kept
