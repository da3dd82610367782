"""Implements server-side apply and managed fields.

A manager applies the fields that it wants to own, and only those. Changing fields of other managers is a conflict,
unless forced; fields that it owned and no longer applies are removed, unless another manager owns them too. A plain
write makes its manager the owner of the fields that it changes, so that a later apply of another manager
conflicts. Writes of the built-in controllers are not recorded.

An object that was created without managed fields is not tracked until the first apply to it: its fields then belong
to `before-first-apply`.

The functions are pure: they take objects and return objects that share what did not change.
"""

from functools import lru_cache
from typing import Any

import msgspec

from runyard.embedded.kube.patches.fields import (
    Fields,
    applied,
    changes,
    minus,
    overlap,
    ownable,
    paths,
    union,
)
from runyard.embedded.kube.patches.merging import merge, without
from runyard.embedded.kube.resources import Object, Resource
from runyard.embedded.kube.schema import model
from runyard.embedded.kube.schema.model import Type
from runyard.embedded.kube.schema.typed import blank, known
from runyard.embedded.kube.status import Cause, apply_conflict

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_KUBECTL = "kubectl"  # the only manager that may take over fields of client-side apply
_UPDATERS = 10  # at most so many Update entries; older ones are merged
_NAMED: Fields = {"f:metadata": {"f:name": {}}}  # what every apply owns
_DELETION: Fields = {"f:metadata": {"f:deletionTimestamp": {}, "f:deletionGracePeriodSeconds": {}}}
_BEFORE, _ANCIENT = "before-first-apply", "ancient-changes"


class Writer(msgspec.Struct, frozen=True, kw_only=True):
    """The manager of a write, its operation and time."""

    manager: str
    operation: str  # "Apply" or "Update"
    subresource: str
    time: str
    whole: bool = False  # whether the whole object was sent, to replace the existing one

    def wrote(self, entry: Object) -> bool:
        """Whether that entry of `managedFields` is this writer's."""
        return (
            entry.get("manager") == self.manager
            and entry.get("operation") == self.operation
            and entry.get("subresource", "") == self.subresource
        )


@lru_cache(maxsize=256)
def type_of(resource: Resource) -> Type:
    """The type by which objects of that kind merge."""
    if known(resource):
        return model.named(resource.kind)
    return model.of_definition(resource.kind, getattr(resource.definition, "schema", None))


# ---- plain writes


def owned_by_create(resource: Resource, *, new: Object, given: Object, writer: Writer) -> Object:
    """The new object with its `managedFields`; `given` is the object before the server's own additions."""
    skip = ("status",) if resource.has_status else ()
    ours = {key: value for key, value in given.items() if key not in skip}
    base = {key: value for key, value in blank(resource).items() if key not in skip}
    changed, _ = changes(type_of(resource), old=base, new=ours)
    return with_entries(new, _with(resource, [], writer, changed, fresh=True))


def owned_by_update(resource: Resource, *, old: Object, new: Object, writer: Writer) -> Object:
    """The new object with its `managedFields` after a plain write."""
    entries = entries_of(new) or entries_of(old)
    if not entries or is_reset(new):
        return with_entries(new, [])
    if writer.subresource == "scale":
        return _owned_by_scale(resource, old=old, new=new, writer=writer)
    changed, removed = changes(type_of(resource), old=old, new=new)
    if not changed and not removed:
        return with_entries(new, entries)
    if writer.whole:
        entries = _without(entries, _DELETION)  # a PUT ends the ownership of these
    kept = _without(_without(entries, changed), removed)
    if changed:
        kept = _capped(_with(resource, kept, writer, changed, fresh=True))
    return with_entries(new, kept)


def _owned_by_scale(resource: Resource, *, old: Object, new: Object, writer: Writer) -> Object:
    """Returns the same after a write of a Scale, which owns the replicas only if they already had an owner."""
    entries = entries_of(old)
    changed, removed = changes(type_of(resource), old=old, new=new)
    count = union(changed, removed)
    if not count or not any(overlap(entry["fieldsV1"], count) for entry in entries):
        return new
    kept = _without(entries, count)
    if _value_at(new, count):  # a Scale omits zero, so zero was not set
        kept = _with(resource, kept, writer, count)
    return with_entries(new, kept)


