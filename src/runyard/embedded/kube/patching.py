"""Applies the body of a PATCH to an object, for each patch type.

The patched object is converted to its kind again, so an unknown field is reported for the patched object, not for the
patch. An apply is different: its body may have declared fields only.
"""

from typing import Any

import msgspec

from runyard.embedded.kube import bodies
from runyard.embedded.kube.crd import applying
from runyard.embedded.kube.metadata import check_applied, check_identity, check_name, check_version
from runyard.embedded.kube.options import IGNORE, STRICT, WriteOptions
from runyard.embedded.kube.patches import jsonpatch, strategic
from runyard.embedded.kube.patches.apply import type_of
from runyard.embedded.kube.patches.fields import duplicate_item
from runyard.embedded.kube.patches.patch import merge, pruned
from runyard.embedded.kube.resources import Object, Resource
from runyard.embedded.kube.routes import Target
from runyard.embedded.kube.schema.typed import TypedError, typed, unknown
from runyard.embedded.kube.status import (
    StatusError,
    bad_request,
    invalid_patch,
    unsupported_media,
    unsupported_patch,
    warned,
)
from runyard.embedded.kube.storage.store import Record
from runyard.http.messages import Request

__all__ = ["APPLY", "MERGE", "Patched", "applied", "check_applied", "kind_of", "patched", "read"]

MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"


class Patched(msgspec.Struct, frozen=True):
    """The result of a patch."""

    obj: Object
    warnings: list[str]
    source: Any  # quoted in an error message

    @property
    def shown(self) -> str:
        """How an error message quotes it."""
        return msgspec.json.encode(msgspec.json.encode(self.source).decode()).decode()


def kind_of(resource: Resource, request: Request) -> str:
    """The patch type; raises 415 for one that this resource does not take."""
    kind = request.header("content-type").partition(";")[0].strip()  # case-sensitive
    if kind not in (MERGE, APPLY, STRATEGIC, JSON_PATCH):
        raise unsupported_patch()
    if kind == STRATEGIC and resource.custom:
        raise unsupported_media(kind, (JSON_PATCH, MERGE, APPLY))
    return kind


def read(kind: str, request: Request) -> Any:
    """Parses the patch; raises 400 if it is invalid."""
    what = "error decoding patch"
    body = bodies.read_json(request.body, what=what)
    if kind == JSON_PATCH:
        return jsonpatch.checked(body)
    if not isinstance(body, dict):
        found = "array" if isinstance(body, list) else "value"
        message = f"json: cannot unmarshal {found} into an object"
        raise bad_request(message if kind == STRATEGIC else f"{what}: {message}")
    return body


def patched(
    kind: str,
    resource: Resource,
    record: Record,
    patch: Any,
    request: Request,
    options: WriteOptions,
) -> Patched:
    """The patched object; that of the record if nothing changes."""
    if kind == MERGE:
        made = merge(record.obj, patch)
    elif kind == STRATEGIC:
        made = strategic.apply(type_of(resource), record.obj, patch)
    else:
        made = (
            bodies.without_unusable_nulls(resource, jsonpatch.apply(record.obj, patch))
            if patch
            else record.obj
        )
    warnings = _warnings(kind, resource, (made, record.obj), patch, request, options)
    result = Patched(made, warnings, patch if kind == STRATEGIC else made)
    if warnings and options.validation == STRICT:
        raise invalid_patch(result.shown, "strict decoding error: " + ", ".join(warnings))
    if made is not record.obj:
        with warned(warnings):
            check_identity(record, made)
            check_version(resource, record, made.get("metadata"))
    return result


def _warnings(
    kind: str,
    resource: Resource,
    states: tuple[Any, Object],  # after the patch, and before
    patch: Any,
    request: Request,
    options: WriteOptions,
) -> list[str]:
    if options.validation == IGNORE:
        return []
    found = bodies.unknown_fields(resource, *states)
    if kind == JSON_PATCH:
        found += [f'json patch unknown field "{path}"' for path in jsonpatch.unknown(patch)]
    return found + bodies.duplicates(request.body, patch)


def unreadable(result: Patched, why: str) -> StatusError:
    """The result of the patch is not an object of its kind."""
    return invalid_patch(result.shown, why)


# ---- apply


def applied(resource: Resource, request: Request, target: Target, options: WriteOptions) -> Object:
    """Parses the object of an apply; raises 400 if it does not belong to this path."""
    body = bodies.read_yaml(request.body)
    if not isinstance(body, dict):
        raise bad_request("error decoding YAML: not an object")
    if options.validation == STRICT and (duplicated := bodies.duplicates(request.body, body)):
        raise bad_request(f"error strict decoding YAML: {', '.join(duplicated)}")
    if not resource.custom:  # for custom kinds null may be a value, or an unknown field
        body = pruned(body)
    kind, version = body.get("kind", ""), body.get("apiVersion", "")
    if (kind, version) != (resource.kind, resource.api_version):
        group, _, number = str(version).rpartition("/")
        raise bad_request(f"invalid object type: {group}/{number}, Kind={kind}")
    meta = body.get("metadata", {})
    if not isinstance(meta, dict):
        raise untyped(resource, target, ".metadata: expected map")
    if meta.get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    meta = {**pruned(meta), "name": meta.get("name") or target.name}
    check_name(target.namespace, target.name, meta)
    wanted: Object = {**body, "metadata": meta}
    for path in unknown(type_of(resource), wanted):
        raise untyped(resource, target, f".{path}: field not declared in schema")
    if resource.custom:
        why = applying.mismatch(resource.definition.schema, wanted)
    else:
        why = duplicate_item(type_of(resource), wanted)
    if why:
        raise untyped(resource, target, why)
    try:
        typed(resource, wanted)
    except TypedError as error:
        raise untyped(resource, target, str(error)) from None
    return wanted


def untyped(resource: Resource, target: Target, why: str) -> StatusError:
    """An apply must be converted as a whole, so an invalid value is reported as a server error."""
    what = f"{target.namespace}/{target.name}; {resource.api_version}, Kind={resource.kind}"
    return StatusError(500, "", f"failed to create typed patch object ({what}): {why}")
