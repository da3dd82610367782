"""Applies JSON merge patches (RFC 7386), without copying unchanged parts.

Stored objects are immutable by convention: `merge` returns a new object that shares every untouched
subtree with the old one, and returns the *same* object when the patch changes nothing. The caller
can therefore detect a no-op by identity, and later comparisons are cheap.
"""

from typing import Any


def merge(target: Any, patch: Any) -> Any:
    """The target after the patch; the target itself if nothing changed."""
    if not isinstance(patch, dict):
        return pruned(patch)
    base: dict[str, Any] = target if isinstance(target, dict) else {}
    result: dict[str, Any] | None = None if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            if key in base:
                result = dict(base) if result is None else result
                result.pop(key, None)
            continue
        before = base.get(key)
        after = merge(before, value) if isinstance(value, dict) else _replaced(before, value)
        if after is not before:
            result = dict(base) if result is None else result
            result[key] = after
    return base if result is None else result


def _replaced(before: Any, value: Any) -> Any:
    if type(before) is type(value) and before == value:
        return before
    return pruned(value) if isinstance(value, list) else value


def pruned(value: Any) -> Any:
    """A value without null members: in an object of Kubernetes, null means absent."""
    if isinstance(value, dict):
        return {key: pruned(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [pruned(item) for item in value]
    return value


def is_plain(patch: Any) -> bool:
    """Whether a strategic merge patch means the same as a merge patch: no lists and no directives in it."""
    if isinstance(patch, dict):
        return all(not key.startswith("$") and is_plain(item) for key, item in patch.items())
    return not isinstance(patch, list)
