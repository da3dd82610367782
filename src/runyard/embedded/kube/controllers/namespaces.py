"""Manages namespaces: each gets a default ServiceAccount, and its deletion deletes everything that is in it.

A namespace that is deleted stays, in the phase Terminating, while anything is left in it. Pods go first,
because what they use (accounts, Secrets) must be there while they stop; the rest is deleted only
when the last of them is gone. The status says what remains and which finalizers hold it.
"""

from collections.abc import Iterable

from runyard.embedded.kube.registry import Registry
from runyard.embedded.kube.resources import (
    NAMESPACES,
    PODS,
    SERVICE_ACCOUNTS,
    Object,
    Resource,
)
from runyard.embedded.kube.storage.store import Event, Record
from runyard.wire.instants import to_rfc3339

ACCOUNT = "default"
FINALIZER = "kubernetes"
_FINE = {
    "NamespaceDeletionDiscoveryFailure": (
        "ResourcesDiscovered",
        "All resources successfully discovered",
    ),
    "NamespaceDeletionGroupVersionParsingFailure": (
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    "NamespaceDeletionContentFailure": (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": (
        "ContentHasNoFinalizers",
        "All content-preserving finalizers finished",
    ),
}


class Namespaces:
    """Creates the default objects of namespaces, and empties deleted ones."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store
        self._going: dict[str, None] = {}

    def note(self, event: Event) -> None:
        """Reacts to one commit."""
        if event.resource is NAMESPACES:
            self._namespace(event)
        elif event.new is None and event.resource.namespaced:
            self._removed(event.resource, event.record)

    def adopt(self) -> None:
        """Indexes what the store already holds, writing nothing."""
        for place in self._store.table(NAMESPACES).records():
            if "deletionTimestamp" in place.meta:
                self._going[place.name] = None

    def tick(self) -> None:
        """Updates the conditions of namespaces that are being deleted."""
        for name in tuple(self._going):
            self._clear(name)
            self._report(name)

    def _namespace(self, event: Event) -> None:
        name = event.record.name
        if event.new is None:
            self._going.pop(name, None)
        elif "deletionTimestamp" in event.new.meta:
            first = name not in self._going
            self._going[name] = None
            self._clear(name)
            if first:
                self._report(name)
        elif event.old is None:
            self._furnish(name)

    def _furnish(self, name: str) -> None:
        place = self._store.get(NAMESPACES, "", name)
        if place is None or "deletionTimestamp" in place.meta:
            return  # gone again, or going
        if self._store.get(SERVICE_ACCOUNTS, name, ACCOUNT) is None:
            body = {"metadata": {"name": ACCOUNT}}
            self._registry.create(SERVICE_ACCOUNTS, body, namespace=name)

    def _removed(self, resource: Resource, record: Record) -> None:
        space = record.namespace
        if space in self._going:
            if space not in self._store.table(resource).spaces:  # the last of its kind
                self._clear(space)
        elif resource is SERVICE_ACCOUNTS and record.name == ACCOUNT:
            self._furnish(space)

    def _clear(self, name: str) -> None:
        """Deletes what is in a namespace, Pods first, and then the namespace."""
        place = self._store.get(NAMESPACES, "", name)
        if place is None:
            return
        self._delete(PODS, name)
        if name in self._store.table(PODS).spaces:
            return
        for resource in self._contents():
            self._delete(resource, name)
        if not any(name in self._store.table(item).spaces for item in self._contents()):
            current = self._store.get(NAMESPACES, "", name)
            if current is not None and not _held(current.obj):
                self._store.remove(NAMESPACES, current)

    def _delete(self, resource: Resource, name: str) -> None:
        for record in self._store.table(resource).records(name):
            if "deletionTimestamp" not in record.meta:
                self._registry.delete(resource, record)

    def _contents(self) -> list[Resource]:
        return [item for item in self._store.catalogue.stored if item.namespaced]

    def _report(self, name: str) -> None:
        place = self._store.get(NAMESPACES, "", name)
        if place is None:
            return
        first = name in self._store.table(PODS).spaces  # the others were not deleted yet
        left = [
            (resource, record.obj)
            for resource in ([PODS] if first else self._contents())
            for record in self._store.table(resource).records(name)
        ]
        status = place.obj.get("status", {})
        before = status.get("conditions") or []
        now = to_rfc3339(self._registry.clock.now())
        conditions = remaining(left, before, now=now)
        if conditions != before:
            self._store.put(
                NAMESPACES, {**place.obj, "status": {**status, "conditions": conditions}}
            )


def _held(place: Object) -> bool:
    """Whether a finalizer other than this server's still holds a namespace."""
    named = [*place["metadata"].get("finalizers", ()), *place.get("spec", {}).get("finalizers", ())]
    return any(item != FINALIZER for item in named)


def remaining(
    left: Iterable[tuple[Resource, Object]], before: list[Object], *, now: str
) -> list[Object]:
    """The conditions of a namespace with that left in it; a transition happens when a status changes."""
    kinds: dict[str, int] = {}
    finalizers: dict[str, int] = {}
    for resource, obj in left:
        name = f"{resource.plural}.{resource.group}"
        kinds[name] = kinds.get(name, 0) + 1
        for item in obj["metadata"].get("finalizers") or ():
            finalizers[item] = finalizers.get(item, 0) + 1
    given: dict[str, tuple[str, str]] = {}
    if kinds:
        counted = ", ".join(sorted(f"{key} has {n} resource instances" for key, n in kinds.items()))
        given["NamespaceContentRemaining"] = (
            "SomeResourcesRemain",
            f"Some resources are remaining: {counted}",
        )
    if finalizers:
        counted = ", ".join(
            sorted(f"{key} in {n} resource instances" for key, n in finalizers.items())
        )
        given["NamespaceFinalizersRemaining"] = (
            "SomeFinalizersRemain",
            f"Some content in the namespace has finalizers remaining: {counted}",
        )
    since = {item["type"]: (item["status"], item["lastTransitionTime"]) for item in before}
    others = [item for item in before if item["type"] not in _FINE]
    return others + [_condition(kind, given.get(kind), since.get(kind), now) for kind in _FINE]


def _condition(
    kind: str, given: tuple[str, str] | None, since: tuple[str, str] | None, now: str
) -> Object:
    status = "False" if given is None else "True"
    reason, message = given or _FINE[kind]
    moment = since[1] if since is not None and since[0] == status else now
    return {
        "type": kind,
        "status": status,
        "lastTransitionTime": moment,
        "reason": reason,
        "message": message,
    }
