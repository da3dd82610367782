"""Computes field sets in Kubernetes' encoding (`fieldsV1`), and set operations on them.

A field set is a tree: `f:name` steps into a map, `k:{...}` into an item of a list with keys, `v:...` names an item
of a set. A node that is empty, or holds `.`, is itself a member; a node with steps only is on the way to members.
The root is never a member, so an empty root is the empty set. Sets are never changed in place.

The types determine the members (`schema.model`): an apply owns the leaves of a value and the items of its lists, a
plain write also owns the maps and lists that it added.
"""

from functools import lru_cache
from typing import Any

import msgspec

from runyard.embedded.kube.resources import Object
from runyard.embedded.kube.schema.model import Type

Fields = dict[str, Any]
Change = tuple[Fields, Fields]  # fields that a write set or changed, and those that it removed

SELF: Fields = {}
_ABSENT = object()
_LONGEST_CACHED = 256  # the longest key that is cached
_encode = msgspec.json.Encoder(order="sorted").encode
# Fields of the server, which have no owner.
_SERVER = ("apiVersion", "kind")
_SERVER_META = (
    "name",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "managedFields",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)


def ownable(obj: Object) -> Object:
    """The part of an object that a manager can own."""
    rest = {key: value for key, value in obj.items() if key not in _SERVER}
    meta = rest.pop("metadata", None)
    if isinstance(meta, dict):
        kept = {key: value for key, value in meta.items() if key not in _SERVER_META}
        if kept:
            rest["metadata"] = kept
    return rest


# ---- items of lists


def item_step(kind: Type, item: Any) -> str | None:
    """The step into one item of a list with keys, or that names one of a set; None if it has none."""
    if kind.is_set:
        return "v:" + _encode(item).decode()
    if not isinstance(item, dict):
        return None
    given = tuple([item.get(key, kind.defaults.get(key)) for key in kind.keys])
    try:
        if None in given:
            return None
        for each in given:
            if type(each) is str and len(each) > _LONGEST_CACHED:
                return _written_step(kind.keys, given)
        return _key_step(kind.keys, given)
    except TypeError:  # a key that is not a scalar
        return None


@lru_cache(maxsize=8192, typed=True)
def _key_step(keys: tuple[str, ...], given: tuple[Any, ...]) -> str:
    return _written_step(keys, given)


def _written_step(keys: tuple[str, ...], given: tuple[Any, ...]) -> str:
    return "k:" + _encode(dict(zip(keys, given, strict=True))).decode()


def items_of(kind: Type, value: list[Any]) -> dict[str, Any]:
    """The items of a list by their step; of duplicates the first."""
    found: dict[str, Any] = {}
    for item in value:
        step = item_step(kind, item)
        if step is not None and step not in found:
            found[step] = item
    return found


def duplicate_item(kind: Type, value: Any, path: str = "") -> str:
    """The first list with keys, or set, that has a duplicate item, and which; empty if there is none."""
    if kind.is_map and isinstance(value, dict):
        below = ((kind.member(key), item, f"{path}.{key}") for key, item in value.items())
    elif kind.is_list and isinstance(value, list):
        seen: dict[str, None] = {}
        for item in value if not kind.atomic else ():
            step = item_step(kind, item)
            if step is not None and step in seen:
                return f"{path}: duplicate entries for key {_shown(step)}"
            if step is not None:
                seen[step] = None
        below = ((kind.element, item, f"{path}[{index}]") for index, item in enumerate(value))
    else:
        return ""
    return next(filter(None, (duplicate_item(*each) for each in below if each[0].deep)), "")


def _inside(kind: Type, value: Any) -> bool:
    """Whether the members of a value are owned separately."""
    if kind.atomic:
        return False
    return isinstance(value, dict) if kind.is_map else kind.is_list and isinstance(value, list)


# ---- field sets of values


def applied(kind: Type, value: Any) -> Fields | None:
    """What a manager that applies the value owns; None: nothing."""
    if not _inside(kind, value):
        return SELF
    owned: Fields = {}
    if kind.is_map:
        if not value:
            return SELF
        for key, item in value.items():
            below = applied(kind.member(key), item)
            if key not in kind.fields:
                owned[f"f:{key}"] = with_self(below or SELF)
            elif below is not None:
                owned[f"f:{key}"] = below
    else:
        for step, item in items_of(kind, value).items():
            owned[step] = with_self(applied(kind.element, item) or SELF)
    return owned or None


def written(kind: Type, value: Any) -> Fields:
    """What a manager that sets the value by a plain write owns: its inner nodes, too."""
    if not value or not _inside(kind, value):
        return SELF
    owned: Fields = {".": SELF}
    if kind.is_map:
        for key, item in value.items():
            owned[f"f:{key}"] = written(kind.member(key), item)
    else:
        for step, item in items_of(kind, value).items():
            owned[step] = written(kind.element, item)
    return owned


