"""A store that follows lists and events, whatever order they arrive in.

This is the part of a reflector that decides; it does no I/O. A list is the truth of its moment: what
differs from the store changed, what is missing from it was deleted, also if no event ever said so. An
event is one step, and the network may repeat it, delay it or lose it, so a step that the store has
already taken, or that a later step of the same object has overtaken, is ignored. What was lost is
healed by the next list.

Invariants:
- After `replace` the store holds exactly the listed objects, and every difference was announced once.
- A deleted object does not come back through a delayed event of its former life: the version of the
  deletion is remembered until the next list.
- An object that does not fit its type changes nothing: the last readable version stays, and
  `unreadable` says why. An object that nobody can read is not an object that is gone.
- A listener that fails is logged, and neither stops the mirror nor hides the change from the store.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

import msgspec

from runyard.kube.frames import Event
from runyard.kube.objects import Bare, HasMeta, Reader, key
from runyard.kube.store import Store
from runyard.kube.versions import is_stale
from runyard.telemetry.log import Logger

M = TypeVar("M", bound=HasMeta)
Listener = Callable[[str, M | None, M | None], None]
_BARE: Reader[Bare] = Reader(Bare)


class Mirror(Generic[M]):
    """The store of one kind, and how lists and events change it."""

    def __init__(
        self,
        reader: Reader[M],
        *,
        log: Logger,
        on_change: Listener[M] | None,
        indexes: Mapping[str, Callable[[M], Iterable[str]]],
    ) -> None:
        self.store: Store[M] = Store(indexes)
        self.unreadable: dict[str, str] = {}
        self._reader = reader
        self._log = log
        self._on_change = on_change
        self._deleted: dict[str, str] = {}

    def replace(self, items: Iterable[msgspec.Raw]) -> None:
        """Take over a complete list."""
        self._deleted.clear()
        self.unreadable.clear()
        seen: dict[str, None] = {}
        for raw in items:
            where, obj = self._read(raw)
            seen[where] = None
            if obj is not None:
                self._take(where, obj)
        known = self.store.keys()
        for where in known:
            if where not in seen:
                self._drop(where)

    def step(self, event: Event) -> str:
        """Take one ADDED, MODIFIED or DELETED; returns the version of its object."""
        if event.type == "DELETED":
            meta = _BARE.read(event.object).metadata
            where = f"{meta.namespace}/{meta.name}"
            self._delete(where, meta.resource_version)
            return meta.resource_version
        where, obj = self._read(event.object)
        if obj is None:
            return _BARE.read(event.object).metadata.resource_version
        version = obj.metadata.resource_version
        if not is_stale(version, self._deleted.get(where, "")):
            self._update(where, obj)
        return version

    def _read(self, raw: msgspec.Raw) -> tuple[str, M | None]:
        try:
            obj = self._reader.read(raw)
        except msgspec.ValidationError as error:
            where = key(_BARE.read(raw))
            self.unreadable[where] = str(error)
            self._log.warning("object does not fit its type", key=where, error=str(error))
            return where, None
        where = key(obj)
        if self.unreadable:
            self.unreadable.pop(where, None)
        return where, obj

    def _update(self, where: str, obj: M) -> None:
        old = self.store.get(where)
        if old is None or not is_stale(
            obj.metadata.resource_version, old.metadata.resource_version
        ):
            self._deleted.pop(where, None)
            self.store.put(where, obj)
            self._announce(where, old, obj)

    def _take(self, where: str, obj: M) -> None:
        # A list is believed also if its version is lower: a server restored from a backup goes back.
        old = self.store.get(where)
        if old is None or old.metadata.resource_version != obj.metadata.resource_version:
            self.store.put(where, obj)
            self._announce(where, old, obj)

    def _delete(self, where: str, version: str) -> None:
        old = self.store.get(where)
        if old is not None:
            known = old.metadata.resource_version
            if version != known and is_stale(version, known):
                return  # of a former life: the name has been created again since
        if not is_stale(version, self._deleted.get(where, "")):
            self._deleted[where] = version
        self.unreadable.pop(where, None)
        self._drop(where)

    def _drop(self, where: str) -> None:
        old = self.store.remove(where)
        if old is not None:
            self._announce(where, old, None)

    def _announce(self, where: str, old: M | None, new: M | None) -> None:
        if self._on_change is None:
            return
        try:
            self._on_change(where, old, new)
        except Exception:  # noqa: BLE001 a listener's failure must not cost the other changes
            self._log.exception("listener failed", key=where)
