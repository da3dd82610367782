"""Authorizes every request, and checks the object that it would store.

    enter   whether this user may send that request: impersonation first, then the roles, then the host fence
    admit   whether this user may store this object: the host fence again, privilege escalation, certificate
            requests; it may also complete the object. A PUT or an apply that creates an object needs the right to
            create

A request is one synchronous step, so the gate holds the caller between the two. Writes of the built-in
controllers are not checked here.
"""

import msgspec

from runyard.embedded.kube.access.actions import Actions
from runyard.embedded.kube.access.auth import (
    ADMIN,
    Action,
    Authorize,
    User,
    always_allow,
)
from runyard.embedded.kube.access.certificates import Certificates
from runyard.embedded.kube.access.escalation import Escalation
from runyard.embedded.kube.access.fence import Fence, host_of
from runyard.embedded.kube.access.impersonation import impersonated
from runyard.embedded.kube.access.rbac import Rbac
from runyard.embedded.kube.resources import (
    CERTIFICATE_REQUESTS,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    ROLE_BINDINGS,
    ROLES,
    Object,
    Resource,
)
from runyard.embedded.kube.status import StatusError
from runyard.embedded.kube.storage.store import Store
from runyard.http.messages import Request

_CONNECTS = ("exec", "attach", "portforward")
GRANTING = (ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS)


class Gate:
    """Authorizes requests between authentication and the routes."""

    def __init__(
        self,
        store: Store,
        *,
        authorize: Authorize,
        rbac: Rbac | None,
        certificates: Certificates,
    ) -> None:
        self.authorize = authorize
        self.rbac = rbac
        self.user = ADMIN  # the current caller
        self.open = authorize is always_allow
        self._actions = Actions(store.catalogue)
        self._action = Action(verb="")  # the current action
        self._fence = Fence(store)
        self._certificates = certificates
        self._escalation = None if rbac is None else Escalation(rbac)

    def enter(self, user: User, request: Request) -> User:
        """Returns the caller after impersonation; raises 403 if the request is not allowed."""
        self.user = user
        if self.open:
            return user
        self.user = user = impersonated(user, request, self.check)
        self._action = action = self._actions.of(request)
        self.check(user, action)
        if action.verb == "get" and action.subresource in _CONNECTS:
            # A WebSocket starts with a GET: a right to get must not be enough for a shell.
            self.check(user, msgspec.structs.replace(action, verb="create"))
        if host := host_of(user):
            self._fence.check_request(host, action, request)
        return user

    def check(self, user: User, action: Action) -> None:
        """Raises 403 unless it is allowed."""
        decision = self.authorize(user, action)
        if not decision.allowed:
            raise refusal(user, action, decision.error)

    def admit(
        self, resource: Resource, new: Object, *, old: Object | None = None, subresource: str = ""
    ) -> Object:
        """Returns the object to store in place of `old`; raises 403 or 422."""
        if resource in GRANTING:
            if self._escalation is not None:
                self._escalation.check(self.user, resource, new, old=old or {})
        elif resource is CERTIFICATE_REQUESTS:
            new = self._certificates.admit(
                self.user, new, old=old, subresource=subresource, authorize=self.authorize
            )
        if self.open:
            return new
        if old is None and self._action.verb != "create":
            self.check(self.user, msgspec.structs.replace(self._action, verb="create"))
        if host := host_of(self.user):
            self._fence.check_object(host, resource, new, old=old)
        return new


def refusal(user: User, action: Action, error: str = "") -> StatusError:
    """A 403 with the message of a real server."""
    why = f'User "{user.name}" cannot {action.verb} '
    rbac = f": RBAC: {error}" if error else ""
    if action.path is not None:
        message = f'forbidden: {why}path "{action.path}"{rbac}'
        return StatusError(403, "Forbidden", message, {})
    where = f'in the namespace "{action.namespace}"' if action.namespace else "at the cluster scope"
    why += f'resource "{action.resource}" in API group "{action.group}" {where}{rbac}'
    return forbidden(action.group, action.plural, action.name, why)


def forbidden(group: str, plural: str, name: str, why: str) -> StatusError:
    """The caller is authenticated, and not allowed."""
    title = f"{plural}.{group}" if group else plural
    named = f'{title} "{name}"' if name else title
    given = (("name", name), ("group", group), ("kind", plural))
    details = {key: value for key, value in given if value}
    return StatusError(403, "Forbidden", f"{named} is forbidden: {why}", details)
