"""Garbage: dependents whose owners are gone, contents of namespaces that are going, old Events.

Owners are found through an index that is kept up with every commit, so that the removal of one object
looks at its dependents only. An owner of a kind that this server does not serve counts as alive.
"""

from collections import deque

from runyard.embedded.kube.registry import Registry
from runyard.embedded.kube.resources import (
    BY_KIND,
    EVENTS,
    NAMESPACES,
    SERVICE_ACCOUNTS,
    STORED,
    Object,
    Resource,
)
from runyard.embedded.kube.store import Event, Record
from runyard.wire.instants import from_rfc3339

Key = tuple[str, str, str]  # plural, namespace, name


class Collector:
    """Deletes what nobody holds any more."""

    def __init__(self, registry: Registry, *, event_ttl: float) -> None:
        self._registry = registry
        self._store = registry.store
        self._event_ttl = event_ttl
        self._dependents: dict[str, dict[Key, Resource]] = {}
        self._events: deque[tuple[float, Record]] = deque()

    def note(self, event: Event) -> None:
        """React to one commit."""
        old, new = event.old, event.new
        key = (event.resource.plural, event.record.namespace, event.record.name)
        before = _owner_uids(old.obj) if old else ()
        after = _owner_uids(new.obj) if new else ()
        if before != after:
            self._index(key, event.resource, before, after)
            if new is not None:
                self._check(event.resource, new)
        if event.resource is NAMESPACES:
            self._namespace(event)
        elif event.resource is EVENTS and new is not None:
            self._events.append((self._registry.clock.now(), new))
        if new is None:
            self._removed(event)

    def adopt(self) -> None:
        """Take over what the store already holds, writing nothing."""
        for resource in STORED:
            for record in self._store.table(resource).records():
                key = (resource.plural, record.namespace, record.name)
                self._index(key, resource, (), _owner_uids(record.obj))
        now = self._registry.clock.now()
        events = [(_moment(item, now), item) for item in self._store.table(EVENTS).records()]
        self._events.extend(sorted(events, key=lambda pair: pair[0]))

    def tick(self) -> None:
        """Let Events that nobody has touched for their lifetime go."""
        oldest = self._registry.clock.now() - self._event_ttl
        while self._events and self._events[0][0] <= oldest:
            _, record = self._events.popleft()
            current = self._store.get(EVENTS, record.namespace, record.name)
            if current is record:
                self._registry.delete(EVENTS, current, grace=0)

    def _index(
        self, key: Key, resource: Resource, before: tuple[str, ...], after: tuple[str, ...]
    ) -> None:
        for uid in before:
            held = self._dependents.get(uid, {})
            held.pop(key, None)
            if not held:
                self._dependents.pop(uid, None)
        for uid in after:
            self._dependents.setdefault(uid, {})[key] = resource

    def _removed(self, event: Event) -> None:
        for (_, namespace, name), resource in tuple(
            self._dependents.get(event.record.uid, {}).items()
        ):
            record = self._store.get(resource, namespace, name)
            if record is not None:
                self._check(resource, record)
        if event.resource.namespaced:
            place = self._store.get(NAMESPACES, "", event.record.namespace)
            if place is not None and "deletionTimestamp" in place.meta:
                self._finish_namespace(place)

    def _check(self, resource: Resource, record: Record) -> None:
        """Delete a dependent all of whose owners are gone."""
        current = self._store.get(resource, record.namespace, record.name)
        if current is None or current.uid != record.uid or "deletionTimestamp" in current.meta:
            return
        owners = current.meta.get("ownerReferences", [])
        if owners and not any(self._alive(owner, current.namespace) for owner in owners):
            self._registry.delete(resource, current)

    def _alive(self, owner: Object, namespace: str) -> bool:
        kind = BY_KIND.get((owner["apiVersion"], owner["kind"]))
        if kind is None:
            return True
        record = self._store.get(kind, namespace if kind.namespaced else "", owner["name"])
        return record is not None and record.uid == owner["uid"]

    def _namespace(self, event: Event) -> None:
        place = event.new
        if place is None:
            return
        if event.old is None:
            current = self._store.get(NAMESPACES, "", place.name)
            if current is None or "deletionTimestamp" in current.meta:
                return  # its owner is gone, and so is it
            if self._store.get(SERVICE_ACCOUNTS, place.name, "default") is not None:
                return
            account = {"metadata": {"name": "default"}}
            self._registry.create(SERVICE_ACCOUNTS, account, namespace=place.name)
        elif "deletionTimestamp" in place.meta and "deletionTimestamp" not in event.old.meta:
            for resource in STORED:
                if resource.namespaced:
                    for record in self._store.table(resource).records(place.name):
                        self._registry.delete(resource, record)
            self._finish_namespace(place)
        elif "deletionTimestamp" in place.meta:
            self._finish_namespace(place)

    def _finish_namespace(self, place: Record) -> None:
        current = self._store.get(NAMESPACES, "", place.name)
        if current is None or current.meta.get("finalizers"):
            return
        tables = (self._store.table(resource) for resource in STORED if resource.namespaced)
        if not any(place.name in table.spaces for table in tables):
            self._store.remove(NAMESPACES, current)


def _owner_uids(obj: Object) -> tuple[str, ...]:
    owners = obj["metadata"].get("ownerReferences")
    return tuple(owner["uid"] for owner in owners) if owners else ()


def _moment(event: Record, now: float) -> float:
    """When an Event was last touched, as far as it says so itself."""
    told = event.obj.get("lastTimestamp") or event.meta["creationTimestamp"]
    try:
        return min(now, from_rfc3339(told))
    except (TypeError, ValueError):
        return now
