"""Validates a CustomResourceDefinition, and changes of it.

Conversion webhooks, CEL rules and several served versions are refused with 501, not ignored.
"""

import re
from typing import Any

import msgspec

from runyard.embedded.kube.crd import jsonpath, keywords, structure
from runyard.embedded.kube.crd.columns import ColumnSpec
from runyard.embedded.kube.crd.definition import Spec, Version, read
from runyard.embedded.kube.resources import Object
from runyard.embedded.kube.status import Cause, not_served

_APPROVED = "api-approved.kubernetes.io"
_PROTECTED = (".k8s.io", ".kubernetes.io")
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_SIMPLE_PATH = re.compile(r"(\.[A-Za-z_][\w-]*)+")
_NOT_SIMPLE = "must be a simple json path starting with ."
_LONGEST = 63
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def filled(obj: Object) -> Object:
    """A definition with the server's defaults."""
    spec = obj.get("spec")
    given = spec.get("names") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(given, dict):
        return obj
    obj = keywords.pruned(obj)
    spec = obj["spec"]
    kind = given.get("kind")
    if isinstance(kind, str) and kind:
        given = {"singular": kind.lower(), "listKind": f"{kind}List"} | given
    return {**obj, "spec": {"conversion": {"strategy": "None"}} | spec | {"names": given}}


def with_initial_status(obj: Object) -> Object:
    """A new definition with its initial status."""
    spec = obj.get("spec")
    versions = spec.get("versions") if isinstance(spec, dict) else None
    stored = [
        item.get("name")
        for item in (versions if isinstance(versions, list) else ())
        if isinstance(item, dict) and item.get("storage") is True
    ]
    names = {"kind": "", "plural": ""}
    status = {"acceptedNames": names, "conditions": None, "storedVersions": stored}
    return {**obj, "status": status}


def check(obj: Object, old: Object | None) -> list[Cause]:
    """Validates a definition; raises 501 for what this server does not serve."""
    if old is not None and old.get("spec") == obj.get("spec"):
        return []
    try:
        spec = read(obj)
    except msgspec.ValidationError as error:
        return [Cause("spec", f"Invalid value: {error}")]
    causes = [*_identity(obj["metadata"], spec), *_versions(spec)]
    if old is not None:
        causes += _fixed(obj["spec"], old["spec"])
    if not causes:
        _served(spec)
    return causes


def _invalid(field: str, value: str, why: str) -> Cause:
    return Cause(field, f'Invalid value: "{value}": {why}')


def _required(field: str, why: str = "") -> Cause:
    return Cause(field, f"Required value: {why}" if why else "Required value", "FieldValueRequired")


