"""The host fence: limits what a host's identity may write, beyond its role.

A host keeps its credential on its disk, which may be stolen. Roles cannot express "only the Pods that are bound to
this host", so the fence does: a host may write its own Node and its own Lease, the status and our finalizer of Pods
that are bound to it, Events about these, tokens of these Pods' accounts that are bound to the Pod, and a request for
its own serving certificate. Every other write is refused, also one that a role grants by mistake.

In a real cluster an admission policy does the same (`deploy/admission`). Neither restricts reads: for these the role
alone decides, and it names no Secret.
"""

from collections.abc import Iterable
from typing import Any

from runyard.embedded.kube import bodies
from runyard.embedded.kube.access.auth import Action, User
from runyard.embedded.kube.access.certificates import SERVING
from runyard.embedded.kube.access.rbac import account_user
from runyard.embedded.kube.access.requested import Requested, read_request
from runyard.embedded.kube.resources import (
    CERTIFICATE_REQUESTS,
    EVENTS,
    LEASES,
    NODES,
    PODS,
    SERVICE_ACCOUNTS,
    Object,
    Resource,
)
from runyard.embedded.kube.status import StatusError, forbidden
from runyard.embedded.kube.storage.store import Store
from runyard.http.messages import Request
from runyard.wire import names

_PREFIX = account_user(names.CONTROLLER_NAMESPACE, f"{names.NODE_AGENT}-")
_NODE_PREFIX, _NODES_GROUP = "system:node:", "system:nodes"
_READS = ("get", "list", "watch")
_CONNECTS = ("exec", "attach", "portforward")  # a WebSocket starts with a GET
_OWN_POD = "a host may only touch Pods that are bound to it"
_ALLOWED_ANNOTATIONS = (names.START_PROGRESS_AT,)
_SELF_REVIEWS = ("authentication.k8s.io", "authorization.k8s.io")


def host_of(user: User) -> str:
    """Returns the host of this identity; empty for other users."""
    if user.name.startswith(_PREFIX):
        return user.name[len(_PREFIX) :]
    if _NODES_GROUP in user.groups and user.name.startswith(_NODE_PREFIX):
        return user.name[len(_NODE_PREFIX) :]
    return ""


