"""Answers reviews: SelfSubjectAccessReview, SubjectAccessReview, SelfSubjectRulesReview and SelfSubjectReview.

Nothing is stored. The answers come from the same decisions that requests pass, so `kubectl auth can-i` cannot be
more optimistic than the server.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from runyard.embedded.kube.access.auth import Action, Authorize, Decision, User
from runyard.embedded.kube.access.rbac import Rbac
from runyard.embedded.kube.access.rules import Rule
from runyard.embedded.kube.resources import (
    ACCESS_REVIEWS,
    SELF_ACCESS_REVIEWS,
    SELF_REVIEWS,
    SELF_RULES_REVIEWS,
    Object,
    Resource,
)
from runyard.embedded.kube.status import Cause, bad_request, invalid
from runyard.wire.instants import to_rfc3339

_ALLOW_ALL = (
    Rule(verbs=("*",), groups=("*",), resources=("*",)),
    Rule(verbs=("*",), paths=("*",)),
)


class ResourceAttributes(msgspec.Struct, frozen=True):
    """An action on a resource."""

    namespace: str = ""
    verb: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""


class NonResourceAttributes(msgspec.Struct, frozen=True):
    """An action on a path."""

    path: str = ""
    verb: str = ""


class AccessSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The spec of an access review; the second half names another user."""

    resource_attributes: ResourceAttributes | None = None
    non_resource_attributes: NonResourceAttributes | None = None
    user: str = ""
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: dict[str, tuple[str, ...]] = {}


class Reviews:
    """Answers reviews."""

    def __init__(
        self, authorize: Authorize, rbac: Rbac | None, *, now: Callable[[], float]
    ) -> None:
        self._authorize = authorize
        self._rbac = rbac
        self._now = now

    def answer(self, resource: Resource, body: Object, user: User) -> Object | None:
        """The answered review; None for any other kind."""
        if resource is SELF_REVIEWS:
            meta = {"creationTimestamp": to_rfc3339(self._now())}
            return {**body, "metadata": meta, "status": {"userInfo": user_info(user)}}
        if resource is SELF_RULES_REVIEWS:
            return self._rules(body, user)
        if resource not in (SELF_ACCESS_REVIEWS, ACCESS_REVIEWS):
            return None
        spec = _spec(resource, body)
        if (spec.resource_attributes is None) == (spec.non_resource_attributes is None):
            why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
            raise invalid(resource, "", [Cause("spec.resourceAttributes", why)])
        if resource is ACCESS_REVIEWS:
            if not spec.user and not spec.groups:
                why = "at least one of user or group must be specified"
                raise invalid(resource, "", [Cause("spec.user", why)])
            user = User(name=spec.user, uid=spec.uid, groups=spec.groups, extra=_extra(spec))
        return {**body, "status": _status(self._authorize(user, _action(spec)))}

    def _rules(self, body: Object, user: User) -> Object:
        spec = body.get("spec")
        namespace = spec.get("namespace", "") if isinstance(spec, dict) else ""
        if not namespace or not isinstance(namespace, str):
            raise bad_request("no namespace on request")
        rules = _ALLOW_ALL if self._rbac is None else self._rbac.rules_for(user, namespace)
        listed = [rule.as_object() for rule in rules]
        status = {
            "resourceRules": [each for each in listed if "nonResourceURLs" not in each],
            "nonResourceRules": [each for each in listed if "nonResourceURLs" in each],
            "incomplete": False,
        }
        return {**body, "metadata": {}, "spec": {}, "status": status}


def user_info(user: User) -> Object:
    """A user, as reviews show it."""
    shown: Object = {"username": user.name}
    if user.uid:
        shown["uid"] = user.uid
    if user.groups:
        shown["groups"] = list(user.groups)
    extra: dict[str, list[str]] = {}
    for key, value in user.extra:
        extra.setdefault(key, []).append(value)
    return shown | {"extra": extra} if extra else shown


def _spec(resource: Resource, body: Object) -> AccessSpec:
    try:
        return msgspec.convert(body.get("spec", {}), AccessSpec)
    except msgspec.ValidationError as error:
        raise invalid(resource, "", [Cause("spec", str(error))]) from None


def _extra(spec: AccessSpec) -> tuple[tuple[str, str], ...]:
    return tuple((key, value) for key, values in spec.extra.items() for value in values)


def _action(spec: AccessSpec) -> Action:
    if (path := spec.non_resource_attributes) is not None:
        return Action(verb=path.verb, path=path.path)
    attributes = spec.resource_attributes
    assert attributes is not None
    return Action(
        verb=attributes.verb,
        group=attributes.group,
        plural=attributes.resource,
        subresource=attributes.subresource,
        namespace=attributes.namespace,
        name=attributes.name,
    )


def _status(decision: Decision) -> dict[str, Any]:
    status: dict[str, Any] = {"allowed": decision.allowed}
    if decision.reason:
        status["reason"] = decision.reason
    if decision.error:
        status["reason"] = f"RBAC: {decision.error}"
        status["evaluationError"] = decision.error
    return status
