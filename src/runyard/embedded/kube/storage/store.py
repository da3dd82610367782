"""Stores objects, versions and history: the whole state of the embedded API, in memory.

A `Record` is one version of one object: the object and its JSON, encoded once. A write never changes a
record; it replaces it with a new one, increments the version counter, and appends an `Event` to the
bounded history of that kind. Watches resume from that history, and the later pages of a list are
rolled back by it to the version of the first page.

Invariants:
- Versions strictly increase over all kinds; an object's version is the number of its last write.
- Every stored object has a uid, a version and a name, and its JSON equals the object.
- A commit is one synchronous step: record, history, watchers, then `on_commit`, in that order. With an
  `outbox` the watchers wait until they are published (`persistence`).
- An event's JSON is encoded once for all watchers that get the same type of event.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from runyard.embedded.kube.catalogue import Catalogue
from runyard.embedded.kube.resources import BUILT_IN, Object, Resource
from runyard.embedded.kube.selectors import Selector, field_value
from runyard.embedded.kube.status import expired, version_too_large
from runyard.embedded.kube.storage.watch import Watcher

Change = Literal["ADDED", "MODIFIED", "DELETED"]

_NODE = ("spec", "nodeName")
_encode = msgspec.json.Encoder().encode


# How the JSON of a built-in object begins; items of a list leave this out.
_PREFIXES = {
    (item.kind, item.api_version): _encode({"kind": item.kind, "apiVersion": item.api_version})[:-1]
    + b","
    for item in BUILT_IN
}


class Record(msgspec.Struct, frozen=True, eq=False):
    """One version of one object."""

    obj: Object
    version: int
    lead: bytes  # the beginning of its JSON, which an item of a list leaves out
    tail: bytes  # the rest
    namespace: str  # empty for cluster-wide kinds
    name: str
    uid: str  # no later object of the same name has the same uid

    @property
    def body(self) -> bytes:
        """The object as JSON."""
        return self.lead + self.tail

    @property
    def meta(self) -> dict[str, Any]:
        """The object's metadata."""
        meta: dict[str, Any] = self.obj["metadata"]
        return meta


def versioned_record(obj: Object, version: int) -> Record:
    """A record of an object under that version."""
    stamped = versioned(obj, version)
    return record_of(stamped, version, _encode(stamped))


def record_of(obj: Object, version: int, body: bytes) -> Record:
    """Returns the record of an object with its encoded JSON."""
    lead = _PREFIXES.get((obj["kind"], obj["apiVersion"]), b"{")
    if not body.startswith(lead):
        lead = b"{"
    meta = obj["metadata"]
    namespace = meta.get("namespace", "")
    return Record(obj, version, lead, body[len(lead) :], namespace, meta["name"], meta["uid"])


class Event:
    """One write: the record before, the record after, and the encoded lines for watchers."""

    __slots__ = ("_lines", "last", "new", "old", "resource", "version")

    def __init__(
        self,
        resource: Resource,
        version: int,
        *,
        old: Record | None,
        new: Record | None,
        last: Record | None = None,
    ) -> None:
        self.resource = resource
        self.version = version
        self.old = old
        self.new = new
        self.last = last  # of a removal: the final state, under the version of the removal
        self._lines: dict[Change, bytes] = {}

    @property
    def record(self) -> Record:
        """The newest record of this event."""
        record = self.new or self.old
        assert record is not None
        return record

    def change_for(self, selector: Selector) -> Change | None:
        """The type of this event for a watcher with that selector: an object that stops matching is deleted."""
        before = self.old is not None and selector.matches(self.old.obj)
        after = self.new is not None and selector.matches(self.new.obj)
        if after:
            return "MODIFIED" if before else "ADDED"
        return "DELETED" if before else None

    def line(self, change: Change) -> bytes:
        """The line of a watch stream, encoded at most once."""
        line = self._lines.get(change)
        if line is None:
            line = self._lines[change] = watch_line(change, self._body(change))
        return line

    def _body(self, change: Change) -> bytes:
        if change != "DELETED":
            return self.record.body
        return self.last.body if self.last is not None else _encode(self.shown(change))

    def shown(self, change: Change) -> Object:
        """The object that a watcher gets for that change."""
        if change != "DELETED":
            return self.record.obj
        if self.last is not None:
            return self.last.obj
        assert self.old is not None
        return versioned(self.old.obj, self.version)


