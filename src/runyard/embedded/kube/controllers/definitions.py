"""Serves the kinds of stored CustomResourceDefinitions, and deletes the objects of deleted definitions.

After a commit this controller accepts the names of a definition, opens the table of its kind and puts its row into
the catalogue. Deletion goes in order: a finalizer holds the definition, its objects are deleted, and when the last
one is removed the finalizer is removed too, the row is withdrawn, and at the end of the step (`retire`) the table is
closed and its open watches end.

Rows and tables are derived: `load_stored` rebuilds them from what is stored, after a restart or a rollback.
"""

from collections.abc import Iterable

import msgspec

from runyard.embedded.kube.crd import definition
from runyard.embedded.kube.crd.definition import CLEANUP, Spec
from runyard.embedded.kube.registry import Registry, with_condition
from runyard.embedded.kube.resources import DEFINITIONS, Object, Resource
from runyard.embedded.kube.storage.store import Event, Record, Store, Table, record_of
from runyard.wire.instants import to_rfc3339

_ENDING = "CustomResource deletion is in progress"
# The reason of the condition when another kind of the group has that name already.
_CONFLICTS = {
    "plural": "PluralConflict",
    "singular": "SingularConflict",
    "shortNames": "ShortNamesConflict",
    "kind": "KindConflict",
    "listKind": "ListKindConflict",
}


def serve_stored(store: Store, also: Iterable[Object] = ()) -> None:
    """Ensures a table and a row for every stored definition, and for those given."""
    known: dict[str, None] = {}
    for obj in (*also, *(record.obj for record in store.table(DEFINITIONS).records())):
        if obj["metadata"].get("name") and _accepted(obj, given=obj in also):
            known[_serve(store, obj)] = None
    for resource in store.catalogue.served:
        if resource.custom and resource.key not in known:
            store.catalogue.withdraw(resource.key)


def _accepted(obj: Object, *, given: bool) -> bool:
    if given:
        return True
    conditions = obj.get("status", {}).get("conditions") or ()
    return any((item["type"], item["status"]) == ("Established", "True") for item in conditions)


def _serve(store: Store, obj: Object) -> str:
    row = definition.row(obj)
    key = definition.key_of(definition.read(obj))
    if row is None:
        store.catalogue.withdraw(key)
    else:
        store.open_table(row)
        store.catalogue.serve(row)
        _convert_stored(store.tables[key], row)
    return key


def _convert_stored(table: Table, row: Resource) -> None:
    """Converts what was stored under an earlier schema to the present one; no write, the version stays."""
    for record in table.records():
        obj = row.definition.shaped(record.obj)
        if obj is not record.obj:
            table.put(record_of(obj, record.version, msgspec.json.encode(obj)))


