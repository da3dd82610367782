"""Field ownership as Kubernetes writes it down (`fieldsV1`), and arithmetic on it.

A field set is a tree: `f:name` steps into a map, `k:{...}` into an item of a keyed list, `v:...` names
an item of a set, `.` is the item itself, and an empty tree is a leaf: the field is owned whole. Sets are
never changed in place.

Which lists are keyed is a table by field name; a list that is not in it, or whose items lack their
keys, is atomic: it is owned and replaced as a whole. Inside a custom resource only the lists of
`metadata` are keyed, because its schema declares no others.
"""

from typing import Any

import msgspec

from runyard.embedded.kube.resources import Object

Fields = dict[str, Any]
Keys = tuple[str, ...]

_META_LISTS: dict[str, Keys] = {"ownerReferences": ("uid",)}
_LISTS: dict[str, Keys] = {
    "ownerReferences": ("uid",),
    "containers": ("name",),
    "initContainers": ("name",),
    "env": ("name",),
    "ports": ("containerPort", "protocol"),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "conditions": ("type",),
    "addresses": ("type",),
    "imagePullSecrets": ("name",),
    "secrets": ("name",),
    "podIPs": ("ip",),
    "hostIPs": ("ip",),
}
_SETS = ("finalizers",)
_ATOMIC_MAPS = ("nodeSelector", "matchLabels", "involvedObject", "target")
_DEFAULTS = {"protocol": "TCP"}
_ABSENT = object()
_NOT_OWNED = ("apiVersion", "kind")
_NOT_OWNED_META = (
    "name",
    "namespace",
    "generateName",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "managedFields",
)


class Schema(msgspec.Struct, frozen=True):
    """How the values below a field merge."""

    custom: bool = False

    def keys_of(self, name: str, *values: Any) -> Keys | None:
        """The keys of a keyed list; None if it is atomic."""
        keys = (_META_LISTS if self.custom else _LISTS).get(name)
        if keys is None or not all(keyed(value, keys) for value in values):
            return None
        return keys

    def is_set(self, name: str, *values: Any) -> bool:
        """Whether the list is a set of strings."""
        return name in _SETS and all(
            isinstance(value, list) and all(isinstance(item, str) for item in value)
            for value in values
        )

    def is_map(self, name: str, value: Any) -> bool:
        """Whether the value is a map whose members are owned one by one."""
        return isinstance(value, dict) and (self.custom or name not in _ATOMIC_MAPS)


def keyed(value: Any, keys: Keys) -> bool:
    """Whether every item of the list has its keys, and no two the same."""
    if not isinstance(value, list):
        return False
    seen: dict[str, None] = {}
    for item in value:
        if not isinstance(item, dict) or any(
            not isinstance(item.get(key, _DEFAULTS.get(key)), str | int) for key in keys
        ):
            return False
        seen[item_step(item, keys)] = None
    return len(seen) == len(value)


def item_step(item: Object, keys: Keys) -> str:
    """The step into one item of a keyed list."""
    named = {key: item.get(key, _DEFAULTS.get(key)) for key in keys}
    return "k:" + msgspec.json.encode(named).decode()


def set_step(item: str) -> str:
    """The step that names one item of a set."""
    return "v:" + msgspec.json.encode(item).decode()


def ownable(obj: Object) -> Object:
    """The part of an object that a manager can own."""
    rest = {key: value for key, value in obj.items() if key not in _NOT_OWNED}
    meta = rest.pop("metadata", None)
    if isinstance(meta, dict):
        kept = {key: value for key, value in meta.items() if key not in _NOT_OWNED_META}
        if kept:
            rest["metadata"] = kept
    return rest


def children(schema: Schema, name: str, value: Any) -> dict[str, tuple[str, Any]] | None:
    """The steps below a value, each with the name and value there; None for a leaf."""
    if isinstance(value, dict):
        if not schema.is_map(name, value):
            return None
        return {f"f:{key}": (key, item) for key, item in value.items()}
    if isinstance(value, list):
        if keys := schema.keys_of(name, value):
            return {item_step(item, keys): ("", item) for item in value}
        if schema.is_set(name, value):
            return {set_step(item): ("", item) for item in value}
    return None


