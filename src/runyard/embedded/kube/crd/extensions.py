"""Validates the Kubernetes extensions of a schema level, and the parts of OpenAPI that are not supported.

The extensions are list types, map types and embedded resources. A schema may name `apiVersion`, `kind` and `metadata`,
but hardly restrict them. A keyword of the wrong type makes the schema unreadable.
"""

from typing import Any

from runyard.embedded.kube.resources import Object
from runyard.embedded.kube.rules.grammar import (
    forbidden,
    invalid,
    invalid_value,
    required,
    unsupported,
)
from runyard.embedded.kube.schema.typed import TypedError
from runyard.embedded.kube.status import Cause

_LIST, _KEYS = "x-kubernetes-list-type", "x-kubernetes-list-map-keys"
_MAP, _EMBEDDED = "x-kubernetes-map-type", "x-kubernetes-embedded-resource"
_PRESERVE, _EITHER = "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string"
_LIST_TYPES, _MAP_TYPES = ("atomic", "map", "set"), ("atomic", "granular")
_NOT_SUPPORTED = (
    "$ref",
    "additionalItems",
    "definitions",
    "dependencies",
    "id",
    "patternProperties",
)
_NUMBER = (int, float)
_KEYWORD_TYPES: dict[str, tuple[str, tuple[type, ...]]] = {
    **dict.fromkeys(("type", "format", "pattern", "title", "description"), ("string", (str,))),
    **dict.fromkeys((_LIST, _MAP, "$ref", "id"), ("string", (str,))),
    **dict.fromkeys(("nullable", "uniqueItems", _PRESERVE, _EITHER, _EMBEDDED), ("bool", (bool,))),
    **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), ("bool", (bool,))),
    **dict.fromkeys(("minimum", "maximum", "multipleOf"), ("float64", _NUMBER)),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), ("int64", (int,))),
    **dict.fromkeys(("minProperties", "maxProperties"), ("int64", (int,))),
    **dict.fromkeys(("required", _KEYS), ("[]string", (list,))),
    **dict.fromkeys(("enum", "allOf", "anyOf", "oneOf"), ("list", (list,))),
    **dict.fromkeys(("properties", "not"), ("map", (dict,))),
}


def read(schema: Object) -> None:
    """Raises `TypedError` for a keyword of the wrong type, on any level."""
    for key, value in schema.items():
        if value is None or key not in _KEYWORD_TYPES:
            continue
        name, types = _KEYWORD_TYPES[key]
        wrong = not isinstance(value, types) or (isinstance(value, bool) and bool not in types)
        if name == "[]string" and not wrong:
            wrong = not all(isinstance(each, str) for each in value)
        if wrong:
            raise TypedError(f"json: cannot unmarshal {key} of a schema into {name}")


def check(schema: Object, path: str) -> list[Cause]:
    """Validates one level."""
    read(schema)
    causes = [
        forbidden(f"{path}.{key}", f"{key} is not supported")
        for key in _NOT_SUPPORTED
        if schema.get(key)
    ]
    if schema.get("$schema"):
        causes.append(invalid(path, "", "OpenAPIV3Schema 'schema' is not supported"))
    if schema.get("uniqueItems"):
        why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        causes.append(forbidden(f"{path}.uniqueItems", why))
    if schema.get(_PRESERVE) is False:
        causes.append(invalid_value(f"{path}.{_PRESERVE}", False, "must be true or undefined"))
    causes += _lists(schema, path) + _maps(schema, path)
    return causes + (_embedded(schema, path) if schema.get(_EMBEDDED) else [])


def root(schema: Object, path: str) -> list[Cause]:
    """Validates what a schema defines for metadata, kind and apiVersion."""
    named = schema.get("properties") or {}
    causes = [
        invalid(f"{path}.properties[{key}].type", named[key].get("type", ""), "must be string")
        for key in ("apiVersion", "kind")
        if isinstance(named.get(key), dict) and named[key].get("type") != "string"
    ]
    given, here = named.get("metadata"), f"{path}.properties[metadata]"
    if not isinstance(given, dict):
        return causes
    if given.get("type") != "object":
        return [*causes, invalid(f"{here}.type", str(given.get("type", "")), "must be object")]
    if "default" in given:
        return [*causes, forbidden(f"{here}.default", "must not be set in top-level metadata")]
    other_keys = [
        key for key, value in given.items() if value and key not in ("type", "properties")
    ]
    other_keys += [
        key for key in given.get("properties") or {} if key not in ("name", "generateName")
    ]
    if other_keys:
        why = "must not specify anything other than name and generateName"
        causes.append(forbidden(here, f"{why}, but metadata is implicitly specified"))
    return causes