class Fence:
    """Refuses writes that no host may do."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def check_request(self, host: str, action: Action, request: Request) -> None:
        """Raises 403 if the request itself is not allowed; what it would store is checked afterwards."""
        if action.path or (action.verb in _READS and action.subresource not in _CONNECTS):
            return
        if action.verb == "deletecollection":
            raise _refused(action, "a host may not delete collections")
        what = (action.group, action.plural)
        if what in ((NODES.group, NODES.plural), (LEASES.group, LEASES.plural)):
            if action.name != host and not (action.verb == "create" and not action.name):
                raise _refused(action, f"a host may only write its own {action.plural}")
        elif what == (PODS.group, PODS.plural):
            self._check_pod(host, action)
        elif what == (SERVICE_ACCOUNTS.group, SERVICE_ACCOUNTS.plural):
            self._check_token(host, action, request)
        elif not _is_checked_later(action):
            raise _refused(action, "a host may not write this resource")

    def _check_pod(self, host: str, action: Action) -> None:
        if action.verb in ("create", "deletecollection") or action.subresource not in (
            "",
            "status",
        ):
            raise _refused(action, "a host may not create, bind or evict Pods")
        if not self._is_bound_to(host, action.namespace, action.name):
            raise _refused(action, _OWN_POD)

    def _is_bound_to(self, host: str, namespace: str, name: str) -> bool:
        """Whether the Pod is bound to the host; true for a missing Pod, which is reported as 404 later."""
        record = self._store.get(PODS, namespace, name)
        return record is None or bool(record.obj["spec"].get("nodeName", "") == host)

    def _check_token(self, host: str, action: Action, request: Request) -> None:
        if action.subresource != "token":
            raise _refused(action, "a host may not write ServiceAccounts")
        ref = _bound_ref(request)
        if ref.get("kind") != "Pod" or not ref.get("name"):
            raise _refused(action, "a host may only request tokens that are bound to a Pod")
        if not self._is_bound_to(host, action.namespace, str(ref["name"])):
            raise _refused(action, _OWN_POD)

    def check_object(
        self, host: str, resource: Resource, new: Object, *, old: Object | None
    ) -> None:
        """Raises 403 if the host may not store this object."""
        meta = new["metadata"]
        if resource in (NODES, LEASES):
            if meta["name"] != host:
                raise forbidden(resource, meta["name"], "a host may only write its own object")
        elif resource is PODS:
            if old is None or _changed(new, old):
                raise forbidden(
                    PODS, meta["name"], "a host may only change a Pod's status and our finalizer"
                )
        elif resource is EVENTS:
            self._check_event(host, new)
            if old is not None and old.get("involvedObject") != new.get("involvedObject"):
                raise forbidden(
                    EVENTS, meta["name"], "a host may not change the involvedObject of an Event"
                )
        elif resource is CERTIFICATE_REQUESTS:
            self._check_certificate(host, new)

    def _check_event(self, host: str, event: Object) -> None:
        involved = event.get("involvedObject") or {}
        kind, name = involved.get("kind"), str(involved.get("name", ""))
        own = kind == "Pod" and self._is_bound_to(host, str(involved.get("namespace", "")), name)
        if not own and not (kind == "Node" and name == host):
            why = "a host may only write Events about itself and about Pods that are bound to it"
            raise forbidden(EVENTS, event["metadata"]["name"], why)

    def _check_certificate(self, host: str, new: Object) -> None:
        name = new["metadata"]["name"]
        if new["spec"].get("signerName") != SERVING:
            why = f"a host may only request a certificate of the signer {SERVING}"
            raise forbidden(CERTIFICATE_REQUESTS, name, why)
        try:
            wanted = read_request(new["spec"].get("request", ""))
        except ValueError as error:
            raise forbidden(CERTIFICATE_REQUESTS, name, str(error)) from None
        if wanted.common_name != _NODE_PREFIX + host:
            why = f"a host may only request a certificate for {_NODE_PREFIX}{host}"
            raise forbidden(CERTIFICATE_REQUESTS, name, why)
        unknown = [each for each in _names(wanted) if each not in self._addresses(host)]
        if unknown:
            why = f"{unknown[0]} is not an address of the Node {host}"
            raise forbidden(CERTIFICATE_REQUESTS, name, why)

    def _addresses(self, host: str) -> tuple[str, ...]:
        record = self._store.get(NODES, "", host)
        given = record.obj.get("status", {}).get("addresses") if record is not None else None
        found = [each.get("address", "") for each in given or () if isinstance(each, dict)]
        return (host, *found)


def _names(wanted: Requested) -> Iterable[str]:
    return (*wanted.dns_names, *wanted.ip_addresses)


def _is_checked_later(action: Action) -> bool:
    """Whether the request is for a kind whose objects are checked at admission, or a review of the caller itself."""
    if (action.group, action.plural) == (EVENTS.group, EVENTS.plural):
        return action.verb in ("create", "patch", "update")
    if action.group == CERTIFICATE_REQUESTS.group:
        return action.verb == "create" and action.plural == CERTIFICATE_REQUESTS.plural
    return action.group in _SELF_REVIEWS and action.plural.startswith("self")


def _refused(action: Action, why: str) -> StatusError:
    title = f"{action.plural}.{action.group}" if action.group else action.plural
    named = f'{title} "{action.name}"' if action.name else title
    given = (("name", action.name), ("group", action.group), ("kind", action.plural))
    details = {key: value for key, value in given if value}
    return StatusError(403, "Forbidden", f"{named} is forbidden: {why}", details)


def _bound_ref(request: Request) -> Object:
    try:
        ref = bodies.decode(request, expected="TokenRequest")["spec"]["boundObjectRef"]
    except (StatusError, KeyError, TypeError):
        return {}
    return ref if isinstance(ref, dict) else {}


def _changed(new: Object, old: Object) -> bool:
    """Whether a Pod differs in a field that its host may not change."""
    if new.get("spec") != old.get("spec"):
        return True
    before, after = old["metadata"], new["metadata"]
    if any(before.get(key) != after.get(key) for key in ("labels", "ownerReferences")):
        return True
    kept = [_without(each.get("finalizers"), (names.VM_FINALIZER,)) for each in (before, after)]
    given = [_without(each.get("annotations"), _ALLOWED_ANNOTATIONS) for each in (before, after)]
    return bool(kept[0] != kept[1] or given[0] != given[1])


def _without(value: Any, ignored: tuple[str, ...]) -> Any:
    if isinstance(value, dict):
        return {key: each for key, each in value.items() if key not in ignored} or None
    return [each for each in value or () if each not in ignored] or None
