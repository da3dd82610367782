"""Creates the default ServiceAccount of each namespace, and deletes the contents of deleted namespaces.

A deleted namespace stays in the phase Terminating while it has contents. Pods are deleted first, because what they
use (accounts, Secrets) must exist while they stop; the rest is deleted when the last Pod is gone. The status
lists what remains and the finalizers on it.
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
_NO_PROBLEM = {
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
        self._terminating: dict[str, None] = {}

    def on_event(self, event: Event) -> None:
        """Reacts to one commit."""
        if event.resource is NAMESPACES:
            self._namespace(event)
        elif event.new is None and event.resource.namespaced:
            self._removed(event.resource, event.record)

    def load_stored(self) -> None:
        """Indexes what the store already holds, writing nothing."""
        for namespace in self._store.table(NAMESPACES).records():
            if "deletionTimestamp" in namespace.meta:
                self._terminating[namespace.name] = None

    def tick(self) -> None:
        """Updates the conditions of namespaces that are being deleted."""
        for name in tuple(self._terminating):
            self._delete_contents(name)
            self._report(name)

    def _namespace(self, event: Event) -> None:
        name = event.record.name
        if event.new is None:
            self._terminating.pop(name, None)
        elif "deletionTimestamp" in event.new.meta:
            first = name not in self._terminating
            self._terminating[name] = None
            self._delete_contents(name)
            if first:
                self._report(name)
        elif event.old is None:
            self._create_account(name)

    def _create_account(self, name: str) -> None:
        namespace = self._store.get(NAMESPACES, "", name)
        if namespace is None or "deletionTimestamp" in namespace.meta:
            return  # deleted meanwhile
        if self._store.get(SERVICE_ACCOUNTS, name, ACCOUNT) is None:
            body = {"metadata": {"name": ACCOUNT}}
            self._registry.create(SERVICE_ACCOUNTS, body, namespace=name)

    def _removed(self, resource: Resource, record: Record) -> None:
        namespace_name = record.namespace
        if namespace_name in self._terminating:
            if namespace_name not in self._store.table(resource).spaces:  # the last of its kind
                self._delete_contents(namespace_name)
        elif resource is SERVICE_ACCOUNTS and record.name == ACCOUNT:
            self._create_account(namespace_name)

    def _delete_contents(self, name: str) -> None:
        """Deletes the contents of a namespace, Pods first, and then the namespace."""
        namespace = self._store.get(NAMESPACES, "", name)
        if namespace is None:
            return
        self._delete(PODS, name)
        if name in self._store.table(PODS).spaces:
            return
        for resource in self._contents():
            self._delete(resource, name)
        if not any(name in self._store.table(item).spaces for item in self._contents()):
            current = self._store.get(NAMESPACES, "", name)
            if current is not None and not _has_other_finalizers(current.obj):
                self._store.remove(NAMESPACES, current)

    def _delete(self, resource: Resource, name: str) -> None:
        for record in self._store.table(resource).records(name):
            if "deletionTimestamp" not in record.meta:
                self._registry.delete(resource, record)

    def _contents(self) -> list[Resource]:
        return [item for item in self._store.catalogue.stored if item.namespaced]

    def _report(self, name: str) -> None:
        namespace = self._store.get(NAMESPACES, "", name)
        if namespace is None:
            return
        pods_first = name in self._store.table(PODS).spaces  # the others were not deleted yet
        left = [
            (resource, record.obj)
            for resource in ([PODS] if pods_first else self._contents())
            for record in self._store.table(resource).records(name)
        ]
        status = namespace.obj.get("status", {})
        before = status.get("conditions") or []
        now = to_rfc3339(self._registry.clock.now())
        conditions = remaining(left, before, now=now)
        if conditions != before:
            self._store.put(
                NAMESPACES, {**namespace.obj, "status": {**status, "conditions": conditions}}
            )


def _has_other_finalizers(namespace: Object) -> bool:
    """Whether a finalizer other than this server's still holds a namespace."""
    named = [
        *namespace["metadata"].get("finalizers", ()),
        *namespace.get("spec", {}).get("finalizers", ()),
    ]
    return any(item != FINALIZER for item in named)


def remaining(
    left: Iterable[tuple[Resource, Object]], before: list[Object], *, now: str
) -> list[Object]:
    """Returns the conditions of a namespace with those contents; the transition time changes with the status only."""
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
    others = [item for item in before if item["type"] not in _NO_PROBLEM]
    return others + [
        _condition(kind, given.get(kind), since.get(kind), now) for kind in _NO_PROBLEM
    ]


def _condition(
    kind: str, given: tuple[str, str] | None, since: tuple[str, str] | None, now: str
) -> Object:
    status = "False" if given is None else "True"
    reason, message = given or _NO_PROBLEM[kind]
    moment = since[1] if since is not None and since[0] == status else now
    return {
        "type": kind,
        "status": status,
        "lastTransitionTime": moment,
        "reason": reason,
        "message": message,
    }