def _dry_run_record(table: "Table", obj: Object) -> Record:
    """Returns the record that a write would create; its version is the existing one, or the one in a new body."""
    meta = dict(obj["metadata"])
    old = table.get(meta.get("namespace", ""), meta["name"])
    if old is not None:
        meta["resourceVersion"] = str(old.version)
    shown = {**obj, "metadata": meta}
    return record_of(shown, 0 if old is None else old.version, _encode(shown))


def watch_line(change: str, body: bytes) -> bytes:
    """One line of a watch stream."""
    return b'{"type":"%s","object":%s}\n' % (change.encode(), body)


def versioned(obj: Object, version: int) -> Object:
    """The same object under another version, sharing everything else."""
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}}


class Table:
    """All objects of one kind, their recent history and their watchers."""

    def __init__(self, resource: Resource, *, history: int) -> None:
        self.resource = resource
        self.spaces: dict[str, dict[str, Record]] = {}
        self.history: deque[Event] = deque()
        self.floor = 0  # versions below this one can no longer be resumed from
        self._limit = history
        self._order: dict[str, list[str]] = {}  # namespace → its names in order, until they change
        self._watchers: dict[int, Watcher] = {}
        self._pinned: dict[tuple[str, str], dict[int, Watcher]] = {}

    def get(self, namespace: str, name: str) -> Record | None:
        """The current record of that key."""
        space = self.spaces.get(namespace)
        return space.get(name) if space is not None else None

    def put(self, record: Record) -> None:
        """Stores a record under its key."""
        space = self.spaces.setdefault(record.namespace, {})
        if record.name not in space:
            self._order.pop(record.namespace, None)
        space[record.name] = record

    def drop(self, record: Record) -> None:
        """Removes a key."""
        space = self.spaces[record.namespace]
        del space[record.name]
        self._order.pop(record.namespace, None)
        if not space:
            del self.spaces[record.namespace]

    def records(self, namespace: str = "") -> list[Record]:
        """All records, or those of one namespace, ordered by namespace and name."""
        if namespace or not self.resource.namespaced:
            return self._in_order(namespace)
        return [item for place in sorted(self.spaces) for item in self._in_order(place)]

    def _in_order(self, namespace: str) -> list[Record]:
        space = self.spaces.get(namespace)
        if space is None:
            return []
        order = self._order.get(namespace)
        if order is None:
            order = self._order[namespace] = sorted(space)
        return [space[name] for name in order]

    def records_at(self, version: int, namespace: str = "") -> list[Record]:
        """The records as they were at that version; 410 if history does not reach back."""
        if version < self.floor:
            raise expired(version, self.floor)
        undone: dict[tuple[str, str], Record | None] = {}
        for event in reversed(self.history):
            if event.version <= version:
                break
            key = (event.record.namespace, event.record.name)
            if not namespace or key[0] == namespace:
                undone[key] = event.old
        records = self.records(namespace)
        if not undone:
            return records  # the usual case: pages are requested in quick succession
        state: dict[tuple[str, str], Record | None] = {
            (item.namespace, item.name): item for item in records
        }
        state |= undone
        return [item for key in sorted(state) if (item := state[key]) is not None]

    def since(self, version: int) -> list[Event]:
        """Every event after that version, in order."""
        found: list[Event] = []
        for event in reversed(self.history):
            if event.version <= version:
                break
            found.append(event)
        found.reverse()
        return found

    def append_history(self, event: Event) -> None:
        """Appends to history."""
        self.history.append(event)
        if len(self.history) > self._limit:
            self.floor = self.history.popleft().version

    def notify(self, event: Event) -> None:
        """Sends the event to the watchers that it concerns."""
        for group in self._groups(event):
            for watcher in tuple(group.values()):
                watcher.offer(event)

    def _groups(self, event: Event) -> list[dict[int, Watcher]]:
        groups = [self._watchers] if self._watchers else []
        if self._pinned:
            pins = {("metadata.name", event.record.name): None}
            for record in (event.old, event.new):
                if record is not None:
                    pins["spec.nodeName", field_value(record.obj, _NODE)] = None
            groups += [self._pinned[pin] for pin in pins if pin in self._pinned]
        return groups

    def subscribe(self, watcher: Watcher) -> None:
        """Adds a watcher, which gets everything from now on."""
        pin = watcher.selector.pin
        group = self._watchers if pin is None else self._pinned.setdefault(pin, {})
        group[id(watcher)] = watcher

    def unsubscribe(self, watcher: Watcher) -> None:
        """Removes a watcher; a repeated call has no effect."""
        pin = watcher.selector.pin
        if pin is None:
            self._watchers.pop(id(watcher), None)
        elif (group := self._pinned.get(pin)) is not None:
            group.pop(id(watcher), None)
            if not group:
                del self._pinned[pin]

    def watchers(self) -> tuple[Watcher, ...]:
        """All watchers of this kind."""
        pinned = [item for group in self._pinned.values() for item in group.values()]
        return (*self._watchers.values(), *pinned)


