"""Maps a request to the action that RBAC rules must allow.

Authorization comes first, so that a caller without rights learns nothing about what exists. A served path is parsed by
its route, once for authorization and for serving, so that both mean the same. Only an unknown path is parsed by its
form alone, as Kubernetes does, so that the refusal can name what was requested.

    /api/v1/namespaces/x/pods/y/status     pods/status "y" in namespace x
    /api/v1/namespaces/x                   namespaces "x", which counts as being in namespace x
    /api/v1/nodes?fieldSelector=metadata.name=n    list of nodes, of one name: rules with names can allow it
    /healthz, /apis, /openapi/v3           a path
"""

from runyard.embedded.kube.access.auth import Action
from runyard.embedded.kube.catalogue import Catalogue
from runyard.embedded.kube.reading import wants_watch
from runyard.embedded.kube.resources import NAMESPACES
from runyard.embedded.kube.routes import Target
from runyard.embedded.kube.selectors import exact_name
from runyard.embedded.kube.status import StatusError
from runyard.http.messages import Request

_METHODS = {
    "GET": "get",
    "HEAD": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_OWN_SUBRESOURCES = ("status", "finalize")  # of a namespace; anything else there is a resource
_CACHE_SIZE = 16384
_LONGEST_CACHED = 512  # the longest path that is cached

_Key = tuple[str, str, bool, str]


class Actions:
    """Maps requests to actions, and caches them until the served kinds change."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._edition = catalogue.edition
        self._cache: dict[_Key, Action] = {}

    def of(self, request: Request) -> Action:
        """Returns the action of the request."""
        watch, exact = False, ""
        if request.query:
            watch = wants_watch(request)
            if selector := request.param("fieldSelector"):
                exact = exact_name(selector)
        key = (request.method, request.path, watch, exact)
        if self._edition != self._catalogue.edition:
            self._cache.clear()
            self._edition = self._catalogue.edition
        found = self._cache.get(key)
        return self._parse_and_cache(key) if found is None else found

    def _parse_and_cache(self, key: _Key) -> Action:
        method, path, watch, exact = key
        found = self._parse(method, path, watch, exact)
        if len(path) + len(exact) + len(method) <= _LONGEST_CACHED:
            if len(self._cache) >= _CACHE_SIZE:
                self._cache.clear()
            self._cache[key] = found
        return found

    def _parse(self, method: str, path: str, watch: bool, exact: str) -> Action:
        try:
            found = _by_route(self._catalogue.parse(path))
        except StatusError:
            found = _by_form(path)
        if found.path is not None:
            return Action(verb=method.lower(), path=path)
        verb, name = _METHODS.get(method, ""), found.name
        if not name and verb == "get":
            verb, name = "watch" if watch else "list", exact
        elif not name and verb == "delete":
            verb = "deletecollection"
        return Action(
            verb=verb,
            group=found.group,
            plural=found.plural,
            subresource=found.subresource,
            namespace=found.namespace,
            name=name,
        )


def _by_route(target: Target) -> Action:
    """The action for a resource with a route."""
    resource = target.resource
    return Action(
        verb="",
        group=resource.group,
        plural=resource.plural,
        subresource=target.subresource,
        namespace=target.name if resource is NAMESPACES else target.namespace,
        name=target.name,
    )


def _by_form(path: str) -> Action:
    """The action for a path without a route."""
    steps = path.strip("/").split("/")
    if len(steps) >= 3 and steps[0] == "api":
        group, rest = "", steps[2:]
    elif len(steps) >= 4 and steps[0] == "apis":
        group, rest = steps[1], steps[3:]
    else:
        return Action(verb="", path=path)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in _OWN_SUBRESOURCES:
            rest = rest[2:]
    return Action(
        verb="",
        group=group,
        plural=rest[0],
        subresource=rest[2] if len(rest) > 2 else "",
        namespace=namespace,
        name=rest[1] if len(rest) > 1 else "",
    )
