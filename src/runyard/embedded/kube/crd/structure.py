"""Validates that a schema is structural: every level has a type, defaults are valid for their own field,
and nothing in it is unsupported by this server.
"""

import re
from typing import Any

from runyard.embedded.kube.crd import checks, extensions
from runyard.embedded.kube.crd.schema import build
from runyard.embedded.kube.status import Cause, not_served

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_MANY = ("allOf", "anyOf", "oneOf")
_REFUSED = ("x-kubernetes-validations",)
_NOT_IN_ALTERNATIVES = {
    "additionalProperties": "undefined",
    "default": "undefined",
    "description": "empty",
    "nullable": "false",
    "title": "empty",
    "type": "empty",
    "x-kubernetes-embedded-resource": "false",
    "x-kubernetes-int-or-string": "false",
    "x-kubernetes-preserve-unknown-fields": "undefined",
}
_INT_OR_STRING = ({"type": "integer"}, {"type": "string"})


def check(schema: Any, path: str) -> list[Cause]:
    """Validates the schema of a version; raises a 501 for what is valid but not supported here."""
    causes: list[Cause] = []
    _level(schema, path, "at the root", causes)
    if isinstance(schema, dict):
        causes += extensions.root(schema, path)
    if not causes and schema.get("type") != "object":
        message = f'Invalid value: "{schema["type"]}": must be object at the root'
        causes.append(Cause(f"{path}.type", message))
    if not causes:
        _defaults(schema, path, causes)
    return causes


def _forbidden(path: str, why: str) -> Cause:
    return Cause(path, f"Forbidden: {why}", "FieldValueForbidden")


def _level(schema: Any, path: str, where: str, causes: list[Cause]) -> None:
    if not isinstance(schema, dict):
        causes.append(Cause(path, "Invalid value: must be an object"))
        return
    _limits(schema, path, causes)
    kind = schema.get("type", "")
    loose = schema.get("x-kubernetes-int-or-string") or schema.get(
        "x-kubernetes-preserve-unknown-fields"
    )
    if not kind and not loose and not schema.get("$ref"):
        message = f"Required value: must not be empty {where}"
        causes.append(Cause(f"{path}.type", message, "FieldValueRequired"))
    elif kind and kind not in _TYPES:
        shown = ", ".join(f'"{each}"' for each in _TYPES)
        message = f'Unsupported value: "{kind}": supported values: {shown}'
        causes.append(Cause(f"{path}.type", message, "FieldValueNotSupported"))
    if kind == "array" and "items" not in schema:
        message = "Required value: must be specified"
        causes.append(Cause(f"{path}.items", message, "FieldValueRequired"))
    _below(schema, path, causes)


def _below(schema: dict[str, Any], path: str, causes: list[Cause]) -> None:
    named = schema.get("properties", {})
    if not isinstance(named, dict):
        causes.append(Cause(f"{path}.properties", "Invalid value: must be an object"))
        return
    for key, item in named.items():
        _level(item, f"{path}.properties[{key}]", "for specified object fields", causes)
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        _level(extra, f"{path}.additionalProperties", "for specified object fields", causes)
    if extra and named:
        why = "additionalProperties and properties are mutual exclusive"
        causes.append(_forbidden(f"{path}.additionalProperties", why))
    if isinstance(schema.get("items"), list):
        why = "items must be a schema object and not an array"
        causes.append(_forbidden(f"{path}.items", why))
    elif "items" in schema:
        _level(schema["items"], f"{path}.items", "for specified array items", causes)


def _limits(schema: dict[str, Any], path: str, causes: list[Cause]) -> None:
    """Validates the keywords of a level beside its type, including its alternatives."""
    for key in _REFUSED:
        if schema.get(key):
            raise not_served(f"{key} in schemas")
    causes += extensions.check(schema, path)
    pattern = schema.get("pattern", "")
    try:
        re.compile(pattern)
    except (re.error, TypeError) as error:
        why = f"must be a valid regular expression, but isn't: {error}"
        causes.append(Cause(f"{path}.pattern", f'Invalid value: "{pattern}": {why}'))
    for where, item in _alternatives(schema):
        if not (schema.get("x-kubernetes-int-or-string") and item in _INT_OR_STRING):
            _alternative(item, f"{path}.{where}", causes)


def _alternatives(schema: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    found = [
        (f"{key}[{index}]", item)
        for key in _MANY
        for index, item in enumerate(schema.get(key) or ())
    ]
    if "not" in schema:
        found.append(("not", schema["not"]))
    return [(where, item) for where, item in found if isinstance(item, dict)]


def _alternative(schema: dict[str, Any], path: str, causes: list[Cause]) -> None:
    """An alternative may only restrict values; structure belongs to the enclosing level."""
    _limits(schema, path, causes)
    for key, state in _NOT_IN_ALTERNATIVES.items():
        if schema.get(key):
            causes.append(_forbidden(f"{path}.{key}", f"must be {state} to be structural"))
    named = schema.get("properties")
    for key, item in named.items() if isinstance(named, dict) else ():
        if isinstance(item, dict):
            _alternative(item, f"{path}.properties[{key}]", causes)
    if isinstance(schema.get("items"), dict):
        _alternative(schema["items"], f"{path}.items", causes)


def _defaults(schema: dict[str, Any], path: str, causes: list[Cause]) -> None:
    """Every default must be valid for its own field."""
    if "default" in schema:
        causes += checks.check_default(build(schema), schema["default"], f"{path}.default")
    for key, item in schema.get("properties", {}).items():
        _defaults(item, f"{path}.properties[{key}]", causes)
    for key in ("additionalProperties", "items"):
        if isinstance(schema.get(key), dict):
            _defaults(schema[key], f"{path}.{key}", causes)