# ---- lists and maps


def _lists(schema: Object, path: str) -> list[Cause]:
    kind, keys = schema.get(_LIST), schema.get(_KEYS) or []
    causes: list[Cause] = []
    if kind is not None and kind not in _LIST_TYPES:
        causes.append(unsupported(f"{path}.{_LIST}", kind, _LIST_TYPES))
    if kind is not None and schema.get("type") != "array":
        why = f"must be array if {_LIST} is specified"
        causes.append(invalid(f"{path}.type", schema.get("type", ""), why))
    if keys and kind != "map":
        why = f"must be map if {_KEYS} is non-empty"
        causes.append(required(f"{path}.{_LIST}", why))
    items = schema.get("items")
    if not isinstance(items, dict) or causes:
        return causes
    if kind == "map":
        return _keyed(items, path, keys)
    if kind == "set" and items.get("type") == "object" and items.get(_MAP) != "atomic":
        why = f"must be atomic as item of a list with {_LIST}=set"
        causes.append(invalid_value(f"{path}.items.{_MAP}", items.get(_MAP), why))
    return causes


def _keyed(items: Object, path: str, keys: list[str]) -> list[Cause]:
    """Validates a list with keys: scalars that each item has."""
    if not keys:
        return [required(f"{path}.{_KEYS}", f"must not be empty if {_LIST} is map")]
    if items.get("type") != "object":
        why = f"must be object if parent array's {_LIST} is map"
        return [invalid(f"{path}.items.type", items.get("type", ""), why)]
    causes: list[Cause] = []
    named = items.get("properties") or {}
    if len(dict.fromkeys(keys)) < len(keys):
        causes.append(invalid_value(f"{path}.{_KEYS}", keys, "must not contain duplicate entries"))
    if any(key not in named for key in keys):
        why = "entries must all be names of item properties"
        causes.append(invalid_value(f"{path}.{_KEYS}", keys, why))
    for key in dict.fromkeys(keys):
        given: Any = named.get(key)
        here = f"{path}.items.properties[{key}]"
        if not isinstance(given, dict):
            continue
        if given.get("type") in ("array", "object"):
            why = f"must be a scalar type if parent array's {_LIST} is map"
            causes.append(invalid(f"{here}.type", given["type"], why))
        if key not in (items.get("required") or ()) and "default" not in given:
            why = f"this property is in {_KEYS}, so it must have a default or be required"
            causes.append(required(f"{here}.default", why))
    return causes


def _maps(schema: Object, path: str) -> list[Cause]:
    kind = schema.get(_MAP)
    if kind is None:
        return []
    if kind not in _MAP_TYPES:
        return [unsupported(f"{path}.{_MAP}", kind, _MAP_TYPES)]
    if schema.get("type") != "object":
        why = f"must be object if {_MAP} is specified"
        return [invalid(f"{path}.type", schema.get("type", ""), why)]
    return []


def _embedded(schema: Object, path: str) -> list[Cause]:
    causes: list[Cause] = []
    kind = schema.get("type", "")
    if schema.get("additionalProperties"):
        why = f"must not be used if {_EMBEDDED} is set"
        causes.append(forbidden(f"{path}.additionalProperties", why))
    if not schema.get("properties") and not schema.get(_PRESERVE):
        why = f"must not be empty if {_EMBEDDED} is true without {_PRESERVE}"
        causes.append(required(f"{path}.properties", why))
    if not kind:
        causes.append(required(f"{path}.type", f"must be object if {_EMBEDDED} is true"))
    elif kind != "object":
        why = f"must be object if {_EMBEDDED} is true"
        causes.append(invalid(f"{path}.type", kind, why))
    if schema.get(_EITHER):
        why = f"must be false if {_EITHER} is true"
        causes.append(invalid_value(f"{path}.{_EMBEDDED}", True, why))
    return causes