def _identity(meta: Object, spec: Spec) -> list[Cause]:
    given = {
        "spec.group": spec.group,
        "spec.scope": spec.scope,
        "spec.names.plural": spec.names.plural,
        "spec.names.singular": spec.names.singular,
        "spec.names.kind": spec.names.kind,
        "spec.names.listKind": spec.names.list_kind,
    }
    causes = [_required(field) for field, value in given.items() if not value]
    name = str(meta["name"])
    if name != f"{spec.names.plural}.{spec.group}":
        causes.append(_invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    for field in ("spec.names.plural", "spec.names.singular"):
        if given[field] and not _LABEL.fullmatch(given[field]):
            causes.append(_invalid(field, given[field], "not a lower-case DNS label"))
    if spec.group and "." not in spec.group:
        why = "should be a domain with at least one dot"
        causes.append(_invalid("spec.group", spec.group, why))
    if spec.scope not in ("", "Cluster", "Namespaced"):
        why = f'Unsupported value: "{spec.scope}": supported values: "Cluster", "Namespaced"'
        causes.append(Cause("spec.scope", why, "FieldValueNotSupported"))
    approved = meta.get("annotations", {}).get(_APPROVED)
    if f".{spec.group}".endswith(_PROTECTED) and not approved:
        why = f'protected groups must have approval annotation "{_APPROVED}"'
        causes.append(_required(f"metadata.annotations[{_APPROVED}]", why))
    return causes


def _versions(spec: Spec) -> list[Cause]:
    causes: list[Cause] = []
    if sum(version.storage for version in spec.versions) != 1:
        shown = "[" + ",".join(f'"{version.name}"' for version in spec.versions) + "]"
        why = "must have exactly one version marked as storage version"
        causes.append(Cause("spec.versions", f"Invalid value: {shown}: {why}"))
    if not any(version.storage for version in spec.versions):
        why = "must have at least one stored version"
        causes.append(Cause("status.storedVersions", f"Invalid value: null: {why}"))
    if len({version.name: None for version in spec.versions}) < len(spec.versions):
        why = "Invalid value: must contain unique version names"
        causes.append(Cause("spec.versions", why))
    alone = len(spec.versions) == 1
    for index, version in enumerate(spec.versions):
        causes += _version(version, index, alone=alone)
    return causes


def _version(version: Version, index: int, *, alone: bool) -> list[Cause]:
    """Validates one version. Errors in a single version are reported under the spec."""
    here = f"spec.versions[{index}]"
    causes = _named(version.name, here, alone=alone)
    if version.schema.schema is None:
        return [*causes, _required(f"{here}.schema.openAPIV3Schema")]
    where = "spec.validation" if alone else f"{here}.schema"
    base = "spec" if alone else here
    causes += structure.check(version.schema.schema, f"{where}.openAPIV3Schema")
    for number, column in enumerate(version.additional_printer_columns):
        causes += _column(column, f"{base}.additionalPrinterColumns[{number}]")
    for number, field in enumerate(version.selectable_fields):
        path = f"{base}.selectableFields[{number}].jsonPath"
        if not _known(version.schema.schema, field.json_path):
            why = "is an invalid path: does not refer to a valid field"
            causes.append(_invalid(path, field.json_path, why))
    if (scale := version.subresources.scale) is not None:
        paths = {
            "specReplicasPath": scale.spec_replicas_path,
            "statusReplicasPath": scale.status_replicas_path,
            "labelSelectorPath": scale.label_selector_path or ".status.any",
        }
        causes += [
            _invalid(f"{base}.subresources.scale.{key}", path, _NOT_SIMPLE)
            for key, path in paths.items()
            if not _SIMPLE_PATH.fullmatch(path)
        ]
    return causes


def _named(name: str, here: str, *, alone: bool) -> list[Cause]:
    if _LABEL.fullmatch(name) and len(name) <= _LONGEST:
        return []
    why = f"not a lower-case DNS label of at most {_LONGEST} characters that begins with a letter"
    causes = [_invalid(f"{here}.name", name, why)]
    return [*causes, _invalid("spec.version", name, why)] if alone and name else causes


def _column(column: ColumnSpec, path: str) -> list[Cause]:
    causes: list[Cause] = []
    if column.type not in _COLUMN_TYPES:
        why = f"must be one of {','.join(_COLUMN_TYPES)}"
        causes.append(_invalid(f"{path}.type", column.type, why))
    try:
        jsonpath.parse(column.json_path)
    except ValueError:
        causes.append(_invalid(f"{path}.JSONPath", column.json_path, _NOT_SIMPLE))
    return causes


def _known(schema: Any, path: str) -> bool:
    for step in path.removeprefix(".").split("."):
        named = schema.get("properties") if isinstance(schema, dict) else None
        schema = named.get(step) if isinstance(named, dict) else None
    return isinstance(schema, dict) and schema.get("type") in ("boolean", "integer", "string")


def _fixed(new: Object, old: Object) -> list[Cause]:
    """Validates changes of a definition that is in use."""
    causes: list[Cause] = []
    for path in (("group",), ("scope",), ("names", "kind"), ("names", "plural")):
        one, two = _at(new, path), _at(old, path)
        if one != two:
            causes.append(_invalid(f"spec.{'.'.join(path)}", one, "field is immutable"))
    return causes


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _served(spec: Spec) -> None:
    if spec.conversion.strategy != "None":
        raise not_served(f"the conversion strategy {spec.conversion.strategy}; only None")
    if sum(version.served for version in spec.versions) > 1:
        raise not_served("several served versions of one kind")
