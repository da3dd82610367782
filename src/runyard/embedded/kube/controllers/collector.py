"""The garbage collector: deletes dependents whose owners are gone, in foreground, background or orphan mode.

An index of owners is updated with every commit, so that the removal of one object reads its dependents only.
How a deletion treats dependents is stored on the owner as a finalizer (`deletion`):

    none                  the owner is removed at once, then dependents without another owner
    foregroundDeletion    dependents are removed first; the owner waits for those that block it
    orphan                dependents are orphaned, then the owner is removed

An owner is looked up in its dependent's namespace. A reference to one in another namespace, or with another uid,
is dangling, and is removed if the dependent has another owner. Nothing is done for an owner of an unknown kind,
or for a namespaced owner of a cluster-wide object.
"""

from collections.abc import Callable
from typing import Literal

from runyard.embedded.kube.controllers.events import COLLECTOR, Recorder
from runyard.embedded.kube.deletion import FOREGROUND, ORPHAN, finished
from runyard.embedded.kube.registry import Registry
from runyard.embedded.kube.resources import NAMESPACES, Object, Resource
from runyard.embedded.kube.storage.store import Event, Record

Key = tuple[str, str, str]  # table, namespace, name
State = Literal["solid", "waiting", "dangling", "unknown"]
IsGone = Callable[[Object], bool]  # whether an owner reference is to be removed


