"""Stores the objects of one kind, by key and by index.

Only the reflector writes (`put`, `remove`); all others read, and reads never wait. Objects are
frozen, so what a reader got stays true to the moment at which it was read.

Invariant: after `put` and `remove` every index agrees with the objects, also when an index function
puts one object under several values or under none.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

T = TypeVar("T")


class Store(Generic[T]):
    """Objects by key, with secondary indexes. Iteration order is that of first arrival."""

    def __init__(self, indexes: Mapping[str, Callable[[T], Iterable[str]]] | None = None) -> None:
        self._objects: dict[str, T] = {}
        self._functions = dict(indexes or {})
        self._indexes: dict[str, dict[str, dict[str, T]]] = {name: {} for name in self._functions}
        self._all: tuple[T, ...] | None = ()

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: object) -> bool:
        return key in self._objects

    def get(self, key: str) -> T | None:
        """The object of that key, if it is known."""
        return self._objects.get(key)

    def values(self) -> tuple[T, ...]:
        """All objects."""
        if self._all is None:
            self._all = tuple(self._objects.values())
        return self._all

    def keys(self) -> tuple[str, ...]:
        """All keys."""
        return tuple(self._objects)

    def by_index(self, name: str, value: str) -> tuple[T, ...]:
        """The objects that the index `name` put under `value`; `KeyError` for an undeclared index."""
        return tuple(self._indexes[name].get(value, {}).values())

    def put(self, key: str, obj: T) -> T | None:
        """Store an object and return the one that it replaces."""
        placed = {name: tuple(where(obj)) for name, where in self._functions.items()}
        old = self._objects.get(key)
        if old is not None:
            self._unindex(key, old)
        for name, values in placed.items():
            for value in values:
                self._indexes[name].setdefault(value, {})[key] = obj
        self._objects[key] = obj
        self._all = None
        return old

    def remove(self, key: str) -> T | None:
        """Forget an object and return it."""
        old = self._objects.pop(key, None)
        if old is not None:
            self._unindex(key, old)
            self._all = None
        return old

    def _unindex(self, key: str, old: T) -> None:
        for name, where in self._functions.items():
            index = self._indexes[name]
            for value in where(old):
                bucket = index.get(value)
                if bucket is not None:
                    bucket.pop(key, None)
                    if not bucket:
                        del index[value]
