"""Prevents privilege escalation: a writer cannot grant more rights than it has.

The writer of a role must have every right in it already, or the verb `escalate` on that role; the writer of a
binding must have every right of its role, or the verb `bind` on it. Administrators may do both.
"""

from runyard.embedded.kube.access.auth import MASTERS, Action, User
from runyard.embedded.kube.access.rbac import Rbac
from runyard.embedded.kube.access.rules import Rule, rules_of, uncovered
from runyard.embedded.kube.resources import (
    CLUSTER_ROLES,
    RBAC,
    ROLES,
    Object,
    Resource,
)
from runyard.embedded.kube.status import StatusError, forbidden, not_found, not_served

_AGGREGATION = "aggregationRule"
_EVERYTHING = (
    Rule(verbs=("*",), groups=("*",), resources=("*",)),
    Rule(verbs=("*",), paths=("*",)),
)
_ROLES = {"Role": ROLES, "ClusterRole": CLUSTER_ROLES}


class Escalation:
    """Checks roles and bindings before they are stored."""

    def __init__(self, rbac: Rbac) -> None:
        self._rbac = rbac

    def check(self, user: User, resource: Resource, new: Object, *, old: Object) -> None:
        """Raises 403 if a role or binding would grant too much."""
        if resource in (ROLES, CLUSTER_ROLES):
            if new.get(_AGGREGATION) is not None or old.get(_AGGREGATION) is not None:
                self._check_aggregated(user, new)
            if new.get("rules") != old.get("rules"):
                self._check_role(user, resource, new)
        elif (new.get("roleRef"), new.get("subjects")) != (old.get("roleRef"), old.get("subjects")):
            self._check_bound(user, resource, new)

    def _check_aggregated(self, user: User, role: Object) -> None:
        """Aggregation rules need all rights: a labelled role may add any."""
        name = role["metadata"]["name"]
        action = Action(verb="escalate", group=RBAC, plural=CLUSTER_ROLES.plural, name=name)
        if not self._may(user, action) and uncovered(_EVERYTHING, self._rbac.rules_for(user, "")):
            why = f"must have cluster-admin privileges to use the {_AGGREGATION}"
            raise forbidden(CLUSTER_ROLES, name, why)
        if role.get(_AGGREGATION) is not None:
            raise not_served(f"the {_AGGREGATION} of a ClusterRole; write its rules")

    def _check_role(self, user: User, resource: Resource, role: Object) -> None:
        meta = role["metadata"]
        action = Action(
            verb="escalate",
            group=RBAC,
            plural=resource.plural,
            namespace=meta.get("namespace", ""),
            name=meta["name"],
        )
        if not self._may(user, action):
            self._check_held(user, resource, meta, rules_of(role))

    def _check_bound(self, user: User, resource: Resource, binding: Object) -> None:
        meta, ref = binding["metadata"], binding["roleRef"]
        namespace = meta.get("namespace", "")
        role = _ROLES[ref["kind"]]
        action = Action(
            verb="bind", group=RBAC, plural=role.plural, namespace=namespace, name=ref["name"]
        )
        if self._may(user, action):
            return
        rules = self._rbac.role(ref["kind"], namespace, ref["name"])
        if rules is None:
            raise not_found(
                resource, ref["name"]
            )  # a real server also puts the kind of the binding here
        self._check_held(user, resource, meta, rules)

    def _may(self, user: User, action: Action) -> bool:
        return MASTERS in user.groups or self._rbac.decide(user, action).allowed

    def _check_held(
        self, user: User, resource: Resource, meta: Object, rules: tuple[Rule, ...]
    ) -> None:
        held = self._rbac.rules_for(user, meta.get("namespace", ""))
        missing = uncovered(rules, held)
        if missing:
            raise _too_much(user, resource, meta["name"], missing)


def _too_much(user: User, resource: Resource, name: str, missing: list[Rule]) -> StatusError:
    joined: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    for part in missing:
        what = (part.groups, part.resources, part.names, part.paths)
        joined.setdefault(what, []).append(part.verbs[0])
    lines = sorted(
        str(Rule(verbs=tuple(verbs), groups=groups, resources=resources, names=names, paths=paths))
        for (groups, resources, names, paths), verbs in joined.items()
    )
    groups = " ".join(f'"{group}"' for group in user.groups)
    why = f'user "{user.name}" (groups=[{groups}]) is attempting to grant RBAC permissions not currently held:\n'
    return forbidden(resource, name, why + "\n".join(lines))
