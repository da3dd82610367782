"""What a request to the Kubernetes API needs permission for, and whether the API grants it.

The attributes are those that the API server authorizes the request by, so a SelfSubjectAccessReview with them gets the
answer that the request itself would get from the roles. Every authenticated account may create that review (the
ClusterRole `system:basic-user`). It does not cover admission: a request that a policy or a quota rejects is allowed
by its roles.
"""

import msgspec

from runyard.http.messages import Request
from runyard.kube.client import Kube
from runyard.kube.errors import ServerFailed
from runyard.kube.kinds import SELF_ACCESS_REVIEWS

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """One verb on one resource; `name` is empty where the request is about the collection."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def full_resource(self) -> str:
        """The resource as a role names it: `pods/status`."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


class _Status(msgspec.Struct, frozen=True):
    allowed: bool = False


class _Review(msgspec.Struct, frozen=True):
    status: _Status = _Status()


def access_of(request: Request) -> Access:
    """Return what a request needs permission for; `resource` is empty for a path outside of the resources."""
    steps = request.path.strip("/").split("/")
    at = 2 if steps[0] == "api" else 3  # where the resource is, after the group's version
    group = steps[1] if at == 3 and len(steps) > 1 else ""
    namespace = ""
    if steps[at : at + 1] == ["namespaces"] and len(steps) > at + 2:
        namespace = steps[at + 1]
        at += 2
    resource, name, *deeper = (*steps[at:], "", "")
    return Access(
        verb=_verb(request, named=bool(name)),
        group=group,
        resource=resource,
        subresource="/".join(step for step in deeper if step),
        namespace=namespace,
        name=name,
    )


def _verb(request: Request, *, named: bool) -> str:
    match request.method:
        case "GET":
            return "watch" if request.param("watch") else "get" if named else "list"
        case "DELETE":
            return "delete" if named else "deletecollection"
        case method:
            return _VERBS.get(method, method.lower())


async def is_allowed(kube: Kube, access: Access) -> bool:
    """Return the result of a SelfSubjectAccessReview; raises `KubeError` if the API refuses the review."""
    answer = await kube.create(
        SELF_ACCESS_REVIEWS, {"spec": {"resourceAttributes": msgspec.structs.asdict(access)}}
    )
    try:
        return msgspec.convert(answer, _Review).status.allowed
    except msgspec.ValidationError as error:
        raise ServerFailed(
            200, "UnreadableAnswer", f"{SELF_ACCESS_REVIEWS.plural}: {error}"
        ) from error
