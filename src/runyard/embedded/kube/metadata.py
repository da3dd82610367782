"""Checks what a write may do to an object's metadata, and its preconditions on uid and version.

uid, creation, deletion and generation belong to the server; a client can use them only as preconditions.
"""

from typing import Any

from runyard.embedded.kube.resources import NAMESPACES, NODES, PODS, Object, Resource
from runyard.embedded.kube.status import (
    Cause,
    bad_request,
    invalid,
    invalid_patch,
    modified,
    other_uid,
)
from runyard.embedded.kube.storage.store import Record

SERVER_META = (
    "name",
    "namespace",
    "generateName",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
)
_META_IN_STATUS = (
    NODES,
    PODS,
    NAMESPACES,
)  # kinds whose status writes can also change metadata


def check_uid(resource: Resource, record: Record, given: Object) -> None:
    """Raises 409 if a PUT has the uid of another object of that name."""
    uid = given.get("uid")
    if uid is not None and uid not in ("", record.uid):
        raise other_uid(resource, record.name, uid, record.uid)


def check_preconditions(resource: Resource, record: Record, given: Any) -> None:
    """Raises 409 if a PUT has another uid or another version than the object."""
    if not isinstance(given, dict):
        return
    check_uid(resource, record, given)
    version = given.get("resourceVersion")
    if version is not None and version not in ("", str(record.version)):
        raise modified(resource, record.name)


def check_version(resource: Resource, record: Record, given: Any) -> None:
    """Raises 409 if a patch has another version than the object."""
    version = given.get("resourceVersion") if isinstance(given, dict) else None
    if version is not None and version not in ("", str(record.version)):
        raise modified(resource, record.name)


def check_applied(resource: Resource, record: Record, given: Object) -> None:
    """Raises if an apply has another version or another uid than the object."""
    check_version(resource, record, given)
    if causes := uid_changes(record, given):
        raise invalid(resource, record.name, causes)


def uid_changes(record: Record, given: Object) -> list[Cause]:
    """The causes for a patch that changes the uid, which is immutable; a real server reports it twice."""
    uid = given.get("uid")
    if uid is None or uid in ("", record.uid):
        return []
    return [Cause("metadata.uid", f'Invalid value: "{uid}": field is immutable')] * 2


def check_identity(record: Record, desired: Any) -> None:
    """Raises if the value is not an object, or not the object of this path."""
    if not isinstance(desired, dict):
        raise bad_request("the body of the request is not a JSON object")
    for key in ("kind", "apiVersion"):
        if desired.get(key, record.obj[key]) != record.obj[key]:
            message = f"the object's {key} would become {desired[key]!r}"
            raise invalid_patch('"..."', message)
    meta = desired.get("metadata")
    check_name(record.namespace, record.name, meta if isinstance(meta, dict) else {})


def check_name(namespace: str, name: str, meta: Object) -> None:
    """Raises 400 for metadata with another name than the path."""
    if not meta.get("name"):
        message = f"the name of the object ({name} based on URL) was undeterminable"
        raise bad_request(f"{message}: name must be provided")
    if meta["name"] != name:
        message = (
            f"the name of the object ({meta['name']}) does not match the name on the URL ({name})"
        )
        raise bad_request(message)
    check_namespace(namespace, meta)


def check_namespace(namespace: str, meta: Object) -> None:
    """Raises 400 for metadata with another namespace than the path."""
    if meta.get("namespace") and meta["namespace"] != namespace:
        what = "the namespace of the provided object does not match the namespace sent on"
        raise bad_request(f"{what} the request")


def confined(resource: Resource, old: Object, desired: Object, subresource: str) -> Object:
    """Returns the new object with all fields that this write may not change taken from the old one."""
    meta = confined_meta(old["metadata"], desired["metadata"], sub=bool(subresource))
    if subresource in ("status", "approval"):
        new = {key: value for key, value in old.items() if key != "status"}
        if resource in _META_IN_STATUS:
            new["metadata"] = _meta_of_status_write(resource, old["metadata"], meta)
        source = desired
    else:
        new = {key: value for key, value in desired.items() if key != "status"}
        new["kind"], new["apiVersion"], new["metadata"] = old["kind"], old["apiVersion"], meta
        if resource is NAMESPACES:
            new["spec"] = old["spec"]
        source = old if resource.has_status else desired
    if "status" in source:
        new["status"] = source["status"]
        if resource is PODS and source is desired:
            new["status"] = _with_qos_class(old.get("status") or {}, source["status"])
    return new


def _with_qos_class(old: Object, status: Object) -> Object:
    """The status of a Pod, whose QoS class may be left out."""
    if status.get("qosClass") or "qosClass" not in old:
        return status
    return {**status, "qosClass": old["qosClass"]}


def confined_meta(old: Object, desired: Object, *, sub: bool = False) -> Object:
    """Metadata that a client wrote: server-owned fields stay, managed fields can be replaced."""
    if desired is old:
        return old
    meta = {key: value for key, value in desired.items() if key not in SERVER_META}
    kept = {key: old[key] for key in SERVER_META if key in old} | meta
    given = desired.get("managedFields")
    if (
        not sub
        and isinstance(given, list)
        and given != old.get("managedFields", [])
        and _is_managed_fields(given)
    ):
        kept["managedFields"] = given
    return kept


def _is_managed_fields(entries: list[Any]) -> bool:
    """Whether those are managed fields, or the marker that resets them."""
    if entries in ([], [{}]):
        return True
    return all(
        isinstance(item, dict)
        and item.get("operation") in ("Apply", "Update")
        and isinstance(item.get("manager", ""), str)
        and isinstance(item.get("apiVersion"), str)
        and item.get("fieldsType") == "FieldsV1"
        and _is_field_set(item.get("fieldsV1"))
        for item in entries
    )


def _is_field_set(fields: Any) -> bool:
    return isinstance(fields, dict) and all(_is_field_set(item) for item in fields.values())


def _meta_of_status_write(resource: Resource, old: Object, meta: Object) -> Object:
    if resource is not PODS or meta.get("ownerReferences") == old.get("ownerReferences"):
        return meta
    rest = {key: value for key, value in meta.items() if key != "ownerReferences"}
    owners = old.get("ownerReferences")
    return rest | {"ownerReferences": owners} if owners else rest
