"""Some of many, and next time the next ones: what cannot be healed today must not keep the rest from being judged."""

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def next_of(
    found: Iterable[T], *, after: str, limit: int, key: Callable[[T], str]
) -> tuple[T, ...]:
    """At most `limit`, in the order of their keys, beginning after the one that was taken last, and round again."""
    ordered = sorted(found, key=key)
    later = [each for each in ordered if key(each) > after]
    return tuple((later + ordered[: len(ordered) - len(later)])[:limit])
