"""Sets the defaults that the server fills in on a create."""

from base64 import b64encode

from runyard.embedded.kube import admission, priorities, taints
from runyard.embedded.kube.crd import approval
from runyard.embedded.kube.resources import (
    CLUSTER_ROLES,
    DEFINITIONS,
    NAMESPACES,
    NODES,
    PODS,
    ROLES,
    SECRETS,
    Object,
    Resource,
)

_ROLE_KINDS = (ROLES, CLUSTER_ROLES)


def fill(resource: Resource, obj: Object, *, tolerated: int) -> Object:
    """The object as it is stored: with defaults, and a status that only the server may initialise.

    New Pods tolerate the loss of their node for `tolerated` seconds.
    """
    if resource.has_status and not resource.status_on_create:
        obj = {key: value for key, value in obj.items() if key != "status"}
    if resource is PODS:
        given = isinstance(obj.get("spec"), dict)
        return admission.filled(priorities.admitted(obj), tolerated=tolerated) if given else obj
    if resource is NODES:
        return taints.registered(obj)
    if resource is NAMESPACES:
        spec = {"finalizers": ["kubernetes"]}
        return {**obj, "spec": spec, "status": {"phase": "Active"}}
    if resource is DEFINITIONS:
        return approval.with_initial_status(obj)
    if resource is SECRETS:
        return obj if "type" in obj else {**obj, "type": "Opaque"}
    return _with_null_rules(resource, obj)


def _with_null_rules(resource: Resource, obj: Object) -> Object:
    """A role without rules is stored with null rules, whatever was sent."""
    return {**obj, "rules": None} if resource in _ROLE_KINDS and obj.get("rules") == [] else obj


def readmitted(resource: Resource, obj: Object, old: Object, *, tolerated: int) -> Object:
    """A changed object with what the server adds again to every version of it."""
    if resource is not PODS:
        return _with_null_rules(resource, obj)
    if obj["spec"] is old["spec"]:
        return obj
    return admission.restored(obj, old, tolerated=tolerated)


def normalized(resource: Resource, obj: Object) -> Object:
    """Normalizes an object on every write."""
    if resource.definition is not None:
        shaped: Object = resource.definition.shaped(obj)
        return shaped
    return approval.filled(obj) if resource is DEFINITIONS else _plain_secret(resource, obj)


def _plain_secret(resource: Resource, obj: Object) -> Object:
    """Moves a Secret's plain `stringData` into `data`."""
    plain = obj.get("stringData") if resource is SECRETS else None
    if not isinstance(plain, dict):
        return obj
    kept = {key: value for key, value in obj.items() if key != "stringData"}
    data = {key: b64encode(str(value).encode()).decode() for key, value in plain.items()}
    before = kept.get("data", {})
    return {**kept, "data": before | data} if isinstance(before, dict) else kept
