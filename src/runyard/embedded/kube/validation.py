"""Validates an object before it is stored.

It checks names, labels and other grammar (`rules`), the requirements of the kind, immutable fields, and for custom
resources their schema. Every violation becomes a cause with the path of its field; one 422 has them all. Finally the
parts that the server itself reads must convert to their shape (`shapes`), so that the scheduler, the node lifecycle
and the rules of deletion can rely on their types. Parts that a write does not change are not checked
again.
"""

import re
from collections.abc import Callable, Iterable

import msgspec

from runyard.embedded.kube import shapes
from runyard.embedded.kube.crd import approval
from runyard.embedded.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    DEFINITIONS,
    EVENTS,
    LEASES,
    NODES,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    RUNTIME_CLASSES,
    SECRETS,
    Object,
    Resource,
)
from runyard.embedded.kube.rules import data, kinds, metadata, pods
from runyard.embedded.kube.status import Cause, forbidden, invalid

_AT = re.compile(r"^(?P<what>.*?) - at `\$\.?(?P<path>[^`]*)`$")
_MISSING = re.compile(r"missing required field `([^`]+)`")
_ENDING = "create not allowed while custom resource definition is terminating"


def check(
    resource: Resource, obj: Object, *, old: Object | None = None, also: Iterable[Cause] = ()
) -> None:
    """Raises a 422 unless the object may be stored (in place of `old`, if given) and nothing else is wrong."""
    meta = obj["metadata"]
    causes = metadata.name(resource, meta) if old is None else []
    if old is None or old["metadata"] is not meta:
        causes += _part("metadata", shapes.Meta, meta) or metadata.check(meta)
        if old is not None:
            causes += metadata.added(old["metadata"], meta)
    rules = resource.definition
    if rules is not None:
        if old is None and rules.terminating:
            raise forbidden(resource, str(meta["name"]), _ENDING)
        causes += rules.check(obj, old)
    elif (rule := _RULES.get(resource.key)) is not None:
        causes += rule(obj, old)
    causes += also
    if not causes:
        causes = _read(resource, obj, old)
    if causes:
        raise invalid(resource, str(meta["name"]), causes)


def _read(resource: Resource, obj: Object, old: Object | None) -> list[Cause]:
    """Validates that the fields that the server reads convert to their shapes."""
    causes: list[Cause] = []
    for key, shape in shapes.PARTS.get(resource.key, ()):
        value = obj.get(key)
        if value is not None and (old is None or value is not old.get(key)):
            causes += _part(key, shape, value)
    return causes


def _part(key: str, shape: type[msgspec.Struct], value: object) -> list[Cause]:
    try:
        msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        match = _AT.match(str(error))
        what, path = (match["what"], match["path"]) if match else (str(error), "")
        if missing := _MISSING.search(what):
            path = f"{path}.{missing[1]}"
        field = f"{key}.{path.lstrip('.')}".rstrip(".")
        return [Cause(field, f"Invalid value: {what}")]
    return []


_RULES: dict[str, Callable[[Object, Object | None], list[Cause]]] = {
    PODS.key: pods.check,
    NODES.key: kinds.node,
    EVENTS.key: kinds.event,
    LEASES.key: kinds.lease,
    CONFIG_MAPS.key: data.config_map,
    SECRETS.key: data.secret,
    ROLES.key: kinds.role,
    CLUSTER_ROLES.key: kinds.role,
    ROLE_BINDINGS.key: kinds.role_binding,
    CLUSTER_ROLE_BINDINGS.key: kinds.cluster_role_binding,
    RUNTIME_CLASSES.key: kinds.runtime_class,
    DEFINITIONS.key: approval.check,
}
