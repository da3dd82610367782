"""Performs writes: create, update, apply, bind and delete, each one commit or one refusal.

Everything that changes the store goes through here, from a client as well as from the built-in controllers, so
preconditions, types, validation, generations, field ownership and the rules of deletion hold for all of them alike.

Every write goes through the same steps: conversion to its type (`schema`), defaults, validation, admission, and managed
fields last. A `TypedError` means that the object cannot be converted; the caller decides the response (400 for a body,
422 for the result of a patch).

Invariants:
- A write that changes nothing commits nothing: the version stays.
- uid, creation, deletion and generation belong to the server; a client can use them only as preconditions.
- A status write touches status (and, where a real server lets it, metadata); any other write leaves status alone.
"""

import random
import uuid
from typing import Any, Protocol

from runyard.clock import Clock
from runyard.embedded.kube import defaults, deletion, validation
from runyard.embedded.kube.accountmounts import with_account_mounts
from runyard.embedded.kube.admission import TOLERATION_SECONDS, with_runtime_class
from runyard.embedded.kube.crd.applying import loses_ownership
from runyard.embedded.kube.crd.definition import marked_for_deletion
from runyard.embedded.kube.deletion import Deletion
from runyard.embedded.kube.metadata import (
    SERVER_META,
    check_namespace,
    confined,
    uid_changes,
)
from runyard.embedded.kube.patches.apply import (
    Writer,
    apply,
    entries_of,
    owned_by_apply,
    owned_by_create,
    owned_by_update,
    refreshed_annotation,
    with_entries,
)
from runyard.embedded.kube.resources import (
    DEFINITIONS,
    NAMESPACES,
    PODS,
    SERVICE_ACCOUNTS,
    Object,
    Resource,
)
from runyard.embedded.kube.schema import defaulting
from runyard.embedded.kube.schema.typed import typed
from runyard.embedded.kube.status import (
    Cause,
    StatusError,
    already_exists,
    bad_request,
    forbidden,
    invalid,
    not_found,
    other_kind,
)
from runyard.embedded.kube.storage.store import Record, Store, versioned_record
from runyard.wire.instants import to_rfc3339

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_GENERATED = 5
_GENERATED_BASE = 58
_KUBECTL = "kubectl"
_VERSIONED = "resourceVersion should not be set on objects to be created"


class Admit(Protocol):
    """Admits an object that a client wants to store: completes it, or raises."""

    def __call__(
        self, resource: Resource, new: Object, *, old: Object | None = None, subresource: str = ""
    ) -> Object:
        """The object as it may be stored in place of `old`."""
        ...