def with_self(node: Fields) -> Fields:
    """The node as a member of its set."""
    return node if not node or "." in node else {".": SELF, **node}


# ---- differences


def changes(kind: Type, *, old: Object, new: Object) -> Change:
    """The difference between two objects, in fields that can be owned."""
    changed: Fields = {}
    removed: Fields = {}
    for key, item in new.items():
        before = old.get(key, _ABSENT)
        if before is item or key in _SERVER:
            continue
        skip = _SERVER_META if key == "metadata" else ()
        if before is _ABSENT and key == "metadata":
            before = {}
        _member(kind.member(key), f"f:{key}", (before, item), (changed, removed), skip)
    for key, item in old.items():
        if key not in new and key not in _SERVER:
            removed[f"f:{key}"] = written(kind.member(key), item)
    return changed, removed


def _member(
    kind: Type, step: str, values: tuple[Any, Any], found: Change, skip: tuple[str, ...] = ()
) -> None:
    """The difference of one member: inside it if both sides have members, else as a whole."""
    old, new = values
    if old is _ABSENT:
        found[0][step] = written(kind, new)
        return
    if old == new and type(old) is type(new):
        return
    if old is None and _inside(kind, new):
        old = type(new)()  # null is present, and has no members
    elif new is None and _inside(kind, old):
        new = type(old)()
    if not _inside(kind, old) or not _inside(kind, new):
        found[0][step] = SELF
    else:
        changed: Fields = {}
        removed: Fields = {}
        _below(kind, old, new, (changed, removed), skip)
        if changed:
            found[0][step] = changed
        if removed:
            found[1][step] = removed


def _below(kind: Type, old: Any, new: Any, found: Change, skip: tuple[str, ...]) -> None:
    mark = "f:" if kind.is_map else ""
    before = old if kind.is_map else items_of(kind, old)
    after = new if kind.is_map else items_of(kind, new)
    for key, item in after.items():
        previous = before.get(key, _ABSENT)
        if previous is not item and key not in skip:
            child = kind.member(key) if mark else kind.element
            _member(child, mark + key, (previous, item), found)
    for key, item in before.items():
        if key not in after and key not in skip:
            child = kind.member(key) if mark else kind.element
            found[1][mark + key] = written(child, item)


# ---- set operations


def union(one: Fields, two: Fields) -> Fields:
    """The union; the first set itself if the second adds nothing."""
    if one is two or not two:
        return one
    if not one:
        return two
    result: Fields | None = None
    for step, theirs in two.items():
        mine = one.get(step)
        both = theirs if mine is None else _both(mine, theirs)
        if both is not mine:
            result = dict(one) if result is None else result
            result[step] = both
    return one if result is None else result


def _both(mine: Fields, theirs: Fields) -> Fields:
    if not mine:
        return mine if not theirs else with_self(theirs)
    return with_self(mine) if not theirs else union(mine, theirs)


def minus(one: Fields, two: Fields) -> Fields:
    """The difference; the first set itself if the second removes nothing."""
    if not one or not two:
        return one
    result: Fields | None = None
    for step, theirs in two.items():
        mine = one.get(step)
        if mine is None or step == ".":
            continue
        rest = _less(mine, theirs)
        if rest is not mine:
            result = dict(one) if result is None else result
            if rest is None:
                del result[step]
            else:
                result[step] = rest
    return one if result is None else result


def _less(mine: Fields, theirs: Fields) -> Fields | None:
    """One node without another; None when nothing is left."""
    gone = not theirs or "." in theirs
    if not mine:
        return None if gone else mine
    below = minus(mine, theirs)
    if gone and "." in below:
        below = {step: inner for step, inner in below.items() if step != "."}
    if not below:
        return None
    return SELF if len(below) == 1 and "." in below else below


def overlap(one: Fields, two: Fields) -> Fields:
    """The intersection."""
    shared: Fields = {}
    for step, mine in one.items():
        theirs = two.get(step)
        if theirs is None or step == ".":
            continue
        member = (not mine or "." in mine) and (not theirs or "." in theirs)
        below = overlap(mine, theirs) if mine and theirs else {}
        if member:
            shared[step] = with_self(below)
        elif below:
            shared[step] = below
    return shared


def has(node: Fields | None) -> bool:
    """Whether that node is a member."""
    return node is not None and (not node or "." in node)


def paths(fields: Fields, prefix: str = "") -> list[str]:
    """Every member as a readable path, in order."""
    steps = [step for step in sorted(fields) if step != "."]
    found = [prefix + _shown(step) for step in steps if has(fields[step])]
    for step in steps:
        found += paths(fields[step], prefix + _shown(step))
    return found


def _shown(step: str) -> str:
    if step.startswith("f:"):
        return f".{step[2:]}"
    if step.startswith("v:"):
        return f"[={step[2:]}]"
    named = msgspec.json.decode(step[2:])
    given = ",".join(f"{key}={msgspec.json.encode(value).decode()}" for key, value in named.items())
    return f"[{given}]"
