"""Server-side apply, and the bookkeeping of who owns which field.

A manager applies the fields that it wants to own, and only those. Fields of other managers that it
would change are a conflict, unless forced; fields that it owned and no longer mentions are removed,
unless somebody else owns them too. Plain writes take part as well: whoever changes a field by a patch
owns it from then on, so that a later apply of another manager notices. Writes of the built-in
controllers are not recorded: they are the server.

The functions are pure: they take objects and return objects that share what did not change.
"""

from typing import Any

import msgspec

from runyard.embedded.kube.fields import (
    Fields,
    Schema,
    changes,
    children,
    fields_of,
    is_leaf,
    item_step,
    minus,
    overlap,
    ownable,
    union,
    unmentioned,
)
from runyard.embedded.kube.resources import Object, Resource
from runyard.embedded.kube.status import Cause, conflict

_LIMIT = 64  # managers remembered per object; the oldest is forgotten first


class Writer(msgspec.Struct, frozen=True, kw_only=True):
    """Who writes, in which way, and when."""

    manager: str
    operation: str  # "Apply" or "Update"
    subresource: str
    time: str

    def wrote(self, entry: Object) -> bool:
        """Whether that entry of `managedFields` is this writer's."""
        return (
            entry.get("manager") == self.manager
            and entry.get("operation") == self.operation
            and entry.get("subresource", "") == self.subresource
        )


def schema_of(resource: Resource) -> Schema:
    """How that kind merges."""
    return _CUSTOM if resource.custom else _BUILT_IN


_CUSTOM, _BUILT_IN = Schema(custom=True), Schema()


def owned_by_create(resource: Resource, *, told: Object, new: Object, writer: Writer) -> Object:
    """The new object with its `managedFields`: its creator owns what it told, not the defaults."""
    if resource.has_status and not resource.status_on_create:
        told = {key: value for key, value in told.items() if key != "status"}
    fields = fields_of(schema_of(resource), "", ownable(told))
    return _with_entries(new, _entry(resource, writer, fields))


def owned_by_update(resource: Resource, *, old: Object, new: Object, writer: Writer) -> Object:
    """The new object with its `managedFields` after a plain write."""
    changed, removed = changes(schema_of(resource), old=old, new=new)
    entries = _entries(old)
    if not changed and not removed:
        return _with_entries(new, entries)
    touched = union(changed, removed) if removed else changed
    kept: list[Object] = []
    mine: Fields = {}
    for entry in entries:
        if writer.wrote(entry):
            mine = entry["fieldsV1"]
        elif rest := minus(entry["fieldsV1"], touched):
            kept.append(entry if rest is entry["fieldsV1"] else {**entry, "fieldsV1": rest})
    mine = union(minus(mine, removed), changed)
    return _with_entries(new, [*kept, *_entry(resource, writer, mine)])


def apply(
    resource: Resource, *, live: Object, wanted: Object, writer: Writer, force: bool
) -> Object:
    """The live object after the apply, with its `managedFields`; raises 409 on a conflict."""
    schema = schema_of(resource)
    body = ownable(wanted)
    asked = fields_of(schema, "", body)
    entries = _entries(live)
    mine: Fields = next((item["fieldsV1"] for item in entries if writer.wrote(item)), {})
    others = [entry for entry in entries if not writer.wrote(entry)]
    others = _yield_or_refuse(schema, resource, live, body, asked, others, force=force)
    dropped = unmentioned(mine, asked)
    for entry in others:
        dropped = minus(dropped, entry["fieldsV1"])
    merged = _merge(schema, "", live, body)
    if dropped:  # laid over again: a map that was applied empty stays, emptied
        merged = _merge(schema, "", without(schema, "", merged, dropped), body)
    return _with_entries(merged, [*others, *_entry(resource, writer, asked)])


