"""CustomResourceDefinitions as typed values, and the row and the rules that are derived from one.

`row` turns a definition that was accepted (`approval`) into a `Resource` whose `definition` holds the compiled schema,
the columns and the scale. One version is served.
"""

from typing import Literal

import msgspec

from runyard.embedded.kube.crd import checks, schema
from runyard.embedded.kube.crd import scale as scaling
from runyard.embedded.kube.crd.columns import ColumnSpec, printer
from runyard.embedded.kube.crd.scale import ScaleSpec
from runyard.embedded.kube.patches.patch import pruned
from runyard.embedded.kube.resources import BUILT_IN, Object, Resource
from runyard.embedded.kube.status import Cause
from runyard.embedded.kube.tables.tables import Printer
from runyard.wire import names
from runyard.wire.instants import to_rfc3339

CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
_HEAD = ("kind", "apiVersion", "metadata")
_COMMON_FIELDS = ("metadata.name", "metadata.namespace")
_BUILT_IN_KEYS = tuple(item.key for item in BUILT_IN)


class Names(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The names of a kind."""

    plural: str = ""
    singular: str = ""
    short_names: list[str] = []
    kind: str = ""
    list_kind: str = ""
    categories: list[str] = []


class Validation(msgspec.Struct, frozen=True):
    """The schema of a version."""

    schema: Object | None = msgspec.field(default=None, name="openAPIV3Schema")


class Subresources(msgspec.Struct, frozen=True):
    """The subresources of a version."""

    status: Object | None = None
    scale: ScaleSpec | None = None


class Selectable(msgspec.Struct, frozen=True, rename="camel"):
    """A field that a field selector may use."""

    json_path: str


class Version(msgspec.Struct, frozen=True, rename="camel"):
    """One version of a kind."""

    name: str
    served: bool
    storage: bool
    schema: Validation = Validation()
    subresources: Subresources = Subresources()
    additional_printer_columns: tuple[ColumnSpec, ...] = ()
    selectable_fields: tuple[Selectable, ...] = ()


class Conversion(msgspec.Struct, frozen=True):
    """How versions are converted."""

    strategy: str = "None"


class Spec(msgspec.Struct, frozen=True, rename="camel"):
    """The spec of a definition."""

    group: str = ""
    names: Names = Names()
    scope: str = ""
    versions: tuple[Version, ...] = ()
    conversion: Conversion = Conversion()
    preserve_unknown_fields: Literal[False] = False


class Definition(msgspec.Struct, frozen=True, eq=False):
    """The rules of one custom resource."""

    schema: schema.Schema
    source: Object  # the schema as it was sent
    printer: Printer
    scale: ScaleSpec | None = None
    terminating: bool = False

    def without_unusable_nulls(self, obj: Object) -> Object:
        """An object of a plain write without nulls for fields that cannot be null."""
        meta = pruned(obj["metadata"]) if "metadata" in obj else None
        kept = {key: item for key, item in obj.items() if item is not None or key not in _HEAD}
        given: Object = schema.without_nulls(self.schema, kept, root=True)
        return given if meta is None else {**given, "metadata": meta}

    def shaped(self, obj: Object) -> Object:
        """The object as it is stored: without unknown fields, with defaults."""
        pruned = schema.prune(self.schema, obj, root=True)
        shaped: Object = schema.fill(self.schema, pruned)
        return shaped

    def unknown(self, obj: Object) -> list[str]:
        """The unknown fields of an object."""
        return schema.unknown(self.schema, obj, root=True)

    def check(self, obj: Object, old: Object | None) -> list[Cause]:
        """Validates an object."""
        causes = checks.check(self.schema, obj, old)
        return [*causes, *scaling.check(self.scale, obj)] if self.scale is not None else causes


def read(obj: Object) -> Spec:
    """The spec of a definition; raises `msgspec.ValidationError`."""
    return msgspec.convert(obj.get("spec", {}), Spec)


def marked_for_deletion(obj: Object, *, now: float) -> Object:
    """Marks a definition for deletion; a finalizer holds it until its objects are gone."""
    meta = obj["metadata"]
    if "deletionTimestamp" in meta:
        return obj
    held = [item for item in meta.get("finalizers", []) if item != CLEANUP]
    condition = {
        "type": "Terminating",
        "status": "True",
        "lastTransitionTime": to_rfc3339(now),
        "reason": "InstanceDeletionPending",
        "message": "CustomResourceDefinition marked for deletion; "
        "CustomResource deletion will begin soon",
    }
    status = obj.get("status", {})
    others = [item for item in (status.get("conditions") or []) if item["type"] != "Terminating"]
    return {
        **obj,
        "metadata": {
            **meta,
            "deletionTimestamp": to_rfc3339(now),
            "finalizers": [*held, CLEANUP],
        },
        "status": {**status, "conditions": [*others, condition]},
    }


# ---- derived rows


def key_of(spec: Spec) -> str:
    """The name of the table. Our own kinds use their plural alone, as built-in ones do."""
    plural = spec.names.plural
    ours = spec.group == names.GROUP and plural not in _BUILT_IN_KEYS
    return plural if ours else f"{plural}.{spec.group}"


def row(obj: Object) -> Resource | None:
    """The row of a definition that was accepted; None if no version of it is served."""
    spec = read(obj)
    version = next((item for item in spec.versions if item.served), None)
    if version is None:
        return None
    given = version.schema.schema or {}
    subresources = version.subresources
    rules = Definition(
        schema.build(given),
        given,
        printer(version.additional_printer_columns),
        subresources.scale,
        "deletionTimestamp" in obj["metadata"],
    )
    named = spec.names
    return Resource(
        plural=named.plural,
        kind=named.kind,
        group=spec.group,
        version=version.name,
        namespaced=spec.scope == "Namespaced",
        subresources=tuple(
            name
            for name, there in (("status", subresources.status), ("scale", subresources.scale))
            if there is not None
        ),
        status_on_create=False,
        has_generation=True,
        custom=True,
        fields=(*_COMMON_FIELDS, *(_field(item) for item in version.selectable_fields)),
        short=tuple(named.short_names),
        categories=tuple(named.categories),
        singular=named.singular,
        list_kind=named.list_kind,
        key=key_of(spec),
        definition=rules,
    )


def _field(selectable: Selectable) -> str:
    return selectable.json_path.strip().removeprefix(".")