class Store:
    """Every table, the version counter, and the commit."""

    def __init__(self, *, history: int, on_commit: Callable[[Event], None]) -> None:
        self.version = 0
        self.outbox: list[Event] | None = None  # events that are not in the journal yet
        self.unpublished: deque[Event] = deque()  # in the journal, and not sent to the watchers yet
        self.catalogue = Catalogue()
        self.tables: dict[str, Table] = {}
        self.dry_run = False  # records are created, and none is stored
        self._history = history
        self._on_commit = on_commit
        for item in self.catalogue.stored:
            self.open_table(item)

    @property
    def published(self) -> int:
        """The version up to which all events were sent to the watchers."""
        waiting = self.unpublished or self.outbox
        return waiting[0].version - 1 if waiting else self.version

    def open_table(self, resource: Resource) -> None:
        """Adds a table for a kind; watches of an earlier one of the same name must list again."""
        if (table := self.tables.get(resource.key)) is not None:
            table.resource = resource
            return
        table = self.tables[resource.key] = Table(resource, history=self._history)
        table.floor = self.version

    def close_table(self, key: str) -> None:
        """Removes the table of a kind, and ends its watches."""
        table = self.tables.pop(key, None)
        for watcher in table.watchers() if table is not None else ():
            watcher.close()

    def table(self, resource: Resource) -> Table:
        """The table of a kind."""
        return self.tables[resource.key]

    def get(self, resource: Resource, namespace: str, name: str) -> Record | None:
        """The current record of that key."""
        return self.tables[resource.key].get(namespace, name)

    def put(self, resource: Resource, obj: Object) -> Record:
        """Commits an object: creates it or replaces the one of the same name."""
        table = self.tables[resource.key]
        if self.dry_run:
            return _dry_run_record(table, obj)
        version = self.version + 1
        record = versioned_record(obj, version)
        old = table.get(record.namespace, record.name)
        self.version = version
        table.put(record)
        self._committed(table, Event(resource, version, old=old, new=record))
        return record

    def remove(self, resource: Resource, record: Record) -> Record:
        """Commits a removal; returns the last record, under the version of the removal."""
        table = self.tables[resource.key]
        if self.dry_run:
            return record
        final = versioned_record(record.obj, self.version + 1)
        self.version = final.version
        table.drop(record)
        self._committed(table, Event(resource, self.version, old=record, new=None, last=final))
        return final

    def _committed(self, table: Table, event: Event) -> None:
        table.append_history(event)
        if self.outbox is None:
            table.notify(event)
        else:
            self.outbox.append(event)
        self._on_commit(event)

    def check_version(self, resource: Resource, version: int) -> None:
        """Raises for a version that is older than the history, or that does not exist yet."""
        floor = self.tables[resource.key].floor
        if version < floor:
            raise expired(version, floor)
        if version > self.version:
            raise version_too_large(version, self.version)

    def compact(self) -> None:
        """Drops all history: a watch from an earlier version must list again."""
        for table in self.tables.values():
            table.history.clear()
            table.floor = self.version
