"""Applies strategic merge patches, which merge lists by the keys of their items.

Lists with a merge key merge item by item; other lists are replaced. Directives inside of a patch express what a merge
cannot: `$patch: delete|replace|merge`, `$deleteFromPrimitiveList/<list>`, `$setElementOrder/<list>`, `$retainKeys`.

The order of a merged list is a real server's: items of the patch in the patch's order, the others around them in their
old positions, and an item that only the patch has before those that only the live list has.

Nothing is changed in place; unchanged parts are shared. Items are found by dicts, not by scanning, because both lists
may have a hundred thousand items.
"""

from collections.abc import Hashable
from typing import Any

import msgspec

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
    known = dict.fromkeys(map(_hashed, kept)) if isinstance(kept, list) else {}
    if not isinstance(kept, list) or any(key not in known for key in named):
        raise bad_request("invalid patch format of retainKeys")
    return {key: value for key, value in live.items() if key in known}


def _delete_from(made: Map, name: str, values: Any) -> None:
    if not isinstance(values, list):
        raise bad_request("invalid patch format of primitive list")
    if isinstance(made.get(name), list):
        gone = dict.fromkeys(map(_hashed, values))
        made[name] = [item for item in made[name] if _hashed(item) not in gone]


def _value(kind: Type, before: Any, value: Any) -> Any:
    if isinstance(value, dict):
        return _map(kind, before, value) if isinstance(before, dict) else _plain(value)
    if isinstance(value, list):
        if kind.patch_merge and isinstance(before, list):
            return _list(kind, before, value)
        if isinstance(before, list) and not kind.patch_merge:
            return pruned(value)  # replaced as a whole, including directives
        return _plain_list(kind, value)
    return value


def _plain(patch: Map) -> Map:
    """A value that only the patch has, without directives and nulls."""
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
        unique: dict[Hashable, Any] = {}
        for item in (*live, *patch):
            unique.setdefault(_hashed(item), item)
        return _ordered(kind, list(unique.values()), patch, live)
    live, patch = _without_directives(kind, live, patch)
    merged = list(live)
    places: dict[Hashable, int] = {}
    for index, item in enumerate(live):
        if isinstance(item, dict):
            places.setdefault(_hashed(item.get(kind.merge_key)), index)
    for item in patch:
        place = places.setdefault(_hashed(_key(kind, item)), len(merged))
        if place == len(merged):
            merged.append(_plain(item))
        else:
            merged[place] = _map(kind.element, merged[place], item)
    return _ordered(kind, merged, patch, live)


def _without_directives(
    kind: Type, live: list[Any], patch: list[Any]
) -> tuple[list[Any], list[Any]]:
    """Both lists after the directives of the patch."""
    rest: list[Any] = []
    gone: dict[Hashable, None] = {}
    for item in patch:
        directive = item.get(_PATCH) if isinstance(item, dict) else None
        if directive is None:
            rest.append(item)
        elif directive == "delete":
            gone[_hashed(_key(kind, item))] = None
        elif directive == "replace":
            rest = [other for other in patch if not isinstance(other, dict) or _PATCH not in other]
            return [], rest
        else:
            raise bad_request(f"unknown directive {directive!r} of {_PATCH} in a list")
    if gone:
        live = [other for other in live if _hashed(other.get(kind.merge_key)) not in gone]
    return live, rest


def _key(kind: Type, item: Any) -> Any:
    if not isinstance(item, dict) or kind.merge_key not in item:
        message = f"map: {item} does not contain declared merge key: {kind.merge_key}"
        raise StatusError(500, "", message)
    return item[kind.merge_key]


def _identity(kind: Type, item: Any) -> Hashable:
    named = kind.merge_key and isinstance(item, dict)
    return _hashed(item.get(kind.merge_key) if named else item)


def _hashed(value: Any) -> Hashable:
    """A value as the key of a dict."""
    return msgspec.json.encode(value, order="sorted") if isinstance(value, dict | list) else value


def _ordered(kind: Type, merged: list[Any], order: list[Any], live: list[Any]) -> list[Any]:
    """The merged items: those that `order` names in its order, the others where the server had them."""
    order_ranks = _ranks(kind, order)
    live_ranks = _ranks(kind, live)
    named = [item for item in merged if _identity(kind, item) in order_ranks]
    named.sort(key=lambda item: order_ranks[_identity(kind, item)])
    others = [item for item in merged if _identity(kind, item) not in order_ranks]
    result: list[Any] = []
    i = j = 0
    while i < len(named) and j < len(others):
        left, right = (
            live_ranks.get(_identity(kind, others[j])),
            live_ranks.get(_identity(kind, named[i])),
        )
        if left is not None and right is not None and left < right:
            result.append(others[j])
            j += 1
        else:
            result.append(named[i])
            i += 1
    return [*result, *others[j:], *named[i:]]


def _ranks(kind: Type, items: list[Any]) -> dict[Hashable, int]:
    """The first position of each item."""
    ranks: dict[Hashable, int] = {}
    for index, item in enumerate(items):
        ranks.setdefault(_identity(kind, item), index)
    return ranks


def _reorder(kind: Type, made: Map, live: Map, patch: Map, name: str, order: Any) -> None:
    if not isinstance(order, list):
        raise bad_request("invalid patch format of setElementOrder list")
    items = made.get(name)
    if not isinstance(items, list):
        return
    given = patch.get(name)
    if isinstance(given, list):
        named = _ranks(kind, order)
        extra = [item for item in given if not (isinstance(item, dict) and _PATCH in item)]
        if any(_identity(kind, item) not in named for item in extra):
            raise bad_request("invalid patch format of setElementOrder list")
    before = live.get(name)
    made[name] = _ordered(kind, items, order, before if isinstance(before, list) else [])
