"""Writes: create, update, apply, bind and delete, each one commit or one refusal.

Everything that changes the store goes through here, from a client as well as from the built-in
controllers, so preconditions, validation, generations, field ownership and the rules of deletion hold
for all of them alike.

Invariants:
- A write that changes nothing commits nothing: the version stays.
- uid, creation, deletion and generation belong to the server; what a client says about them is at most
  a precondition.
- A status write touches status alone; any other write leaves status alone.
"""

import random
import uuid
from typing import Any

from runyard.clock import Clock
from runyard.embedded.kube import defaults, deletion, validation
from runyard.embedded.kube.apply import Writer, apply, owned_by_create, owned_by_update
from runyard.embedded.kube.resources import (
    NAMESPACES,
    PODS,
    SERVICE_ACCOUNTS,
    Object,
    Resource,
)
from runyard.embedded.kube.status import (
    Cause,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    not_found,
)
from runyard.embedded.kube.store import Record, Store
from runyard.wire.instants import to_rfc3339

_SERVER_META = (
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
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_GENERATED = 5
_GENERATED_BASE = 58


class Registry:
    """The one writer of the store."""

    def __init__(self, store: Store, *, clock: Clock, rng: random.Random) -> None:
        self.store = store
        self.clock = clock
        self._rng = rng

    # ---- create

    def create(
        self, resource: Resource, obj: Object, *, namespace: str, writer: Writer | None = None
    ) -> Record:
        """Store a new object."""
        told = obj = self.typed(resource, obj)
        self._admit_namespace(resource, obj["metadata"], namespace)
        if obj["metadata"].get("resourceVersion"):
            raise bad_request("resourceVersion must not be set on an object to be created")
        meta = self._fresh_meta(resource, obj["metadata"], namespace)
        obj = defaults.fill(resource, defaults.fold(resource, {**obj, "metadata": meta}))
        validation.check(resource, obj)
        if self.store.get(resource, namespace, meta["name"]) is not None:
            raise already_exists(resource, meta["name"])
        if resource is PODS:
            self._admit_account(obj, namespace)
        if writer is not None:
            obj = owned_by_create(resource, told=told, new=obj, writer=writer)
        return self.store.put(resource, obj)

    def _admit_namespace(self, resource: Resource, meta: Object, namespace: str) -> None:
        told = meta.get("namespace", "")
        if told and told != namespace:
            raise bad_request("the namespace of the object does not match that of the request")
        if not resource.namespaced:
            return
        place = self.store.get(NAMESPACES, "", namespace)
        if place is None:
            raise not_found(NAMESPACES, namespace)
        if "deletionTimestamp" in place.meta:
            why = f"unable to create new content in namespace {namespace}: it is being terminated"
            raise forbidden(resource, str(meta.get("name", "")), why)

    def _admit_account(self, obj: Object, namespace: str) -> None:
        account = obj["spec"].get("serviceAccountName", "")
        if account and self.store.get(SERVICE_ACCOUNTS, namespace, account) is None:
            why = f"error looking up service account {namespace}/{account}: not found"
            raise forbidden(PODS, obj["metadata"]["name"], why)

    def _fresh_meta(self, resource: Resource, told: Object, namespace: str) -> Object:
        meta = {key: value for key, value in told.items() if key not in _SERVER_META}
        name, base = told.get("name"), told.get("generateName")
        if base is not None and not isinstance(base, str):
            raise invalid(resource, "", [Cause("metadata.generateName", "must be a string")])
        if not name and base:
            name = self._free_name(resource, namespace, base[:_GENERATED_BASE])
        if not isinstance(name, str) or not name:
            cause = Cause("metadata.name", "name or generateName is required", "FieldValueRequired")
            raise invalid(resource, "", [cause])
        fresh: Object = {"name": name}
        if base:
            fresh["generateName"] = base
        if resource.namespaced:
            fresh["namespace"] = namespace
        fresh["uid"] = str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
        fresh["creationTimestamp"] = to_rfc3339(self.clock.now())
        if resource.counted:
            fresh["generation"] = 1
        return fresh | meta

    def _free_name(self, resource: Resource, namespace: str, base: str) -> str:
        name = base
        for _ in range(8):
            name = base + "".join(self._rng.choices(_ALPHABET, k=_GENERATED))
            if self.store.get(resource, namespace, name) is None:
                break
        return name

    # ---- update

    def update(
        self,
        resource: Resource,
        record: Record,
        desired: Object,
        *,
        subresource: str = "",
        writer: Writer | None = None,
    ) -> Record:
        """Store a new version of an object; the old record comes back if nothing changed."""
        old = record.obj
        new = defaults.fold(resource, _confined(resource, old, desired, subresource))
        if writer is not None and writer.operation == "Apply":
            owners = desired["metadata"].get("managedFields", [])
            new = {**new, "metadata": {**new["metadata"], "managedFields": owners}}
        if new is old or new == old:
            return record
        validation.check(resource, new, old=old)
        _admit_finalizers(resource, old["metadata"], new["metadata"])
        if resource.counted and new.get("spec") != old.get("spec"):
            generation = int(old["metadata"].get("generation", 0)) + 1
            new = {**new, "metadata": {**new["metadata"], "generation": generation}}
        if writer is not None and writer.operation == "Update":
            new = owned_by_update(resource, old=old, new=new, writer=writer)
        if resource is not NAMESPACES and deletion.finished(new):
            return self.store.remove(resource, record, last=new)
        return self.store.put(resource, new)

    def apply(
        self,
        resource: Resource,
        record: Record,
        wanted: Object,
        *,
        subresource: str,
        writer: Writer,
        force: bool,
    ) -> Record:
        """Server-side apply onto an existing object."""
        if subresource == "status":
            wanted = {"metadata": {}, "status": wanted.get("status", {})}
        elif resource.has_status:
            wanted = {key: value for key, value in wanted.items() if key != "status"}
        applied = apply(resource, live=record.obj, wanted=wanted, writer=writer, force=force)
        if _same_but_owners(record.obj, applied) and _owners(record.obj) == _owners(applied):
            return record
        return self.update(resource, record, applied, subresource=subresource, writer=writer)

    def bind(self, record: Record, node: str, *, transition: str) -> Record:
        """Assign a Pod to a node, once."""
        before = record.obj["spec"].get("nodeName")
        if before:
            raise conflict(PODS, record.name, f"pod is already assigned to node {before!r}")
        if "deletionTimestamp" in record.meta:
            raise conflict(PODS, record.name, "pod is being deleted, cannot be assigned to a host")
        condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": transition}
        spec = {**record.obj["spec"], "nodeName": node}
        status = with_condition(record.obj.get("status", {}), condition)
        return self.store.put(PODS, {**record.obj, "spec": spec, "status": status})

    # ---- delete

    def delete(
        self, resource: Resource, record: Record, *, grace: int | None = None
    ) -> Record | None:
        """Delete; the record that is left, or None when the object has gone."""
        held = resource is NAMESPACES
        now = self.clock.now()
        after = deletion.after_delete(resource, record.obj, grace=grace, now=now, held=held)
        if after is None:
            self.store.remove(resource, record)
            return None
        if after is record.obj:
            return record
        if held:
            after = {**after, "status": {**after.get("status", {}), "phase": "Terminating"}}
        return self.store.put(resource, after)

    # ---- reading what a client sent

    def typed(self, resource: Resource, obj: Any) -> Object:
        """An object of that kind, with metadata; a 400 if it says that it is another."""
        if not isinstance(obj, dict):
            raise bad_request("the body of the request is not a JSON object")
        for key, wanted in (("kind", resource.kind), ("apiVersion", resource.api_version)):
            if obj.get(key, wanted) != wanted:
                raise bad_request(f"the object's {key} is {obj[key]!r}, expected {wanted!r}")
        meta = obj.get("metadata", {})
        if not isinstance(meta, dict):
            raise bad_request("metadata is not a JSON object")
        return (
            {"kind": resource.kind, "apiVersion": resource.api_version} | obj | {"metadata": meta}
        )


def check_preconditions(resource: Resource, record: Record, told: Any) -> None:
    """Refuse when the client meant another incarnation or another version of the object."""
    if not isinstance(told, dict):
        return
    uid, version = told.get("uid"), told.get("resourceVersion")
    if uid is not None and uid not in ("", record.uid):
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {record.uid}"
        raise conflict(resource, record.name, why)
    if version is not None and version not in ("", str(record.version)):
        why = "the object has been modified; please apply your changes to the latest version"
        raise conflict(resource, record.name, why)


def with_condition(status: Object, condition: Object) -> Object:
    """A status with that condition in place of the one of the same type, whose reason and message end with it."""
    conditions = list(status.get("conditions", []))
    for index, item in enumerate(conditions):
        if item.get("type") == condition["type"]:
            kept = {key: item[key] for key in item if key not in ("reason", "message")}
            conditions[index] = {**kept, **condition}
            break
    else:
        conditions.append(condition)
    return {**status, "conditions": conditions}


def _confined(resource: Resource, old: Object, desired: Any, subresource: str) -> Object:
    """The new object with everything that this write may not touch taken from the old one."""
    if not isinstance(desired, dict) or not isinstance(desired.get("metadata"), dict):
        raise bad_request("the object has no metadata")
    _check_identity(resource, old, desired)
    if subresource == "status":
        new = {key: value for key, value in old.items() if key != "status"}
        source = desired
    else:
        new = {key: value for key, value in desired.items() if key != "status"}
        new["kind"], new["apiVersion"] = old["kind"], old["apiVersion"]
        new["metadata"] = _confined_meta(old["metadata"], desired["metadata"])
        source = old if resource.has_status else desired
    if "status" in source:
        new["status"] = source["status"]
    return new


def _confined_meta(old: Object, desired: Object) -> Object:
    if desired is old:
        return old
    meta = {key: value for key, value in desired.items() if key not in _SERVER_META}
    return {key: old[key] for key in _SERVER_META if key in old} | meta


def _check_identity(resource: Resource, old: Object, desired: Object) -> None:
    for key in ("kind", "apiVersion"):
        if desired.get(key, old[key]) != old[key]:
            raise bad_request(f"{key} of an object cannot change")
    meta, kept = desired["metadata"], old["metadata"]
    for key in ("name", "namespace"):
        if meta.get(key, kept.get(key)) != kept.get(key):
            raise bad_request(f"metadata.{key} does not match the object of the request")


def _admit_finalizers(resource: Resource, old: Object, new: Object) -> None:
    if "deletionTimestamp" not in old:
        return
    before = old.get("finalizers", [])
    added = [item for item in new.get("finalizers", []) if item not in before]
    if added:
        why = f"no new finalizers can be added to an object that is being deleted: {added[0]}"
        cause = Cause("metadata.finalizers", why, "FieldValueForbidden")
        raise invalid(resource, old["name"], [cause])


def _same_but_owners(one: Object, two: Object) -> bool:
    return _ownerless(one) == _ownerless(two)


def _ownerless(obj: Object) -> Object:
    meta = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    return {**obj, "metadata": meta}


def _owners(obj: Object) -> dict[tuple[str, str, str], Any]:
    entries = obj["metadata"].get("managedFields", [])
    return {
        (item["manager"], item["operation"], item.get("subresource", "")): item["fieldsV1"]
        for item in entries
    }
