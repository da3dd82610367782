"""Finds and drops unknown keywords in the schemas of a definition."""

from collections.abc import Iterator
from typing import Any

from runyard.embedded.kube.resources import Object

_KNOWN = dict.fromkeys(
    (
        *("$ref", "$schema", "additionalItems", "additionalProperties", "allOf", "anyOf"),
        *("default", "definitions", "dependencies", "description", "enum", "example"),
        *("exclusiveMaximum", "exclusiveMinimum", "externalDocs", "format", "id", "items"),
        *("maxItems", "maxLength", "maxProperties", "maximum", "minItems", "minLength"),
        *("minProperties", "minimum", "multipleOf", "not", "nullable", "oneOf", "pattern"),
        *("patternProperties", "properties", "required", "title", "type", "uniqueItems"),
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-validations",
    )
)
_NAMED = ("properties", "patternProperties", "definitions")
_ONE = ("additionalProperties", "items", "not")
_MANY = ("allOf", "anyOf", "oneOf")


def unknown(obj: Object) -> list[str]:
    """The paths of unknown keywords in the schemas of a definition."""
    return [
        path
        for index, schema in _schemas(obj)
        for path in _unknown(schema, f"spec.versions[{index}].schema.openAPIV3Schema")
    ]


def pruned(obj: Object) -> Object:
    """A definition without unknown keywords; the same object if there are none."""
    if not any(_pruned(schema) is not schema for _, schema in _schemas(obj)):
        return obj
    versions = list(obj["spec"]["versions"])
    for index, schema in _schemas(obj):
        kept = {**versions[index]["schema"], "openAPIV3Schema": _pruned(schema)}
        versions[index] = {**versions[index], "schema": kept}
    return {**obj, "spec": {**obj["spec"], "versions": versions}}


def _schemas(obj: Object) -> Iterator[tuple[int, Object]]:
    spec = obj.get("spec")
    versions = spec.get("versions") if isinstance(spec, dict) else None
    for index, version in enumerate(versions if isinstance(versions, list) else ()):
        given = version.get("schema") if isinstance(version, dict) else None
        schema = given.get("openAPIV3Schema") if isinstance(given, dict) else None
        if isinstance(schema, dict):
            yield index, schema


def _unknown(schema: Any, path: str) -> list[str]:
    if not isinstance(schema, dict):
        return []
    found = [f"{path}.{key}" for key in schema if key not in _KNOWN]
    for where, below in _below(schema):
        found += _unknown(below, f"{path}.{where}")
    return found


def _below(schema: Object) -> Iterator[tuple[str, Any]]:
    for key in _ONE:
        yield key, schema.get(key)
    for key in _NAMED:
        if isinstance(schema.get(key), dict):
            yield from ((f"{key}.{name}", item) for name, item in schema[key].items())
    for key in _MANY:
        if isinstance(schema.get(key), list):
            yield from ((f"{key}[{index}]", item) for index, item in enumerate(schema[key]))


def _pruned(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    made = {key: _pruned_member(key, value) for key, value in schema.items() if key in _KNOWN}
    same = len(made) == len(schema) and all(made[key] is schema[key] for key in made)
    return schema if same else made


def _pruned_member(key: str, value: Any) -> Any:
    if key in _ONE:
        return _pruned(value)
    if key in _NAMED and isinstance(value, dict):
        made = {name: _pruned(item) for name, item in value.items()}
        return made if any(made[name] is not value[name] for name in made) else value
    if key in _MANY and isinstance(value, list):
        listed = [_pruned(item) for item in value]
        same = all(one is two for one, two in zip(listed, value, strict=True))
        return value if same else listed
    return value