def _value_at(value: Any, fields: Fields) -> Any:
    """The value at the end of a set with one member."""
    while fields:
        step = next(iter(fields))
        value, fields = (value or {}).get(step[2:]), fields[step]
    return value


def is_reset(obj: Object) -> bool:
    """Whether a client requests to reset managed fields: an empty list, or one empty entry."""
    given = obj["metadata"].get("managedFields")
    return isinstance(given, list) and given in ([], [{}])


# ---- apply


def apply(
    resource: Resource, *, live: Object, wanted: Object, writer: Writer, force: bool
) -> Object:
    """The live object after the apply, with its `managedFields`; raises 409 on a conflict."""
    kind = type_of(resource)
    body = ownable(wanted)
    applied_fields = applied(kind, body) or {}
    entries = entries_of(live) or _before_first_apply(resource, live, writer)
    mine: Fields = next((item["fieldsV1"] for item in entries if writer.wrote(item)), {})
    others = [entry for entry in entries if not writer.wrote(entry)]
    new = merge(kind, live, body)
    if mine:
        keep = union(applied_fields, _NAMED)
        for entry in others:
            keep = union(keep, entry["fieldsV1"])
        new = without(kind, new, mine, keep)
    changed, removed = changes(kind, old=live, new=new)
    _refuse_conflicts(resource, kind, live, writer, changed, others, force=force)
    others = _without(_without(others, changed), removed)
    unchanged = [entry for entry in entries if writer.wrote(entry)]
    if not changed and not removed and ownable(new) == ownable(live):
        time = unchanged[0].get("time") if unchanged else None
        return with_entries(live, _with(resource, others, writer, applied_fields, time=time))
    return with_entries(new, _with(resource, others, writer, applied_fields, fresh=True))


def owned_by_apply(resource: Resource, *, new: Object, wanted: Object, writer: Writer) -> Object:
    """A new object that was created by an apply: its manager owns what it sent."""
    if resource.has_status:
        wanted = {key: value for key, value in wanted.items() if key != "status"}
    applied_fields = applied(type_of(resource), ownable(wanted)) or {}
    return with_entries(new, _with(resource, [], writer, applied_fields, fresh=True))


def _before_first_apply(resource: Resource, live: Object, writer: Writer) -> list[Object]:
    """Returns the entry for the fields of an object before the first apply to it."""
    skip: tuple[str, ...] = ()
    if resource.has_status:
        skip = ("spec",) if writer.subresource else ("status",)
    base, given = (
        {key: value for key, value in obj.items() if key not in skip}
        for obj in (blank(resource), live)
    )
    owned, _ = changes(type_of(resource), old=base, new=given)
    if "deletionTimestamp" in live["metadata"]:
        owned = union(owned, _DELETION)
    before_first = msgspec.structs.replace(writer, manager=_BEFORE, operation="Update")
    return _with(resource, [], before_first, owned, fresh=True)


def _refuse_conflicts(
    resource: Resource,
    kind: Type,
    live: Object,
    writer: Writer,
    changed: Fields,
    others: list[Object],
    *,
    force: bool,
) -> None:
    if force or not changed:
        return
    allowed = _from_last_applied(kind, resource, live) if writer.manager == _KUBECTL else {}
    causes = [
        Cause(path, f"conflict with {_named(entry)}", "FieldManagerConflict")
        for entry in sorted(others, key=_identity)
        for path in paths(minus(overlap(entry["fieldsV1"], changed), allowed))
    ]
    if causes:
        raise apply_conflict(causes)


def _identity(entry: Object) -> tuple[str | bool, ...]:
    """Returns the sort key of an entry; the time counts for Update entries only."""
    given = [str(entry.get(key, "")) for key in ("manager", "operation", "apiVersion")]
    time = entry.get("time", "") if entry["operation"] == "Update" else ""
    sub = entry.get("subresource", "")
    return (*given, time, not sub, sub)


def _named(entry: Object) -> str:
    given = msgspec.json.encode(entry.get("manager", "")).decode()
    if entry.get("subresource"):
        given += f' with subresource "{entry["subresource"]}"'
    return (
        given if entry.get("operation") == "Apply" else f"{given} using {entry.get('apiVersion')}"
    )