def is_leaf(schema: Schema, name: str, value: Any) -> bool:
    """Whether the value is owned as a whole."""
    if isinstance(value, dict):
        return not schema.is_map(name, value)
    if isinstance(value, list):
        return schema.keys_of(name, value) is None and not schema.is_set(name, value)
    return True


def fields_of(schema: Schema, name: str, value: Any) -> Fields:
    """The field set that somebody who wrote this value owns."""
    below = children(schema, name, value)
    if not below:
        return {}
    owned: Fields = {}
    for step, (child, item) in below.items():
        owned[step] = _whole(schema, child, step, item)
    return owned


def difference(
    schema: Schema, name: str, *, old: Any, new: Any, skip: Keys = ()
) -> tuple[Fields, Fields]:
    """What a write set or changed, and what it removed. Shared subtrees cost nothing."""
    changed: Fields = {}
    removed: Fields = {}
    before, after = _plain(schema, name, old), _plain(schema, name, new)
    if before is None or after is None:
        return changed, removed
    mark = "f:" if isinstance(new, dict) else ""
    for key, item in after.items():
        previous = before.get(key, _ABSENT)
        if previous is item or key in skip:
            continue
        child, step = key if mark else "", mark + key
        if previous is _ABSENT:
            changed[step] = _whole(schema, child, step, item)
        elif previous != item:
            _step(schema, child, step, (previous, item), (changed, removed))
    for key, item in before.items():
        if key not in after and key not in skip:
            removed[mark + key] = _whole(schema, key if mark else "", mark + key, item)
    return changed, removed


def _step(
    schema: Schema, child: str, step: str, values: tuple[Any, Any], found: tuple[Fields, Fields]
) -> None:
    """One member that differs: inside it if both sides have an inside, else as a whole."""
    old, new = values
    if is_leaf(schema, child, old) or is_leaf(schema, child, new):
        found[0][step] = fields_of(schema, child, new)
        return
    skip = _NOT_OWNED_META if step == "f:metadata" else ()
    changed, removed = difference(schema, child, old=old, new=new, skip=skip)
    if changed:
        found[0][step] = changed
    if removed:
        found[1][step] = removed


def changes(schema: Schema, *, old: Object, new: Object) -> tuple[Fields, Fields]:
    """The difference of two objects, in what a manager can own."""
    return difference(schema, "", old=old, new=new, skip=_NOT_OWNED)


def _plain(schema: Schema, name: str, value: Any) -> dict[str, Any] | None:
    """A value's members by key (map) or by step (keyed list, set); None for a leaf."""
    if isinstance(value, dict):
        return value if schema.is_map(name, value) else None
    below = children(schema, name, value)
    return None if below is None else {step: item for step, (_, item) in below.items()}


def _whole(schema: Schema, child: str, step: str, item: Any) -> Fields:
    inner = fields_of(schema, child, item)
    return {".": {}, **inner} if step.startswith("k:") else inner


def union(one: Fields, two: Fields) -> Fields:
    """Every field of either; the first itself if the second adds nothing."""
    result: Fields | None = None
    for step, inner in two.items():
        mine = one.get(step)
        both = inner if mine is None else union(mine, inner)
        if mine is None or both is not mine:
            result = dict(one) if result is None else result
            result[step] = both
    return one if result is None else result


def minus(one: Fields, two: Fields) -> Fields:
    """The fields of the first that the second does not have; the first itself if none."""
    result: Fields | None = None
    for step, inner in two.items():
        mine = one.get(step)
        if mine is None:
            continue
        rest = minus(mine, inner) if mine and inner else {}
        if rest is not mine or not rest:
            result = dict(one) if result is None else result
            if rest:
                result[step] = rest
            else:
                del result[step]
    return one if result is None else result


def unmentioned(mine: Fields, asked: Fields) -> Fields:
    """The fields of the first that the second does not name; naming a map names none of its members."""
    rest: Fields = {}
    for step, inner in mine.items():
        if step not in asked:
            rest[step] = inner
        elif inner and (below := unmentioned(inner, asked[step])):
            rest[step] = below
    return rest


def overlap(one: Fields, two: Fields) -> Fields:
    """The fields that both have."""
    shared: Fields = {}
    for step, inner in one.items():
        if step not in two:
            continue
        other = two[step]
        if not inner or not other:
            shared[step] = inner or other
        elif both := overlap(inner, other):
            shared[step] = both
    return shared
