"""Validates the metadata of any object."""

import json
from typing import Any

from runyard.embedded.kube.resources import (
    CERTIFICATE_REQUESTS,
    EVENTS,
    NAMESPACES,
    RBAC,
    Object,
    Resource,
)
from runyard.embedded.kube.rules.grammar import (
    forbidden,
    invalid,
    label,
    labels,
    qualified,
    required,
    segment,
    subdomain,
)
from runyard.embedded.kube.status import Cause

_ANNOTATION_BYTES = 256 * 1024
_STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")


def name(resource: Resource, meta: Object) -> list[Cause]:
    """Validates the name of a new object."""
    found = str(meta.get("name", ""))
    causes: list[Cause] = []
    base = meta.get("generateName")
    if base and (why := _named(resource, base.rstrip("-") or base)):
        causes.append(invalid("metadata.generateName", base, why))
    if why := _named(resource, found):
        causes.append(invalid("metadata.name", found, why))
    return causes


def _named(resource: Resource, found: str) -> str:
    if resource is NAMESPACES:
        return label(found)
    if resource.group == RBAC or resource in (CERTIFICATE_REQUESTS, EVENTS):
        return segment(found)
    return subdomain(found)


def check(meta: Object) -> list[Cause]:
    """Validates metadata beside the name."""
    causes = labels("metadata.labels", meta.get("labels") or {})
    causes += _annotations(meta.get("annotations") or {})
    causes += _owners(meta.get("ownerReferences") or ())
    for index, item in enumerate(meta.get("finalizers") or ()):
        if why := qualified(item):
            causes.append(invalid("metadata.finalizers", item, why))
        elif "/" not in item and item not in _STANDARD_FINALIZERS:
            why = "name is neither a standard finalizer name nor is it fully qualified"
            causes.append(invalid(f"metadata.finalizers[{index}]", item, why))
    return causes


def added(old: Object, new: Object) -> list[Cause]:
    """Validates that an object being deleted gets no new finalizers."""
    if "deletionTimestamp" not in old:
        return []
    before = old.get("finalizers") or []
    found = [item for item in new.get("finalizers") or [] if item not in before]
    listed = ", ".join(f'"{item}"' for item in found)
    why = "no new finalizers can be added if the object is being deleted, found new finalizers"
    message = f"{why} []string{{{listed}}}"
    return [forbidden("metadata.finalizers", message)] if found else []


def _annotations(given: dict[str, str]) -> list[Cause]:
    causes: list[Cause] = []
    size = 0
    for key, value in given.items():
        size += len(key) + len(value)
        if why := qualified(key.lower()):
            causes.append(invalid("metadata.annotations", key, why))
    if size > _ANNOTATION_BYTES:
        message = f"Too long: may not be more than {_ANNOTATION_BYTES} bytes"
        causes.append(Cause("metadata.annotations", message, "FieldValueTooLong"))
    return causes


def _owners(found: Any) -> list[Cause]:
    causes: list[Cause] = []
    field = "metadata.ownerReferences"
    for item in found:
        for key in ("apiVersion", "kind"):
            if not item.get(key):
                causes.append(required(f"{field}.{key}"))
        for key in ("name", "uid"):
            if not item.get(key):
                causes.append(invalid(f"{field}.{key}", "", "must not be empty"))
        if (item.get("apiVersion"), item.get("kind")) == ("v1", EVENTS.kind):
            shown = json.dumps(item, separators=(",", ":"))
            why = "/v1, Kind=Event is disallowed from being an owner"
            causes.append(Cause(field, f"Invalid value: {shown}: {why}"))
    controllers = [item for item in found if item.get("controller")]
    if len(controllers) > 1:
        shown = json.dumps(found, separators=(",", ":"))
        why = "only one of the references may be to the controller"
        causes.append(Cause(field, f"Invalid value: {shown}: {why}"))
    return causes
