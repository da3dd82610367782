"""Selects a limited number of items in rotation, so that items that cannot be recovered now do not block the rest."""

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def next_in_rotation(
    found: Iterable[T], *, after: str, limit: int, key: Callable[[T], str]
) -> tuple[T, ...]:
    """Return at most `limit` items in the order of their keys, beginning after the key `after` and wrapping around."""
    ordered = sorted(found, key=key)
    later = [each for each in ordered if key(each) > after]
    return tuple((later + ordered[: len(ordered) - len(later)])[:limit])
