"""Maps requests for a Pod's log, exec, attach and port-forward to calls to its node.

This module builds the call from what is stored, in the step of the request itself, after authentication and
authorization. `passing` sends it.

    log           GET /containerLogs/NAMESPACE/POD/CONTAINER
    exec          /exec/NAMESPACE/POD/CONTAINER, upgraded
    attach        /attach/NAMESPACE/POD/CONTAINER, upgraded
    portforward   /portForward/NAMESPACE/POD, upgraded

The container is the named one, or the only one. (kubectl reads the annotation of the default container, and
sends the name.) For a Node without a port the response is 501: guessing kubelet's port could reach another program.

Only the headers that the protocol needs are passed to the node, and no credential: browsers, which cannot set headers
on a WebSocket, send theirs as one of the offered protocols, and that one is dropped too.
"""

from collections.abc import Awaitable, Callable

import msgspec

from runyard.embedded.kube.nodeproxy.options import log_query, port_query, stream_query
from runyard.embedded.kube.resources import NODES, PODS, Object
from runyard.embedded.kube.routes import Target
from runyard.embedded.kube.status import StatusError, bad_request, not_found, not_served
from runyard.embedded.kube.storage.store import Store
from runyard.http.messages import Pairs, Request, Response, Stream

_PATHS = {"log": "containerLogs", "exec": "exec", "attach": "attach", "portforward": "portForward"}
_PREFERRED = ("InternalIP", "Hostname")
_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")  # in the order of a refusal
_PASSED_HEADERS = ("user-agent", "upgrade", "x-stream-protocol-version")
_WEBSOCKET = "sec-websocket-"
_PROTOCOLS = _WEBSOCKET + "protocol"
_BEARER = "base64url.bearer.authorization.k8s.io."


class NodeCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call to a node."""

    node: str
    host: str
    port: int
    pod: str
    what: str  # log, exec, attach, portforward
    method: str
    path: str
    query: Pairs = ()
    headers: Pairs = ()


NodeProxy = Callable[[NodeCall], Awaitable[Response | Stream]]


def node_call(store: Store, target: Target, request: Request) -> NodeCall | Response:
    """The call for a request; raises a `StatusError` if there is none."""
    what = target.subresource
    query = _query(what, request, target.name)
    record = store.get(PODS, target.namespace, target.name)
    if record is None:
        raise not_found(PODS, target.name)
    steps = ["", _PATHS[what], target.namespace, target.name]
    if what != "portforward":
        steps.append(_container(request.param("container"), record.obj))
    node = record.obj["spec"].get("nodeName", "")
    if not node:
        if what == "log":
            return Response(status=204)
        raise bad_request(f"pod {target.name} does not have a host assigned")
    host, port = _endpoint(store, node, what)
    if what != "log" and not is_upgrade(request):
        raise bad_request("Upgrade request required")
    return NodeCall(
        node=node,
        host=host,
        port=port,
        pod=target.name,
        what=what,
        method=request.method,
        path="/".join(steps),
        query=query,
        headers=() if what == "log" else _headers(request),
    )


async def pass_on(proxy: NodeProxy | None, call: NodeCall) -> Response | Stream:
    """Sends the call, and returns the response of the node."""
    if proxy is None:
        return not_served(f"pods/{call.what}: this server has no connection to nodes").response()
    return await proxy(call)


def is_upgrade(request: Request) -> bool:
    """Whether the client wants an upgraded connection."""
    given = [value.lower() for key, value in request.headers if key == "connection"]
    return bool(request.header("upgrade")) and any("upgrade" in value for value in given)


def _query(what: str, request: Request, pod: str) -> Pairs:
    if what == "log":
        return log_query(request, pod)
    if what == "portforward":
        return port_query(request)
    return stream_query(request, command=what == "exec")


def _container(wanted: str, pod: Object) -> str:
    name, spec = pod["metadata"]["name"], pod["spec"]
    known = [each["name"] for kind in _CONTAINERS for each in spec.get(kind) or ()]
    if wanted:
        if wanted not in known:
            raise bad_request(f"container {wanted} is not valid for pod {name}")
        return wanted
    if len(spec["containers"]) == 1:
        return str(spec["containers"][0]["name"])
    message = f"a container name must be specified for pod {name}"
    raise bad_request(f"{message}, choose one of: [{' '.join(known)}]")


def _endpoint(store: Store, node: str, what: str) -> tuple[str, int]:
    """The address of a Node's kubelet API."""
    record = store.get(NODES, "", node)
    if record is None:
        raise not_found(PODS, node)  # as a real server does
    status = record.obj.get("status") or {}
    given = [(each.get("type"), each.get("address")) for each in status.get("addresses") or ()]
    host = next((at for kind in _PREFERRED for each, at in given if each == kind and at), "")
    if not host:
        known = " ".join(f"{{{kind} {at}}}" for kind, at in given)
        message = f"no preferred addresses found; known addresses: [{known}]"
        raise StatusError(500, "", message)
    port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port") or 0
    if port <= 0:
        raise not_served(f"pods/{what} of the Node {node}: its status has no kubelet port")
    return host, port


def _headers(request: Request) -> Pairs:
    kept = [
        (key, shown)
        for key, value in request.headers
        if (key in _PASSED_HEADERS or key.startswith(_WEBSOCKET))
        and (shown := _passed_value(key, value))
    ]
    return (*kept, ("connection", "Upgrade"))


def _passed_value(key: str, value: str) -> str:
    """A header without its hop-by-hop parts; empty: not passed."""
    if key != _PROTOCOLS or _BEARER not in value.lower():
        return value
    offered = (each.strip() for each in value.split(","))
    return ", ".join(each for each in offered if not each.lower().startswith(_BEARER))