class Registry:
    """The only writer of the store."""

    def __init__(
        self, store: Store, *, clock: Clock, rng: random.Random, tolerated: int = TOLERATION_SECONDS
    ) -> None:
        self.store = store
        self._tolerated = tolerated  # seconds that a new Pod tolerates the loss of its node
        self.clock = clock
        self.admit: Admit | None = None  # admission of writes by clients
        self._rng = rng

    # ---- create

    def create(
        self, resource: Resource, obj: Object, *, namespace: str, writer: Writer | None = None
    ) -> Record:
        """Stores a new object."""
        wanted = self.typed(resource, obj)
        obj = typed(resource, wanted)
        self._admit_namespace(resource, obj["metadata"], namespace)
        meta = self._new_meta(resource, obj["metadata"], namespace)
        version = obj["metadata"].get("resourceVersion")
        if version and (writer is None or writer.operation != "Apply"):
            if not self.store.dry_run:
                raise StatusError(500, "", _VERSIONED)
            meta["resourceVersion"] = version
        given = self._shaped(resource, {**obj, "metadata": meta})
        obj = defaults.fill(resource, given, tolerated=self._tolerated)
        if resource is DEFINITIONS:
            obj = typed(resource, obj, given)
        account = self._account_of(obj, namespace) if resource is PODS else {}
        validation.check(resource, obj)
        if (existing := self.store.get(resource, namespace, meta["name"])) is not None:
            deleting = "deletionTimestamp" in existing.meta
            raise already_exists(resource, meta["name"], deleting=deleting)
        if writer is not None and self.admit is not None:
            obj = self.admit(resource, obj)
        if resource is PODS:
            obj = with_runtime_class(
                self.store, with_account_mounts(obj, account, suffix=self._suffix)
            )
        if writer is not None:
            if writer.operation == "Apply":
                obj = owned_by_apply(resource, new=obj, wanted=wanted, writer=writer)
            elif not loses_ownership(resource, wanted):
                obj = owned_by_create(resource, new=obj, given=given, writer=writer)
        return self.store.put(resource, obj)

    def record(self, resource: Resource, obj: Object, *, namespace: str) -> Record:
        """Stores a new object of this server without validation; it must be complete and its name unused."""
        meta = self._new_meta(resource, obj["metadata"], namespace)
        head = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": meta}
        return self.store.put(resource, {**head, **{k: obj[k] for k in obj if k != "metadata"}})

    def _shaped(self, resource: Resource, obj: Object, old: Object | None = None) -> Object:
        """The object as clients read it: with the defaults of its kind."""
        return defaults.normalized(resource, defaulting.filled(resource, obj, old))

    def _admit_namespace(self, resource: Resource, meta: Object, namespace: str) -> None:
        check_namespace(namespace, meta)
        if not resource.namespaced:
            return
        found = self.store.get(NAMESPACES, "", namespace)
        if found is None:
            raise not_found(NAMESPACES, namespace)
        if "deletionTimestamp" in found.meta:
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            refusal = forbidden(resource, str(meta.get("name", "")), why)
            message = f"namespace {namespace} is being terminated"
            cause = {
                "reason": "NamespaceTerminating",
                "message": message,
                "field": "metadata.namespace",
            }
            refusal.details = {**(refusal.details or {}), "causes": [cause]}
            raise refusal

    def _account_of(self, pod: Object, namespace: str) -> Object:
        name = pod["spec"]["serviceAccountName"]
        account = self.store.get(SERVICE_ACCOUNTS, namespace, name)
        if account is None:
            why = f'error looking up service account {namespace}/{name}: serviceaccount "{name}"'
            raise forbidden(PODS, pod["metadata"]["name"], f"{why} not found")
        return account.obj

    def _new_meta(self, resource: Resource, given: Object, namespace: str) -> Object:
        meta = {key: value for key, value in given.items() if key not in SERVER_META}
        name, base = given.get("name"), given.get("generateName")
        if not name and base:
            name = self._free_name(resource, namespace, base[:_GENERATED_BASE])
        if not name:
            why = "Required value: name or generateName is required"
            raise invalid(resource, "", [Cause("metadata.name", why, "FieldValueRequired")])
        new_meta: Object = {"name": name}
        if base:
            new_meta["generateName"] = base
        if resource.namespaced:
            new_meta["namespace"] = namespace
        new_meta["uid"] = str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
        new_meta["creationTimestamp"] = to_rfc3339(self.clock.now())
        if resource.has_generation:
            new_meta["generation"] = 1
        return new_meta | meta

    def _free_name(self, resource: Resource, namespace: str, base: str) -> str:
        name = base
        for _ in range(8):
            name = base + self._suffix()
            if self.store.get(resource, namespace, name) is None:
                break
        return name

    def _suffix(self) -> str:
        return "".join(self._rng.choices(_ALPHABET, k=_GENERATED))

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
        """Stores a new version of an object; returns the old record if nothing changed."""
        old = record.obj
        new = confined(resource, old, typed(resource, desired, old), subresource)
        shaped = self._shaped(resource, new, old)
        new = defaults.readmitted(resource, shaped, old, tolerated=self._tolerated)
        plain = writer is not None and writer.operation == "Update"
        disowned = plain and loses_ownership(
            resource, desired, old=old, status=subresource == "status"
        )
        if disowned:
            new = with_entries(new, [])
        if writer is not None and writer.operation == "Apply":
            new = with_entries(new, entries_of(desired))
            if _same_but_times(old, new):
                return record
        other = uid_changes(record, desired["metadata"])
        if (new is old or new == old) and not other:
            return record
        validation.check(resource, new, old=old, also=other)
        if writer is not None and self.admit is not None:
            new = self.admit(resource, new, old=old, subresource=subresource)
        if resource.has_generation and new.get("spec") != old.get("spec"):
            generation = int(old["metadata"].get("generation", 0)) + 1
            new = {**new, "metadata": {**new["metadata"], "generation": generation}}
        if writer is not None and writer.operation == "Update" and not disowned:
            new = owned_by_update(resource, old=old, new=new, writer=writer)
        if resource is not NAMESPACES and deletion.finished(new):
            self.store.remove(resource, record)
            return versioned_record(new, record.version)
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
        body = _applicable(resource, wanted, subresource)
        applied = apply(resource, live=record.obj, wanted=body, writer=writer, force=force)
        if writer.manager == _KUBECTL:
            applied = refreshed_annotation(applied, wanted)
        return self.update(resource, record, applied, subresource=subresource, writer=writer)

    def bind(self, record: Record, node: str, *, transition: str) -> Record:
        """Binds a Pod to a node, once."""
        if "deletionTimestamp" in record.meta:
            message = f"pod {record.name} is being deleted, cannot be assigned to a host"
            raise _bind_conflict(record, message)
        before = record.obj["spec"].get("nodeName")
        if before:
            raise _bind_conflict(
                record, f'pod {record.name} is already assigned to node "{before}"'
            )
        if record.obj["spec"].get("schedulingGates"):
            raise _bind_conflict(record, f"pod {record.name} has non-empty .spec.schedulingGates")
        condition = {
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": transition,
        }
        spec = {**record.obj["spec"], "nodeName": node}
        status = with_condition(record.obj.get("status", {}), condition)
        return self.store.put(PODS, {**record.obj, "spec": spec, "status": status})

    # ---- delete

    def delete(
        self, resource: Resource, record: Record, *, grace: int | None = None, policy: str = ""
    ) -> Record | None:
        """Deletes an object; returns the record that is left, or None if it is removed."""
        left, gone = self.deleted(resource, record, Deletion(grace, policy))
        return None if gone else left

    def deleted(self, resource: Resource, record: Record, options: Deletion) -> tuple[Record, bool]:
        """Deletes an object; returns its last record, and whether it is removed."""
        held = resource is NAMESPACES
        now = self.clock.now()
        obj = marked_for_deletion(record.obj, now=now) if resource is DEFINITIONS else record.obj
        after, gone = deletion.after_delete(resource, obj, options, now=now, held=held)
        if held and after is not record.obj:
            after = {**after, "status": {**after.get("status", {}), "phase": "Terminating"}}
        if after is not record.obj and (not gone or resource is PODS):
            record = self.store.put(resource, after)
        return (self.store.remove(resource, record), True) if gone else (record, False)

    # ---- reading objects of clients

    def typed(self, resource: Resource, obj: Any) -> Object:
        """An object of that kind, with metadata; a 400 if it names another kind."""
        if not isinstance(obj, dict):
            message = f"the object provided is unrecognized (must be of type {resource.kind})"
            raise bad_request(f"{message}: it is no JSON object")
        kind, version = obj.get("kind", resource.kind), obj.get("apiVersion", resource.api_version)
        if resource.custom and version == resource.api_version and kind != resource.kind:
            raise other_kind(resource, str((obj.get("metadata") or {}).get("name", "")), str(kind))
        if kind != resource.kind or version != resource.api_version:
            message = f'{kind} in version "{version}" cannot be handled as a {resource.kind}'
            raise bad_request(f"{message}: it is not of that kind")
        meta = obj.get("metadata", {})
        if not isinstance(meta, dict):
            message = f'{kind} in version "{resource.version}" cannot be handled as a {kind}'
            raise bad_request(f"{message}: json: cannot unmarshal metadata")
        return (
            {"kind": resource.kind, "apiVersion": resource.api_version} | obj | {"metadata": meta}
        )


