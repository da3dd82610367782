"""Renders the types of an OpenAPI document: built-in kinds from `schema`, custom ones from their definitions."""

from typing import Any

from runyard.embedded.kube.resources import Object, Resource
from runyard.embedded.kube.schema import model
from runyard.embedded.kube.schema.model import Type

_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_APIS = "io.k8s.api"
_SHARED = (
    "ObjectMeta",
    "OwnerReference",
    "ManagedFieldsEntry",
    "LabelSelector",
    "LabelSelectorRequirement",
    "DeleteOptions",
    "Preconditions",
)
_PACKAGES = {
    "": "core",
    "apiextensions.k8s.io": "apiextensions-apiserver.pkg.apis.apiextensions",
}
_SCALARS: dict[str, Object] = {
    "s": {"type": "string"},
    "b": {"type": "boolean"},
    "i": {"type": "integer", "format": "int32"},
    "l": {"type": "integer", "format": "int64"},
    "f": {"type": "number"},
    "q": {"oneOf": [{"type": "string"}, {"type": "number"}]},
    "t": {"type": "string", "format": "date-time"},
    "u": {"type": "string", "format": "date-time"},
    "o": {"oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string"},
    "y": {"type": "string", "format": "byte"},
    "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}


def reference(resource: Resource) -> str:
    """The reference to the type of a kind in its document."""
    return f"#/components/schemas/{type_name(resource)}"


def type_name(resource: Resource) -> str:
    """The name of a kind's type."""
    if resource.custom:
        backwards = ".".join(reversed(resource.group.split(".")))
        return f"{backwards}.{resource.version}.{resource.kind}"
    return f"{_package(resource)}.{resource.kind}"


def _package(resource: Resource) -> str:
    group = _PACKAGES.get(resource.group, resource.group.partition(".")[0])
    if "." in group:
        return f"io.k8s.{group}.{resource.version}"
    return f"{_APIS}.{group}.{resource.version}"


def schemas(rows: list[Resource]) -> Object:
    """Every type that these kinds need."""
    found: Object = {}
    for row in rows:
        if row.custom:
            _add("ObjectMeta", _META, found)
            found[type_name(row)] = _custom(row)
        elif model.known(row.kind):
            _add(row.kind, _package(row), found)
        else:
            found[type_name(row)] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        found[type_name(row)]["x-kubernetes-group-version-kind"] = [
            {"group": row.group, "kind": row.kind, "version": row.version}
        ]
    return found


def _custom(row: Resource) -> Object:
    given: Object = row.definition.source
    properties = {
        **given.get("properties", {}),
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"$ref": f"#/components/schemas/{_META}.ObjectMeta"},
    }
    return {**given, "properties": properties}


def _add(name: str, package: str, found: Object) -> str:
    """Describes a type and its members' types; returns its reference."""
    package = _META if name in _SHARED else package
    full = f"{package}.{name}"
    if full not in found:
        found[full] = made = {"type": "object"}
        kind = model.named(name)
        made["properties"] = {  # type: ignore[assignment]  # a map of maps, beside a text
            key: _member(code.core, kind.fields[key], package, found)
            for key, code in kind.codes.items()
        }
        if kind.atomic:
            made["x-kubernetes-map-type"] = "atomic"
    return f"#/components/schemas/{full}"


def _member(core: str, kind: Type, package: str, found: Object) -> Object:
    made = _core(core, package, found)
    if kind.is_list:
        marks: dict[str, Any] = {"x-kubernetes-list-type": "atomic"}
        if kind.is_set:
            marks = {"x-kubernetes-list-type": "set"}
        elif kind.keys:
            marks = {
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": list(kind.keys),
            }
        if kind.patch_merge:
            marks["x-kubernetes-patch-strategy"] = "merge"
            if kind.merge_key:
                marks["x-kubernetes-patch-merge-key"] = kind.merge_key
        made = made | marks
    return made


def _core(core: str, package: str, found: Object) -> Object:
    if core.startswith("{"):
        return {"type": "object", "additionalProperties": _core(core[1:-1], package, found)}
    if core.startswith("["):
        return {"type": "array", "items": _core(core[1:-1], package, found)}
    if core[0].isupper():
        return {"allOf": [{"$ref": _add(core, package, found)}], "default": {}}
    return dict(_SCALARS[core])
