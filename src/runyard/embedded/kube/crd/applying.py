"""Checks whether a custom object can be merged by server-side apply: its values have the types that a merge needs.

An apply of other values is refused, before any validation. A plain write may leave such values in the part that it
does not validate (spec or status); then field ownership cannot be computed, and the object loses its managed fields.

Numbers, strings and booleans are distinguished, lists with keys need the keys, a set has no duplicates; ranges,
patterns and required fields are not checked. Null is allowed except in a set or as an item of a list with keys.
"""

from typing import Any

import msgspec

from runyard.embedded.kube.crd.schema import MISSING, Schema
from runyard.embedded.kube.resources import Object, Resource

_OWN = ("apiVersion", "kind", "metadata")
_ANY: tuple[str, tuple[type, ...]] = ("scalar", (str, bool, int, float))
_SCALARS: dict[str, tuple[str, tuple[type, ...]]] = {
    "string": ("string", (str,)),
    "boolean": ("boolean", (bool,)),
    "integer": ("numeric (int or float)", (int, float)),
    "number": ("numeric (int or float)", (int, float)),
}


def mismatch(schema: Schema, obj: dict[str, Any], *, allow_duplicates: bool = False) -> str:
    """Returns the first value that cannot be merged, and why; empty if there is none.

    `allow_duplicates` allows duplicate items in sets and in lists with keys.
    """
    given = {key: item for key, item in obj.items() if key not in _OWN}
    return _map(schema, given, "", allow_duplicates)


def loses_ownership(
    resource: Resource, obj: Object, *, old: Object | None = None, status: bool = False
) -> bool:
    """Whether a plain write leaves a value that cannot be merged in the part that it does not validate."""
    if resource.definition is None or not resource.has_status:
        return False
    before = old or {}
    unvalidated = {
        key: item
        for key, item in obj.items()
        if (key == "status") is not status and item is not before.get(key)
    }
    return bool(unvalidated) and bool(
        mismatch(resource.definition.schema, unvalidated, allow_duplicates=True)
    )


def _value(schema: Schema, value: Any, path: str, allow_duplicates: bool) -> str:
    if value is None:
        return ""
    if schema.type == "array":
        return _list(schema, value, path, allow_duplicates)
    if schema.type == "object" or schema.properties or schema.extra is not None:
        return _map(schema, value, path, allow_duplicates)
    if schema.preserve:
        return ""
    wanted, kinds = _SCALARS.get("" if schema.int_or_string else schema.type, _ANY)
    fits = isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
    return "" if fits else f"{path}: expected {wanted}, got {_shown(value)}"


def _map(schema: Schema, value: Any, path: str, allow_duplicates: bool) -> str:
    if not isinstance(value, dict):
        return f"{path}: expected map, got {_shown(value)}"
    for key, item in value.items():
        below = schema.properties.get(key) or schema.extra
        if below is not None and (why := _value(below, item, f"{path}.{key}", allow_duplicates)):
            return why
    return ""


def _list(schema: Schema, value: Any, path: str, allow_duplicates: bool) -> str:
    if not isinstance(value, list):
        return f"{path}: expected list, got {_shown(value)}"
    seen: dict[str, None] = {}
    for index, item in enumerate(value):
        if schema.list_type in ("set", "map"):
            key, why = _keyed(schema, item, index)
            if not why and key in seen and not allow_duplicates:
                why = f"duplicate entries for key [{key}]"
            if why:
                return f"{path}: {why}"
            seen[key] = None
        if schema.items is not None:
            why = _value(schema.items, item, f"{path}[{index}]", allow_duplicates)
            if why:
                return why
    return ""


def _keyed(schema: Schema, item: Any, index: int) -> tuple[str, str]:
    """The key of an item in its list, and what is wrong with it."""
    here = f"element {index}: associative list"
    if schema.list_type == "set":
        if item is None or isinstance(item, dict | list):
            found = "null" if item is None else "map" if isinstance(item, dict) else "list"
            return "", f"{here} without keys has an element that's a {found} type"
        return f"={_shown(item)}", ""
    if not isinstance(item, dict):
        return "", f"{here} with keys may not have non-map elements"
    inside = schema.items.properties if schema.items is not None else {}
    defaults = {key: inside[key].default for key in schema.list_keys if key in inside}
    named = {key: item.get(key, defaults.get(key, MISSING)) for key in schema.list_keys}
    if all(value is MISSING for value in named.values()):
        keys = " ".join(f'"{key}"' for key in schema.list_keys)
        return "", f"{here} with keys has an element that omits all key fields [{keys}]"
    given = [f"{key}={_shown(value)}" for key, value in named.items() if value is not MISSING]
    return ",".join(given), ""


def _shown(value: Any) -> str:
    return msgspec.json.encode(value).decode()