def with_condition(status: Object, condition: Object) -> Object:
    """A status with that condition in place of the one of the same type, including its reason and message."""
    conditions = list(status.get("conditions") or [])
    for index, item in enumerate(conditions):
        if item.get("type") == condition["type"]:
            kept = {key: item[key] for key in item if key not in ("reason", "message")}
            conditions[index] = {**kept, **condition}
            break
    else:
        conditions.append(condition)
    return {**status, "conditions": conditions}


def _bind_conflict(record: Record, why: str) -> StatusError:
    message = f'Operation cannot be fulfilled on pods/binding "{record.name}": {why}'
    return StatusError(409, "Conflict", message, {"name": record.name, "kind": "pods/binding"})


def _applicable(resource: Resource, wanted: Object, subresource: str) -> Object:
    """The part of an applied object that this path takes, without server-owned fields."""
    if subresource in ("status", "approval"):
        kept = {"metadata": wanted["metadata"]} if not resource.custom else {"metadata": {}}
        return kept | ({"status": wanted["status"]} if wanted.get("status") is not None else {})
    if resource.has_status:
        return {key: value for key, value in wanted.items() if key != "status"}
    return wanted


def _same_but_times(one: Object, two: Object) -> bool:
    """Whether two versions of an object differ at most in the times of managed fields."""
    if _owners(one) != _owners(two):
        return False
    return _without_managed_fields(one) == _without_managed_fields(two)


def _without_managed_fields(obj: Object) -> Object:
    meta = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    return {**obj, "metadata": meta}


def _owners(obj: Object) -> dict[tuple[str, ...], Any]:
    return {
        (
            str(item.get("manager")),
            item["operation"],
            item.get("subresource", ""),
            item["apiVersion"],
        ): item["fieldsV1"]
        for item in entries_of(obj)
    }
