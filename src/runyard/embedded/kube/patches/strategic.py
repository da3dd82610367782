"""Strategic merge patch: a merge patch that knows which lists have keys.

Lists whose type says so merge item by item; other lists are replaced. Directives inside of a patch say what a merge
cannot: `$patch: delete|replace|merge`, `$deleteFromPrimitiveList/<list>`, `$setElementOrder/<list>`, `$retainKeys`.

The order of a merged list is the server's: items of the patch in the patch's order, the others around them where they
stood, and an item that only the patch has before those that only the server has.

Nothing is changed in place; what a patch leaves alone is shared.
"""

from typing import Any

from runyard.embedded.kube.patches.patch import pruned
from runyard.embedded.kube.schema.model import ANY, Type
from runyard.embedded.kube.status import StatusError, bad_request

_PATCH, _RETAIN = "$patch", "$retainKeys"
_DELETE_FROM, _ORDER = "$deleteFromPrimitiveList/", "$setElementOrder/"
Map = dict[str, Any]


def apply(kind: Type, live: Map, patch: Map) -> Map:
    """The object after the patch; the object itself if nothing changed."""
    made = _map(kind, live, patch)
    return live if made == live else made


def _map(kind: Type, live: Map, patch: Map) -> Map:
    directive = patch.get(_PATCH)
    if _PATCH in patch:
        rest = {key: value for key, value in patch.items() if key != _PATCH}
        if directive == "replace":
            return _plain(rest)
        if directive == "delete":
            return {}
        if directive != "merge":
            raise bad_request(f"unknown directive {directive!r} of {_PATCH}")
        patch = rest
    made = _retained(live, patch)
    orders: Map = {}
    for key, value in patch.items():
        if key == _RETAIN:
            continue
        if key.startswith(_DELETE_FROM):
            name = key[len(_DELETE_FROM) :]
            _delete_from(made, name, value)
        elif key.startswith(_ORDER):
            orders[key[len(_ORDER) :]] = value
        elif value is None:
            made.pop(key, None)
        else:
            before = made.get(key)
            made[key] = _value(kind.member(key) if kind.is_map else ANY, before, value)
    for name, order in orders.items():
        _reorder(kind.member(name), made, live, patch, name, order)
    return made


def _retained(live: Map, patch: Map) -> Map:
    if _RETAIN not in patch:
        return dict(live)
    kept = patch[_RETAIN]
    named = [key for key, value in patch.items() if not key.startswith("$") and value is not None]
    if not isinstance(kept, list) or any(key not in kept for key in named):
        raise bad_request("invalid patch format of retainKeys")
    return {key: value for key, value in live.items() if key in kept}


def _delete_from(made: Map, name: str, values: Any) -> None:
    if not isinstance(values, list):
        raise bad_request("invalid patch format of primitive list")
    if isinstance(made.get(name), list):
        made[name] = [item for item in made[name] if item not in values]


def _value(kind: Type, before: Any, value: Any) -> Any:
    if isinstance(value, dict):
        return _map(kind, before, value) if isinstance(before, dict) else _plain(value)
    if isinstance(value, list):
        if kind.patch_merge and isinstance(before, list):
            return _list(kind, before, value)
        if isinstance(before, list) and not kind.patch_merge:
            return pruned(value)  # replaced as a whole, directives and all
        return _plain_list(kind, value)
    return value


def _plain(patch: Map) -> Map:
    """A value that only the patch has: as it is, without directives and nulls."""
    if patch.get(_PATCH) == "delete":
        return {}
    kept = {key: item for key, item in patch.items() if not key.startswith("$")}
    made: Map = pruned({key: _plain_any(item) for key, item in kept.items()})
    return made


def _plain_any(value: Any) -> Any:
    if isinstance(value, dict):
        return _plain(value)
    return [_plain_any(item) for item in value] if isinstance(value, list) else value


def _plain_list(kind: Type, patch: list[Any]) -> list[Any]:
    kept = [item for item in patch if not (isinstance(item, dict) and _PATCH in item)]
    if kind.patch_merge and not kind.merge_key:
        kept = list(dict.fromkeys(kept)) if _hashable(kept) else kept
    return [_plain_any(item) for item in kept]


def _hashable(items: list[Any]) -> bool:
    return all(isinstance(item, str | int | float | bool) for item in items)


# ---- lists that merge


def _list(kind: Type, live: list[Any], patch: list[Any]) -> list[Any]:
    if not kind.merge_key:
        merged = [*live, *(item for item in patch if item not in live)]
        return _ordered(kind, list(dict.fromkeys(merged)), patch, live)
    live, patch = _special(kind, live, patch)
    merged = list(live)
    for item in patch:
        place = _place(kind, merged, _key(kind, item))
        if place is None:
            merged.append(_plain(item))
        else:
            merged[place] = _map(kind.element, merged[place], item)
    return _ordered(kind, merged, patch, live)


def _special(kind: Type, live: list[Any], patch: list[Any]) -> tuple[list[Any], list[Any]]:
    """Both lists after the items of the patch that are directives."""
    rest: list[Any] = []
    for item in patch:
        directive = item.get(_PATCH) if isinstance(item, dict) else None
        if directive is None:
            rest.append(item)
        elif directive == "delete":
            gone = _key(kind, item)
            live = [other for other in live if other.get(kind.merge_key) != gone]
        elif directive == "replace":
            return [], [other for other in patch if _PATCH not in other]
        else:
            raise bad_request(f"unknown directive {directive!r} of {_PATCH} in a list")
    return live, rest


def _key(kind: Type, item: Any) -> Any:
    if not isinstance(item, dict) or kind.merge_key not in item:
        told = f"map: {item} does not contain declared merge key: {kind.merge_key}"
        raise StatusError(500, "", told)
    return item[kind.merge_key]


def _place(kind: Type, items: list[Any], key: Any) -> int | None:
    for index, item in enumerate(items):
        if isinstance(item, dict) and item.get(kind.merge_key) == key:
            return index
    return None


def _identity(kind: Type, item: Any) -> Any:
    return item.get(kind.merge_key) if kind.merge_key and isinstance(item, dict) else item


def _ordered(kind: Type, merged: list[Any], order: list[Any], live: list[Any]) -> list[Any]:
    """The merged items: those that `order` names in its order, the others where the server had them."""
    wanted = [_identity(kind, item) for item in order]
    stood = [_identity(kind, item) for item in live]
    named = [item for item in merged if _identity(kind, item) in wanted]
    named.sort(key=lambda item: wanted.index(_identity(kind, item)))
    others = [item for item in merged if _identity(kind, item) not in wanted]
    result: list[Any] = []
    while named and others:
        left, right = _identity(kind, others[0]), _identity(kind, named[0])
        before = left in stood and right in stood and stood.index(left) < stood.index(right)
        result.append((others if before else named).pop(0))
    return [*result, *others, *named]


def _reorder(kind: Type, made: Map, live: Map, patch: Map, name: str, order: Any) -> None:
    if not isinstance(order, list):
        raise bad_request("invalid patch format of setElementOrder list")
    items = made.get(name)
    if not isinstance(items, list):
        return
    told = patch.get(name)
    if isinstance(told, list):
        named = [_identity(kind, item) for item in order]
        extra = [item for item in told if not (isinstance(item, dict) and _PATCH in item)]
        if any(_identity(kind, item) not in named for item in extra):
            raise bad_request("invalid patch format of setElementOrder list")
    before = live.get(name)
    made[name] = _ordered(kind, items, order, before if isinstance(before, list) else [])
