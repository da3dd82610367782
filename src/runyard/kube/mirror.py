"""Applies lists and watch events to a store, in whatever order they arrive.

This is the part of a reflector that decides; it does no I/O. A list is the truth of its moment: what
differs from the store changed, what is missing from it was deleted, even without an event. An
event is one step, and the network may repeat it, delay it or lose it, so a step that the store has
already taken, or that a later step of the same object has overtaken, is ignored. A lost
event is corrected by the next list.

Invariants:
- After `replace` the store holds exactly the listed objects, and every difference was announced once. A list
  that cannot be read as a whole changes nothing.
- No deletion is missed: every object that was announced is announced as deleted, with its last known state, also if
  its event was lost and the name is in use again. An object with another uid is another object.
- A delayed event does not restore a deleted object: the version of the
  deletion is remembered, for the last `MOST_REMEMBERED` deletions, until the next list.
- An object that does not fit its type changes nothing: the last readable version stays, and
  `unreadable` has the reason. An object that cannot be read is not an object that is gone.
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
MOST_REMEMBERED = 10_000  # deletions: lists may fail for hours, and events do not come that late
_BARE: Reader[Bare] = Reader(Bare)


class _Tag(msgspec.Struct, frozen=True, rename="camel", gc=False):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Tagged(msgspec.Struct, frozen=True, gc=False):
    metadata: _Tag


_TAGGED: Reader[_Tagged] = Reader(_Tagged)


class Entry(msgspec.Struct, Generic[M], frozen=True):
    """One object of a list: `obj` is None if it does not fit its type, and `problem` is the reason."""

    key: str
    obj: M | None
    problem: str = ""


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
        self.adopt([self.entry(raw) for raw in items])

    def entry(self, raw: msgspec.Raw) -> Entry[M]:
        """Read one object of a list; one that is known already is not decoded again, nor kept twice."""
        if len(self.store):
            tag = _TAGGED.read(raw).metadata
            where = f"{tag.namespace}/{tag.name}"
            known = self.store.get(where)
            if known is not None:
                meta = known.metadata
                if tag.resource_version == meta.resource_version and tag.uid == meta.uid:
                    return Entry(where, known)
        try:
            obj = self._reader.read(raw)
        except msgspec.ValidationError as error:
            return Entry(key(_BARE.read(raw)), None, str(error))
        return Entry(key(obj), obj)

    def adopt(self, entries: Iterable[Entry[M]]) -> None:
        """Take over a complete list that was read by `entry`."""
        self._deleted.clear()
        self.unreadable.clear()
        seen: dict[str, None] = {}
        for entry in entries:
            seen[entry.key] = None
            if entry.obj is None:
                self._record_unreadable(entry.key, entry.problem)
            else:
                self._take(entry.key, entry.obj)
        known = self.store.keys()
        for where in known:
            if where not in seen:
                self._drop(where)

    def step(self, event: Event) -> str:
        """Take one ADDED, MODIFIED or DELETED; returns the version of its object."""
        if event.type == "DELETED":
            tag = _TAGGED.read(event.object).metadata
            self._delete(f"{tag.namespace}/{tag.name}", tag.resource_version)
            return tag.resource_version
        try:
            obj = self._reader.read(event.object)
        except msgspec.ValidationError as error:
            bare = _BARE.read(event.object)
            self._record_unreadable(key(bare), str(error))
            return bare.metadata.resource_version
        where = key(obj)
        version = obj.metadata.resource_version
        if self.unreadable:
            self.unreadable.pop(where, None)
        if not (self._deleted and is_stale(version, self._deleted.get(where, ""))):
            self._update(where, obj)
        return version

    def _record_unreadable(self, where: str, problem: str) -> None:
        self.unreadable[where] = problem
        self._log.warning("object does not fit its type", key=where, error=problem)

    def _update(self, where: str, obj: M) -> None:
        old = self.store.get(where)
        if old is None or not is_stale(
            obj.metadata.resource_version, old.metadata.resource_version
        ):
            self._deleted.pop(where, None)
            self._place(where, old, obj)

    def _take(self, where: str, obj: M) -> None:
        # A list is applied also if its version is lower: a server restored from a backup goes back.
        old = self.store.get(where)
        if old is not obj and (old is None or not _same(old, obj)):
            self._place(where, old, obj)

    def _place(self, where: str, old: M | None, obj: M) -> None:
        if old is not None and old.metadata.uid != obj.metadata.uid:
            self._drop(where)  # its deletion was missed before its name was used again
            old = None
        self.store.put(where, obj)
        self._announce(where, old, obj)

    def _delete(self, where: str, version: str) -> None:
        old = self.store.get(where)
        if old is not None:
            known = old.metadata.resource_version
            if version != known and is_stale(version, known):
                return  # of an earlier object: the name has been created again since
        if not is_stale(version, self._deleted.get(where, "")):
            self._deleted.pop(where, None)  # moved to the end: the oldest is dropped first
            self._deleted[where] = version
            if len(self._deleted) > MOST_REMEMBERED:
                del self._deleted[next(iter(self._deleted))]
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
        except Exception:  # noqa: BLE001 a listener's failure must not stop the other changes
            self._log.exception("listener failed", key=where)


def _same(one: HasMeta, other: HasMeta) -> bool:
    """Whether both are the same version of the same object."""
    first, second = one.metadata, other.metadata
    return first.resource_version == second.resource_version and first.uid == second.uid
