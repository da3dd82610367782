"""Compiles the structural schemas of custom resources, and prunes and defaults values by them.

A `Schema` is one node of an OpenAPI v3 schema with the keywords that this server uses. `prune` drops unknown fields,
`fill` sets defaults; both return the same object when they change nothing, so that later comparisons are
cheap. `unknown` lists the fields that `prune` would drop, for warnings.

At the root, and where a resource is embedded, `apiVersion`, `kind` and `metadata` belong to every object and are
never dropped.
"""

import re
from typing import Any

import msgspec

from runyard.embedded.kube.resources import Object

MISSING: Any = msgspec.UNSET
_OWN = ("apiVersion", "kind", "metadata")


class Schema(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One node."""

    type: str = ""
    properties: dict[str, "Schema"] = {}
    extra: "Schema | None" = None  # the schema of members that `properties` does not name
    items: "Schema | None" = None
    required: tuple[str, ...] = ()
    nullable: bool = False
    preserve: bool = False
    int_or_string: bool = False
    embedded: bool = False
    default: Any = MISSING
    enum: tuple[Any, ...] | None = None
    minimum: float | None = None
    maximum: float | None = None
    above: bool = False  # the minimum is exclusive
    below: bool = False
    multiple_of: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: re.Pattern[str] | None = None
    format: str = ""
    min_items: int | None = None
    max_items: int | None = None
    unique: bool = False
    min_properties: int | None = None
    max_properties: int | None = None
    all_of: tuple["Schema", ...] = ()
    any_of: tuple["Schema", ...] = ()
    one_of: tuple["Schema", ...] = ()
    none_of: "Schema | None" = None
    list_type: str = ""
    list_keys: tuple[str, ...] = ()
    map_type: str = ""
    defaulting: bool = False  # whether it has a default on any level
    plain: bool = False  # whether there is nothing to check but the type


ANY = Schema(preserve=True)


def build(given: Any) -> Schema:
    """Compiles a validated schema (`structure`)."""
    if given is True or not isinstance(given, dict):
        return ANY
    properties = {key: build(item) for key, item in given.get("properties", {}).items()}
    extra = given.get("additionalProperties")
    items = given.get("items")
    inner = [*properties.values()]
    compiled_extra = build(extra) if extra not in (None, False) else None
    compiled_items = build(items) if items is not None else None
    inner += [each for each in (compiled_extra, compiled_items) if each is not None]
    defaulting = any(each.defaulting or each.default is not MISSING for each in inner)
    schema = Schema(
        properties=properties,
        extra=compiled_extra,
        items=compiled_items,
        required=tuple(given.get("required", ())),
        preserve=given.get("x-kubernetes-preserve-unknown-fields", False),
        int_or_string=given.get("x-kubernetes-int-or-string", False),
        embedded=given.get("x-kubernetes-embedded-resource", False),
        default=given.get("default", MISSING),
        list_type=given.get("x-kubernetes-list-type", ""),
        list_keys=tuple(given.get("x-kubernetes-list-map-keys", ())),
        map_type=given.get("x-kubernetes-map-type", ""),
        defaulting=defaulting,
        **_limits(given),
    )
    return msgspec.structs.replace(schema, plain=True) if _is_plain(given) else schema


def _limits(given: Object) -> dict[str, Any]:
    pattern, enum = given.get("pattern"), given.get("enum")
    return {
        "type": given.get("type", ""),
        "nullable": given.get("nullable", False),
        "enum": None if enum is None else tuple(enum),
        "minimum": given.get("minimum"),
        "maximum": given.get("maximum"),
        "above": given.get("exclusiveMinimum", False),
        "below": given.get("exclusiveMaximum", False),
        "multiple_of": given.get("multipleOf"),
        "min_length": given.get("minLength"),
        "max_length": given.get("maxLength"),
        "pattern": re.compile(pattern) if pattern else None,
        "format": given.get("format", ""),
        "min_items": given.get("minItems"),
        "max_items": given.get("maxItems"),
        "unique": given.get("uniqueItems", False),
        "min_properties": given.get("minProperties"),
        "max_properties": given.get("maxProperties"),
        "all_of": tuple(build(item) for item in given.get("allOf", ())),
        "any_of": tuple(build(item) for item in given.get("anyOf", ())),
        "one_of": tuple(build(item) for item in given.get("oneOf", ())),
        "none_of": build(given["not"]) if "not" in given else None,
    }


def _is_plain(given: Object) -> bool:
    other_keys = [
        key for key in given if key not in ("type", "description", "title", "default", "example")
    ]
    return not other_keys and given.get("type") in ("string", "boolean", "integer", "number")


# ---- pruning


def prune(schema: Schema, value: Any, *, root: bool = False) -> Any:
    """The value without unknown fields; the same object if there are none."""
    if type(value) is list:
        return _prune_list(schema, value)
    if type(value) is not dict or (schema.preserve and not schema.properties):
        return value
    own = root or schema.embedded
    result: Object | None = None
    for key, item in value.items():
        if own and key in _OWN:
            continue
        below = schema.properties.get(key) or schema.extra
        if below is None:
            if not schema.preserve:
                result = dict(value) if result is None else result
                del result[key]
        elif type(item) is dict or type(item) is list:
            kept = prune(below, item)
            if kept is not item:
                result = dict(value) if result is None else result
                result[key] = kept
    return value if result is None else result


def _prune_list(schema: Schema, value: list[Any]) -> list[Any]:
    items = schema.items
    if items is None:
        return value
    kept = [prune(items, item) for item in value]
    return kept if any(a is not b for a, b in zip(kept, value, strict=True)) else value


def unknown(schema: Schema, value: Any, path: str = "", *, root: bool = False) -> list[str]:
    """The paths of everything that `prune` would drop, in their order."""
    if type(value) is list:
        items = schema.items
        if items is None:
            return []
        return [
            each
            for index, item in enumerate(value)
            for each in unknown(items, item, f"{path}[{index}]")
        ]
    if type(value) is not dict or (schema.preserve and not schema.properties):
        return []
    found: list[str] = []
    for key, item in value.items():
        if (root or schema.embedded) and key in _OWN:
            continue
        here = f"{path}.{key}" if path else key
        below = schema.properties.get(key) or schema.extra
        if below is not None:
            found += unknown(below, item, here)
        elif not schema.preserve:
            found.append(here)
    return found


# ---- nulls


def without_nulls(schema: Schema, value: Any, *, root: bool = False) -> Any:
    """The value without nulls for fields that have no null and no default; the same object if there are none."""
    if type(value) is list:
        if schema.items is None:
            return value
        kept = [without_nulls(schema.items, item) for item in value]
        return kept if any(a is not b for a, b in zip(kept, value, strict=True)) else value
    if type(value) is not dict:
        return value
    result: Object | None = None
    for key, item in value.items():
        below = schema.properties.get(key) or schema.extra
        if below is None or (root and key in _OWN):
            continue
        after = without_nulls(below, item)
        if item is None and not below.nullable and below.default is MISSING:
            result = dict(value) if result is None else result
            del result[key]
        elif after is not item:
            result = dict(value) if result is None else result
            result[key] = after
    return value if result is None else result


# ---- defaulting


def fill(schema: Schema, value: Any) -> Any:
    """The value with all defaults; the same object if there is nothing to fill in."""
    if not schema.defaulting:
        return value
    if type(value) is list:
        if schema.items is None:
            return value
        filled = [fill(schema.items, item) for item in value]
        return filled if any(a is not b for a, b in zip(filled, value, strict=True)) else value
    return _fill_map(schema, value) if type(value) is dict else value


def _fill_map(schema: Schema, value: Object) -> Object:
    result: Object | None = None
    for key, below in schema.properties.items():
        before = value.get(key, MISSING)
        absent = before is MISSING or (before is None and not below.nullable)
        after = below.default if absent and below.default is not MISSING else before
        if after is not MISSING and below.defaulting:
            after = fill(below, after)
        if after is not before:
            result = dict(value) if result is None else result
            result[key] = after
    if schema.extra is not None and schema.extra.defaulting:
        for key, item in value.items():
            if key not in schema.properties and (after := fill(schema.extra, item)) is not item:
                result = dict(value) if result is None else result
                result[key] = after
    return value if result is None else result