class Definitions:
    """Keeps catalogue and tables consistent with the definitions."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store
        self.retired: list[str] = []

    def load_stored(self) -> None:
        """Derives rows and tables from what is stored, writing nothing."""
        self.retired.clear()
        serve_stored(self._store)

    def install(self, definitions: Iterable[Object]) -> None:
        """Creates these definitions, or updates the spec of existing ones."""
        for obj in definitions:
            record = self._store.get(DEFINITIONS, "", obj["metadata"]["name"])
            if record is None:
                self._registry.create(DEFINITIONS, obj, namespace="")
            elif "deletionTimestamp" not in record.meta:
                self._registry.update(DEFINITIONS, record, {**record.obj, "spec": obj["spec"]})

    def retire(self) -> None:
        """Closes the tables of removed kinds, at the end of a step, when its events are published."""
        for key in self.retired:
            if self._store.catalogue.custom(key) is None:
                self._store.close_table(key)
        self.retired.clear()

    def on_event(self, event: Event) -> None:
        """Reacts to one commit."""
        if event.resource is DEFINITIONS:
            self._definition(event)
        elif event.new is None and event.resource.custom:
            self._object_removed(event.resource)

    def _definition(self, event: Event) -> None:
        record = self._store.get(DEFINITIONS, "", event.record.name)
        if record is None:
            self._removed(event)
        elif "deletionTimestamp" in record.meta:
            self._terminate(record, first=_is_first_deletion(event))
        elif event.new is record:
            self._accept(record, spec_changed=event.old is None or _spec_changed(event))

    # ---- names

    def _accept(self, record: Record, *, spec_changed: bool) -> None:
        spec = definition.read(record.obj)
        accepted, conflict = self._names(spec)
        if not conflict and (
            spec_changed or self._store.catalogue.custom(definition.key_of(spec)) is None
        ):
            _serve(self._store, record.obj)
        status = self._status(record.obj, spec, accepted, conflict)
        if status != record.obj.get("status"):
            desired = {**record.obj, "status": status}
            self._registry.update(DEFINITIONS, record, desired, subresource="status")

    def _names(self, spec: Spec) -> tuple[Object, tuple[str, str] | None]:
        """The names that are free, and reason and message if another kind of the group has the others."""
        key = definition.key_of(spec)
        others = [
            item
            for item in self._store.catalogue.served
            if item.group == spec.group and item.key != key
        ]
        given: Object = msgspec.to_builtins(spec.names)
        accepted: Object = {"kind": "", "plural": ""}
        conflict: tuple[str, str] | None = None
        for field, reason in _CONFLICTS.items():
            values = given.get(field, [])
            listed = values if isinstance(values, list) else [values]
            taken = [
                value
                for value in listed
                if any(value in _row_names(other, field) for other in others)
            ]
            if taken:
                conflict = (reason, f'"{taken[-1]}" is already in use')
            elif values:
                accepted[field] = values
        if "categories" in given:
            accepted["categories"] = given["categories"]
        return accepted, conflict

    def _status(
        self, obj: Object, spec: Spec, accepted: Object, conflict: tuple[str, str] | None
    ) -> Object:
        before: Object = obj.get("status", {})
        stored = [version.name for version in spec.versions if version.storage]
        kept = [name for name in before.get("storedVersions", []) if name not in stored]
        status = {
            **before,
            "acceptedNames": accepted,
            "conditions": before.get("conditions") or [],
            "storedVersions": [*kept, *stored],
        }
        if conflict is not None:
            status = self._set_condition(status, ("NamesAccepted", "False", *conflict))
            why = ("Established", "False", "NotAccepted", "not all names are accepted")
            return self._set_condition(status, why)
        status = self._set_condition(
            status, ("NamesAccepted", "True", "NoConflicts", "no conflicts found")
        )
        message = "the initial names have been accepted"
        return self._set_condition(status, ("Established", "True", "InitialNamesAccepted", message))

    def _set_condition(self, status: Object, given: tuple[str, str, str, str]) -> Object:
        kind, value, reason, message = given
        condition = {"type": kind, "status": value, "reason": reason, "message": message}
        for item in status.get("conditions") or ():
            if all(item.get(key) == condition[key] for key in condition):
                return status
        condition["lastTransitionTime"] = to_rfc3339(self._registry.clock.now())
        return with_condition(status, condition)

    # ---- deletion

    def _terminate(self, record: Record, *, first: bool) -> None:
        key = definition.key_of(definition.read(record.obj))
        resource = self._store.catalogue.custom(key)
        if first and resource is not None:
            _serve(self._store, record.obj)  # this row refuses new objects
            for item in self._store.tables[key].records():
                self._registry.delete(resource, item)
        self._finish(record.name, key)

    def _finish(self, name: str, key: str) -> None:
        record = self._store.get(DEFINITIONS, "", name)
        table = self._store.tables.get(key)
        if record is None:
            return
        if table is not None and table.spaces and self._owns_row(name, key):
            given = ("Terminating", "True", "InstanceDeletionInProgress", _ENDING)
            status = self._set_condition(record.obj["status"], given)
            if status is not record.obj["status"]:
                desired = {**record.obj, "status": status}
                self._registry.update(DEFINITIONS, record, desired, subresource="status")
            return
        held = record.meta.get("finalizers", [])
        if CLEANUP in held:
            meta = {**record.meta, "finalizers": [item for item in held if item != CLEANUP]}
            self._registry.update(DEFINITIONS, record, {**record.obj, "metadata": meta})

    def _owns_row(self, name: str, key: str) -> bool:
        row = self._store.catalogue.custom(key)
        return row is not None and name == f"{row.plural}.{row.group}"

    def _object_removed(self, resource: Resource) -> None:
        name = f"{resource.plural}.{resource.group}"
        record = self._store.get(DEFINITIONS, "", name)
        if record is not None and "deletionTimestamp" in record.meta:
            self._finish(name, resource.key)

    def _removed(self, event: Event) -> None:
        key = definition.key_of(definition.read(event.record.obj))
        if self._owns_row(event.record.name, key):
            self._store.catalogue.withdraw(key)
            self.retired.append(key)
        for record in self._store.table(DEFINITIONS).records():  # their names may be free now
            if "deletionTimestamp" not in record.meta:
                self._accept(record, spec_changed=False)


def _is_first_deletion(event: Event) -> bool:
    return event.old is None or "deletionTimestamp" not in event.old.meta


def _spec_changed(event: Event) -> bool:
    return event.old is None or event.new is None or event.old.obj["spec"] != event.new.obj["spec"]


def _row_names(row: Resource, field: str) -> tuple[str, ...]:
    if field in ("kind", "listKind"):
        return (row.kind, row.list_kind)
    return (row.plural, row.singular, *row.short)