def _from_last_applied(kind: Type, resource: Resource, live: Object) -> Fields:
    """Fields of a client-side apply that are unchanged since: kubectl may take them over."""
    text = (live["metadata"].get("annotations") or {}).get(LAST_APPLIED)
    try:
        last = msgspec.json.decode(text) if text else None
    except msgspec.DecodeError:
        return {}
    if not isinstance(last, dict) or last.get("apiVersion") != resource.api_version:
        return {}
    body = ownable(last)
    changed, removed = changes(kind, old=body, new=ownable(live))
    return minus(minus(applied(kind, body) or {}, changed), removed)


def refreshed_annotation(live: Object, wanted: Object) -> Object:
    """The object with an updated annotation of client-side apply, where there is one."""
    annotations = live["metadata"].get("annotations") or {}
    if not annotations.get(LAST_APPLIED):
        return live
    meta = dict(wanted["metadata"])
    given = dict(meta.pop("annotations", None) or {})
    given.pop(LAST_APPLIED, None)
    if given:
        meta["annotations"] = given
    text = msgspec.json.encode({**wanted, "metadata": meta}, order="sorted").decode() + "\n"
    if annotations[LAST_APPLIED] == text:
        return live
    annotations = {**annotations, LAST_APPLIED: text}
    return {**live, "metadata": {**live["metadata"], "annotations": annotations}}


# ---- entries


def entries_of(obj: Object) -> list[Object]:
    """The managed fields of an object."""
    entries = obj["metadata"].get("managedFields")
    return entries if isinstance(entries, list) else []


def with_entries(obj: Object, entries: list[Object]) -> Object:
    """The object with those entries in their order."""
    before = obj["metadata"].get("managedFields")
    if before is entries or (not entries and before is None):
        return obj
    meta = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    if entries:
        meta["managedFields"] = sorted(entries, key=_rank) if len(entries) > 1 else entries
    return {**obj, "metadata": meta}


def _rank(entry: Object) -> tuple[str, ...]:
    field = entry.get
    return (
        entry["operation"],
        field("time") or "",
        field("manager") or "",
        entry["apiVersion"],
        field("subresource") or "",
    )


def _with(
    resource: Resource,
    entries: list[Object],
    writer: Writer,
    fields: Fields,
    *,
    fresh: bool = False,
    time: str | None = None,
) -> list[Object]:
    """The entries with one more for the writer, or with its own extended."""
    if not fields:
        return entries
    mine: Fields = {}
    others: list[Object] = []
    for entry in entries:
        if writer.wrote(entry):
            mine = entry["fieldsV1"]
        else:
            others.append(entry)
    made: Object = {
        "manager": writer.manager,
        "operation": writer.operation,
        "apiVersion": resource.api_version,
    }
    if when := writer.time if fresh else time:
        made["time"] = when
    made |= {"fieldsType": "FieldsV1", "fieldsV1": union(mine, fields)}
    if writer.subresource:
        made["subresource"] = writer.subresource
    return [*others, made]


def _without(entries: list[Object], fields: Fields) -> list[Object]:
    """The entries without those fields; entries that own nothing are removed."""
    if not fields:
        return entries
    kept: list[Object] = []
    for entry in entries:
        rest = minus(entry["fieldsV1"], fields)
        if rest is entry["fieldsV1"]:
            kept.append(entry)
        elif rest:
            kept.append({**entry, "fieldsV1": rest})
    return kept


def _capped(entries: list[Object]) -> list[Object]:
    """Merges the oldest plain writers when there are too many of them."""
    if len(entries) <= _UPDATERS:
        return entries
    updaters = sorted((item for item in entries if item["operation"] == "Update"), key=_rank)
    surplus = len(updaters) - _UPDATERS
    if surplus <= 0:
        return entries
    oldest = updaters[: surplus + 1]
    together: Fields = {}
    for entry in oldest:
        together = union(together, entry["fieldsV1"])
    bucket: dict[str, Any] = {**oldest[-1], "manager": _ANCIENT, "fieldsV1": together}
    bucket.pop("subresource", None)
    return [*(item for item in entries if not any(item is old for old in oldest)), bucket]
