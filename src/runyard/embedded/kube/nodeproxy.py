"""Requests that a node answers, not this server: a Pod's log, exec, attach and port-forward.

The core checks who asks, what they may do and that the Pod is there, and then passes the request on, unchanged,
to the `NodeProxy` it was given. Without one the answer is 501 with a reason.
"""

from collections.abc import Awaitable, Callable

import msgspec

from runyard.embedded.kube.routes import Target
from runyard.embedded.kube.status import not_served
from runyard.http.messages import Request, Response, Stream

NodeProxy = Callable[[Target, Request], Awaitable[Response | Stream]]


class Passed(msgspec.Struct, frozen=True):
    """A request that was admitted and goes to a node."""

    target: Target


async def pass_on(proxy: NodeProxy | None, passed: Passed, request: Request) -> Response | Stream:
    """What the node answers."""
    if proxy is None:
        target = passed.target
        what = f"{target.resource.plural}/{target.subresource}: no node of this server answers it"
        return not_served(what).response()
    return await proxy(passed.target, request)