def _yield_or_refuse(
    schema: Schema,
    resource: Resource,
    live: Object,
    body: Object,
    asked: Fields,
    others: list[Object],
    *,
    force: bool,
) -> list[Object]:
    """The other managers' entries after this apply took what it may."""
    left: list[Object] = []
    causes: list[Cause] = []
    for entry in others:
        fought = _differing(schema, "", live, body, overlap(asked, entry["fieldsV1"]))
        rest = minus(entry["fieldsV1"], fought) if fought else entry["fieldsV1"]
        for path in _paths(fought):
            told = f'conflict with "{entry.get("manager", "")}"'
            causes.append(Cause(path, told, "FieldManagerConflict"))
        if rest:
            left.append(entry if rest is entry["fieldsV1"] else {**entry, "fieldsV1": rest})
    if causes and not force:
        name = str(live["metadata"]["name"])
        told = "; ".join(f"{cause.message}: {cause.field}" for cause in causes)
        raise conflict(resource, name, f"Apply failed with conflicts: {told}", causes)
    return left


def _differing(schema: Schema, name: str, live: Any, body: Any, shared: Fields) -> Fields:
    """Those shared fields whose value the apply would change."""
    here, there = children(schema, name, live), children(schema, name, body)
    result: Fields = {}
    if here is None or there is None:
        return result
    for step, inner in shared.items():
        if step == "." or step not in there:
            continue
        child, item = there[step]
        if step not in here:
            result[step] = inner
        elif inner and not (is_leaf(schema, child, here[step][1]) or is_leaf(schema, child, item)):
            if deeper := _differing(schema, child, here[step][1], item, inner):
                result[step] = deeper
        elif here[step][1] != item:
            result[step] = inner
    return result


def _merge(schema: Schema, name: str, live: Any, body: Any) -> Any:
    """The live value with the applied one laid over it."""
    if schema.is_map(name, live) and isinstance(body, dict):
        merged = {key: _merge(schema, key, live.get(key), value) for key, value in body.items()}
        same = all(key in live and live[key] is value for key, value in merged.items())
        return live if same else {**live, **merged}
    if isinstance(live, list) and isinstance(body, list):
        if keys := schema.keys_of(name, live, body):
            over = {item_step(item, keys): item for item in body}
            result = [
                _merge(schema, "", item, over.pop(item_step(item, keys), item)) for item in live
            ]
            result += over.values()
            return live if _same_items(live, result) else result
        if schema.is_set(name, live, body):
            added = [item for item in dict.fromkeys(body) if item not in live]
            return [*live, *added] if added else live
    return live if type(live) is type(body) and live == body else body


def _same_items(one: list[Any], two: list[Any]) -> bool:
    return len(one) == len(two) and all(a is b for a, b in zip(one, two, strict=True))


def without(schema: Schema, name: str, value: Any, dropped: Fields) -> Any:
    """The value without those fields; emptied maps and lists go with their last member."""
    below = children(schema, name, value)
    if below is None:
        return value
    kept: list[tuple[str, Any]] = []
    for step, (child, item) in below.items():
        gone = dropped.get(step)
        if gone is None:
            kept.append((child, item))
        elif gone and "." not in gone:
            rest = without(schema, child, item, gone)
            if rest not in ({}, []):
                kept.append((child, rest))
    return dict(kept) if isinstance(value, dict) else [item for _, item in kept]


def _entries(obj: Object) -> list[Object]:
    entries: list[Object] = obj["metadata"].get("managedFields") or []
    return entries


def _entry(resource: Resource, writer: Writer, fields: Fields) -> list[Object]:
    if not fields:
        return []
    entry: Object = {
        "manager": writer.manager,
        "operation": writer.operation,
        "apiVersion": resource.api_version,
        "time": writer.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    return [entry | {"subresource": writer.subresource} if writer.subresource else entry]


def _with_entries(obj: Object, entries: list[Object]) -> Object:
    meta = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    if entries:
        meta["managedFields"] = entries[-_LIMIT:]
    return {**obj, "metadata": meta}


def _paths(fields: Fields, prefix: str = "") -> list[str]:
    """A field set as the paths that people read."""
    found: list[str] = []
    for step, inner in fields.items():
        if step == ".":
            continue
        shown = f".{step[2:]}" if step.startswith("f:") else f"[{step[2:]}]"
        found += _paths(inner, prefix + shown) if inner else [prefix + shown]
    return found
