"""Maps a method at a path to its RBAC verb, and defines what a PUT may do."""

from runyard.embedded.kube.reading import wants_watch
from runyard.embedded.kube.resources import (
    DEFINITIONS,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODE_SUBRESOURCES,
    RBAC,
    RUNTIME_CLASSES,
    Resource,
)
from runyard.embedded.kube.routes import Target
from runyard.embedded.kube.status import method_not_allowed
from runyard.http.messages import Request

_METHODS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def creates_on_put(resource: Resource) -> bool:
    """Whether a PUT creates a missing object."""
    return resource in (LEASES, EVENTS, RUNTIME_CLASSES) or resource.group == RBAC


def needs_version(resource: Resource) -> bool:
    """Whether a PUT must name the version that it replaces."""
    return resource.custom or resource in (LEASES, RUNTIME_CLASSES, DEFINITIONS)


def verb_of(target: Target, request: Request) -> str:
    """The verb as RBAC names it; raises 405 or 501 where that method is not supported."""
    method = "GET" if request.method == "HEAD" else request.method
    verb = _METHODS.get(method)
    sub, named = target.subresource, bool(target.name)
    if verb is None or (not target.resource.stored and (verb != "create" or named)):
        raise method_not_allowed(request.method)
    if sub in NODE_SUBRESOURCES:
        if verb not in ("create", "get") or (sub == "log" and verb != "get"):
            raise method_not_allowed(request.method)
        return verb
    if sub in ("token", "binding", "eviction"):
        if verb != "create":
            raise method_not_allowed(request.method)
        return verb
    if verb == "create":
        if named or (target.resource.namespaced and not target.namespace):
            raise method_not_allowed(request.method)
    elif verb == "get":
        if not named:
            return "watch" if wants_watch(request) else "list"
        return "get"
    elif not named:
        if verb == "delete" and _has_collection(target):
            return "deletecollection"
        raise method_not_allowed(request.method)
    elif verb == "delete" and sub:
        raise method_not_allowed(request.method)
    return verb


def _has_collection(target: Target) -> bool:
    """Whether a whole collection can be deleted at that path."""
    resource = target.resource
    return resource is not NAMESPACES and bool(target.namespace or not resource.namespaced)
