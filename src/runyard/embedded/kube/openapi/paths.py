"""Renders the paths of a kind in an OpenAPI document: its operations with their parameters."""

from typing import Any

from runyard.embedded.kube.openapi.types import reference
from runyard.embedded.kube.resources import Object, Resource

_LIST = (
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
)
_WRITE = (("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"))
_PATCH = (*_WRITE, ("force", "boolean"))
_DELETE = (
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
)
_MERGE = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
)
_STRATEGIC = "application/strategic-merge-patch+json"


def of(resource: Resource) -> Object:
    """The paths of one kind."""
    base = (
        f"/apis/{resource.group}/{resource.version}"
        if resource.group
        else f"/api/{resource.version}"
    )
    found: Object = {}
    whole = f"{base}/{resource.plural}"
    if resource.namespaced and resource.stored:
        found[whole] = {"get": _operation(resource, "list", _LIST)}
        whole = f"{base}/namespaces/{{namespace}}/{resource.plural}"
    found[whole] = _collection(resource)
    if resource.stored:
        found[f"{whole}/{{name}}"] = _object(resource)
    for name in resource.subresources:
        if name == "status":
            status = _object(resource)
            del status["delete"]
            found[f"{whole}/{{name}}/status"] = status
    for path, item in found.items():
        item["parameters"] = _path_parameters(path)
    return found


def _collection(resource: Resource) -> Object:
    made: Object = {"post": _operation(resource, "post", _WRITE, body=True)}
    if resource.stored:
        made["get"] = _operation(resource, "list", _LIST)
        made["delete"] = _operation(resource, "deletecollection", (*_DELETE, *_LIST))
    return made


def _object(resource: Resource) -> Object:
    patch = _operation(resource, "patch", _PATCH)
    kinds = _MERGE if resource.custom else (*_MERGE, _STRATEGIC)
    anything = {"schema": {"type": "object"}}
    patch["requestBody"] = {"content": dict.fromkeys(kinds, anything), "required": True}
    return {
        "get": _operation(resource, "get", ()),
        "put": _operation(resource, "put", _WRITE, body=True),
        "patch": patch,
        "delete": _operation(resource, "delete", _DELETE),
    }


def _operation(
    resource: Resource, action: str, parameters: tuple[tuple[str, str], ...], *, body: bool = False
) -> Object:
    content = {"application/json": {"schema": {"$ref": reference(resource)}}}
    made: Object = {
        "operationId": f"{action}{resource.group.replace('.', '')}{resource.kind}",
        "parameters": [_parameter(name, kind) for name, kind in parameters],
        "responses": {"200": {"description": "OK", "content": content}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": kind_of(resource),
    }
    if body:
        made["requestBody"] = {"content": content, "required": True}
    return made


def kind_of(resource: Resource) -> Object:
    """How OpenAPI names a kind."""
    return {"group": resource.group, "kind": resource.kind, "version": resource.version}


def _parameter(name: str, kind: str) -> Object:
    return {"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": True}}


def _path_parameters(path: str) -> list[Any]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in ("namespace", "name")
        if f"{{{name}}}" in path
    ]
