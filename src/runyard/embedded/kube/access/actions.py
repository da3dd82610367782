"""From a request to the action that is asked for, as rules name it, before anybody looks whether it is served.

Permission comes first: somebody who may do nothing learns nothing about what exists. So a path is read here by
its form alone, as Kubernetes does, and the routes are asked afterwards.

    /api/v1/namespaces/x/pods/y/status     pods/status "y" in namespace x
    /api/v1/namespaces/x                   namespaces "x", which counts as being in namespace x
    /api/v1/nodes?fieldSelector=metadata.name=n    list of nodes, of one name: rules with names can allow it
    /healthz, /apis, /openapi/v3           a path
"""

from functools import lru_cache

from runyard.embedded.kube.access.auth import Action
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
_NAME = "metadata.name="


def action_of(request: Request) -> Action:
    """What the request asks for."""
    watch = exact = ""
    for key, value in request.query:
        if key == "watch":
            watch = value.lower()
        elif key == "fieldSelector":
            exact = _exact_name(value)
    return _action(request.method, request.path, watch in ("true", "1"), exact)


def _exact_name(selector: str) -> str:
    """The one name that a field selector asks for, if it does."""
    for term in selector.split(","):
        plain = term.replace("==", "=").strip()
        if plain.startswith(_NAME):
            return plain[len(_NAME) :]
    return ""


@lru_cache(maxsize=16384)
def _action(method: str, path: str, watch: bool, exact: str) -> Action:
    steps = [step for step in path.split("/") if step]
    if len(steps) >= 3 and steps[0] == "api":
        group, rest = "", steps[2:]
    elif len(steps) >= 4 and steps[0] == "apis":
        group, rest = steps[1], steps[3:]
    else:
        return Action(verb=method.lower(), path=path)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in _OWN_SUBRESOURCES:
            rest = rest[2:]
    name = rest[1] if len(rest) > 1 else ""
    verb = _METHODS.get(method, "")
    if not name and verb == "get":
        verb, name = "watch" if watch else "list", exact
    elif not name and verb == "delete":
        verb, name = "deletecollection", exact
    return Action(
        verb=verb,
        group=group,
        plural=rest[0],
        subresource=rest[2] if len(rest) > 2 else "",
        namespace=namespace,
        name=name,
    )