class Collector:
    """Deletes objects whose owners are all gone."""

    def __init__(self, registry: Registry, recorder: Recorder) -> None:
        self._registry = registry
        self._store = registry.store
        self._recorder = recorder
        self._dependents: dict[str, dict[Key, Resource]] = {}
        self._waiting: dict[
            str, tuple[Resource, str, str]
        ] = {}  # uid: owners that wait for their dependents

    def on_event(self, event: Event) -> None:
        """Reacts to one commit."""
        old, new = event.old, event.new
        refs_before = old.obj["metadata"].get("ownerReferences") if old is not None else None
        refs_after = new.obj["metadata"].get("ownerReferences") if new is not None else None
        if refs_before is not refs_after and refs_before != refs_after:
            self._owners_changed(event, refs_before or [], refs_after or [])
        if new is None:
            self._removed(event.record)
        elif "deletionTimestamp" in new.meta:
            self._deleting(event.resource, old, new)

    def load_stored(self) -> None:
        """Indexes what the store already holds, writing nothing."""
        for resource in self._store.catalogue.stored:
            for record in self._store.table(resource).records():
                owners = record.meta.get("ownerReferences")
                if owners:
                    self._index(resource, record, [], owners)
                if _deletes_foreground(record.obj):
                    self._waiting[record.uid] = (resource, record.namespace, record.name)

    # ---- commits

    def _owners_changed(self, event: Event, before: list[Object], after: list[Object]) -> None:
        self._index(event.resource, event.record, before, after)
        for owner in before:
            if owner["uid"] in self._waiting:
                self._release(owner["uid"])
        if event.new is not None:
            self._collect(event.resource, event.new, first=True)

    def _index(
        self, resource: Resource, record: Record, before: list[Object], after: list[Object]
    ) -> None:
        key = (resource.key, record.namespace, record.name)
        for owner in before:
            held = self._dependents.get(owner["uid"], {})
            held.pop(key, None)
            if not held:
                self._dependents.pop(owner["uid"], None)
        for owner in after:
            self._dependents.setdefault(owner["uid"], {})[key] = resource

    def _deleting(self, resource: Resource, old: Record | None, new: Record) -> None:
        """Handles the dependents of an object that is being deleted, once."""
        before = old.obj if old is not None else None
        if _deletes_foreground(new.obj) and not (
            before is not None and _deletes_foreground(before)
        ):
            self._waiting[new.uid] = (resource, new.namespace, new.name)
            for kind, dependent in self._owned_by(new.uid):
                self._collect(kind, dependent)
            self._release(new.uid)
        elif _orphans_dependents(new.obj) and not (
            before is not None and _orphans_dependents(before)
        ):
            for kind, dependent in self._owned_by(new.uid):
                self._remove_owner_refs(kind, dependent, lambda owner: owner["uid"] == new.uid)
            self._drop_finalizer(resource, new, ORPHAN)

    def _removed(self, record: Record) -> None:
        self._waiting.pop(record.uid, None)
        for resource, dependent in self._owned_by(record.uid):
            self._collect(resource, dependent)

    def _owned_by(self, uid: str) -> list[tuple[Resource, Record]]:
        found = []
        for (_, namespace, name), resource in tuple(self._dependents.get(uid, {}).items()):
            record = self._store.get(resource, namespace, name)
            if record is not None:
                found.append((resource, record))
        return found

    # ---- decisions

    def _collect(self, resource: Resource, record: Record, *, first: bool = False) -> None:
        """Deletes a dependent whose owners are gone; removes references to owners that do not exist."""
        current = self._store.get(resource, record.namespace, record.name)
        if current is None or current.uid != record.uid or "deletionTimestamp" in current.meta:
            return
        owners = current.meta.get("ownerReferences") or []
        states = [self._state(resource, current, owner) for owner in owners]
        if not owners or "unknown" in states:
            return
        if first:
            self._warn(resource, current, owners, states)
        if "solid" in states:
            solid = [o["uid"] for o, s in zip(owners, states, strict=True) if s == "solid"]
            if len(solid) < len(owners):
                self._remove_owner_refs(resource, current, lambda owner: owner["uid"] not in solid)
        elif "waiting" in states and current.uid in self._dependents:
            self._delete_foreground(resource, current)
        else:
            self._registry.delete(resource, current, policy=_policy(current.obj))

    def _state(self, resource: Resource, record: Record, owner: Object) -> State:
        kind = self._store.catalogue.by_kind.get((owner["apiVersion"], owner["kind"]))
        if kind is None or (kind.namespaced and not resource.namespaced):
            return "unknown"
        namespace = record.namespace if kind.namespaced else ""
        found = self._store.get(kind, namespace, owner["name"])
        if found is None or found.uid != owner["uid"]:
            return "dangling"
        return "waiting" if _deletes_foreground(found.obj) else "solid"

    def _delete_foreground(self, resource: Resource, record: Record) -> None:
        """Deletes a dependent that has dependents itself, in foreground; breaks cycles of waiting owners."""
        if any(_deletes_foreground(other.obj) for _, other in self._owned_by(record.uid)):
            owners = [{**o, "blockOwnerDeletion": False} for o in record.meta["ownerReferences"]]
            record = self._store.put(resource, _with_owners(record.obj, owners))
        self._registry.delete(resource, record, policy="Foreground")

    def _remove_owner_refs(self, resource: Resource, record: Record, is_gone: IsGone) -> None:
        current = self._store.get(resource, record.namespace, record.name)
        if current is None or current.uid != record.uid:
            return
        owners = current.meta.get("ownerReferences") or []
        kept = [owner for owner in owners if not is_gone(owner)]
        if len(kept) < len(owners):
            self._store.put(resource, _with_owners(current.obj, kept))

    def _release(self, uid: str) -> None:
        """Removes an owner whose blocking dependents are all gone."""
        resource, namespace, name = self._waiting[uid]
        owner = self._store.get(resource, namespace, name)
        if owner is None or owner.uid != uid or not _deletes_foreground(owner.obj):
            self._waiting.pop(uid, None)
        elif not any(_blocks_owner(item.obj, uid) for _, item in self._owned_by(uid)):
            self._waiting.pop(uid)
            self._drop_finalizer(resource, owner, FOREGROUND)

    def _drop_finalizer(self, resource: Resource, record: Record, name: str) -> None:
        current = self._store.get(resource, record.namespace, record.name)
        if current is None or current.uid != record.uid:
            return
        left = [item for item in current.meta.get("finalizers", []) if item != name]
        meta = {key: value for key, value in current.meta.items() if key != "finalizers"}
        obj = {**current.obj, "metadata": meta | ({"finalizers": left} if left else {})}
        if resource is not NAMESPACES and finished(obj):
            self._store.remove(resource, current)
        else:
            self._store.put(resource, obj)

    def _warn(
        self, resource: Resource, record: Record, owners: list[Object], states: list[State]
    ) -> None:
        """Emits an Event about an owner in another namespace: such a reference deletes the dependent."""
        for owner, state in zip(owners, states, strict=True):
            if state != "dangling" or not record.namespace:
                continue
            kind = self._store.catalogue.by_kind[owner["apiVersion"], owner["kind"]]
            spaces = self._store.table(kind).spaces.values() if kind.namespaced else ()
            elsewhere = (namespace.get(owner["name"]) for namespace in spaces)
            if not any(item is not None and item.uid == owner["uid"] for item in elsewhere):
                continue
            named = f"{owner['apiVersion']}/{owner['kind']}, namespace: {record.namespace}"
            message = f"ownerRef [{named}, name: {owner['name']}, uid: {owner['uid']}]"
            self._recorder.emit(
                record,
                resource,
                by=COLLECTOR,
                reason="OwnerRefInvalidNamespace",
                message=f'{message} does not exist in namespace "{record.namespace}"',
                warning=True,
            )


def _deletes_foreground(obj: Object) -> bool:
    meta = obj["metadata"]
    return "deletionTimestamp" in meta and FOREGROUND in meta.get("finalizers", ())


def _orphans_dependents(obj: Object) -> bool:
    meta = obj["metadata"]
    return "deletionTimestamp" in meta and ORPHAN in meta.get("finalizers", ())


def _blocks_owner(obj: Object, uid: str) -> bool:
    owners = obj["metadata"].get("ownerReferences") or ()
    return any(owner["uid"] == uid and owner.get("blockOwnerDeletion") for owner in owners)


def _policy(obj: Object) -> str:
    finalizers = obj["metadata"].get("finalizers", ())
    if ORPHAN in finalizers:
        return "Orphan"
    return "Foreground" if FOREGROUND in finalizers else ""


def _with_owners(obj: Object, owners: list[Object]) -> Object:
    meta = {key: value for key, value in obj["metadata"].items() if key != "ownerReferences"}
    return {**obj, "metadata": meta | ({"ownerReferences": owners} if owners else {})}
