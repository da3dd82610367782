"""Merges an applied value into a live one, and removes what is no longer applied.

Both follow the types: maps merge member by member, lists by the keys of their items, everything else is one value.
Unchanged parts are shared with the live value, and the same object is returned when nothing changes.
"""

from collections import deque
from typing import Any

from runyard.embedded.kube.patches.fields import Fields, has, items_of
from runyard.embedded.kube.schema.model import Type

_NOTHING = object()


def merge(kind: Type, live: Any, body: Any) -> Any:
    """The live value with the applied one merged into it."""
    if kind.atomic:
        return live if _same(live, body) else body
    if kind.is_map and isinstance(live, dict) and isinstance(body, dict):
        return _merged_map(kind, live, body)
    if kind.is_list and isinstance(live, list) and isinstance(body, list):
        result = _merged_list(kind, live, body)
        same = len(result) == len(live) and all(a is b for a, b in zip(result, live, strict=True))
        return live if same else result
    return live if _same(live, body) else body


def _same(one: Any, two: Any) -> bool:
    return type(one) is type(two) and bool(one == two)


def _merged_map(kind: Type, live: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] | None = None
    for key, item in body.items():
        before = live.get(key, _NOTHING)
        after = item if before is _NOTHING else merge(kind.member(key), before, item)
        if after is not before:
            result = dict(live) if result is None else result
            result[key] = after
    return live if result is None else result


def _merged_list(kind: Type, live: list[Any], body: list[Any]) -> list[Any]:
    """Items of both: those of the body in its order, those of the live list where they were."""
    ours, theirs = items_of(kind, live), items_of(kind, body)
    shared = deque(step for step in theirs if step in ours)
    result: list[Any] = []
    left, right = list(ours), list(theirs)
    placed: dict[str, None] = {}
    i = j = 0

    def place(step: str) -> None:
        placed[step] = None
        mine = ours.get(step, _NOTHING)
        result.append(theirs[step] if mine is _NOTHING else merge(kind.element, mine, theirs[step]))
        if shared and shared[0] == step:
            shared.popleft()

    while i < len(left) or j < len(right):
        if i < len(left) and j < len(right):
            if left[i] == right[j]:
                place(left[i])
                i, j = i + 1, j + 1
                continue
            if left[i] in theirs and shared and shared[0] != left[i]:
                i += 1  # it comes later, where the body has it
                continue
        if i < len(left):
            if left[i] not in theirs:
                result.append(ours[left[i]])
                i += 1
                continue
            if left[i] in placed:
                i += 1
        if j < len(right):
            if right[j] not in placed:
                place(right[j])
            j += 1
    return result


def without(kind: Type, value: Any, last: Fields, keep: Fields) -> Any:
    """The value without what was applied last and has no owner any more.

    A declared field is removed with the last value inside it; so is an emptied map or list.
    """
    if kind.is_map and isinstance(value, dict) and not kind.atomic:
        kept: dict[str, Any] = {}
        for key, item in value.items():
            declared = key in kind.fields
            after = _remaining(kind.member(key), item, f"f:{key}", (last, keep), declared=declared)
            if after is not _NOTHING:
                kept[key] = after
        return kept
    if kind.is_list and isinstance(value, list) and not kind.atomic:
        steps = items_of(kind, value)
        found = [_remaining(kind.element, item, step, (last, keep)) for step, item in steps.items()]
        return [item for item in found if item is not _NOTHING]
    return value


def _remaining(
    kind: Type, item: Any, step: str, sets: tuple[Fields, Fields], *, declared: bool = False
) -> Any:
    mine, theirs = sets[0].get(step), sets[1].get(step)
    if mine is None:
        return item
    if (declared or has(mine)) and not (theirs is not None and (declared or has(theirs))):
        return _NOTHING
    if not mine:
        return item
    after = without(kind, item, mine, theirs or {})
    return _NOTHING if item and not after and not has(theirs) else after
