"""Evaluates roles and bindings as a real server does.

Members of `system:masters` may do everything. For any other user some binding must name it (as user, as one of its
groups, or as ServiceAccount) and its role must have a rule that allows the action: a ClusterRoleBinding
everywhere, a RoleBinding in its own namespace only, and rules about paths only through a ClusterRoleBinding.

Bindings are indexed by subject once after each change of a role or binding, and what a user was granted is
cached by verb and resource, so that a decision is one dict lookup.
"""

from collections.abc import Callable, Iterable, Iterator

import msgspec

from runyard.embedded.kube.access.auth import MASTERS, NO, YES, Action, Decision, User
from runyard.embedded.kube.access.rules import Rule, rules_of
from runyard.embedded.kube.resources import Object

ACCOUNT = "system:serviceaccount:"
_SUFFIX = "rbac.authorization.k8s.io"
# The limits of the caches, which clients can fill: how many users, how many resources of each, and how many
# characters a resource or a user may have.
_USERS, _RESOURCES = 2048, 128
_LONGEST_USER, _LONGEST_RESOURCE = 1024, 256


class RbacObjects(msgspec.Struct, frozen=True, kw_only=True):
    """Every role and binding, as stored objects."""

    cluster_roles: tuple[Object, ...] = ()
    roles: tuple[Object, ...] = ()
    cluster_bindings: tuple[Object, ...] = ()
    bindings: tuple[Object, ...] = ()

    @classmethod
    def of(cls, objects: Iterable[Object]) -> "RbacObjects":
        """Sorts manifests of all four kinds."""
        kinds: dict[str, list[Object]] = {}
        for obj in objects:
            kinds.setdefault(obj["kind"], []).append(obj)
        return cls(
            cluster_roles=tuple(kinds.get("ClusterRole", ())),
            roles=tuple(kinds.get("Role", ())),
            cluster_bindings=tuple(kinds.get("ClusterRoleBinding", ())),
            bindings=tuple(kinds.get("RoleBinding", ())),
        )


class Grant(msgspec.Struct, frozen=True):
    """One rule that is granted to a user."""

    namespace: str  # empty: everywhere
    rule: Rule
    decision: Decision  # allowed, with the reason


class _Bound(msgspec.Struct, frozen=True):
    """One binding as it applies to one subject."""

    namespace: str
    role: tuple[str, str, str]  # kind, namespace, name
    reason: str


_Subject = tuple[str, str]
_Key = tuple[str, str, str, str, str | None]


class _Granted:
    """Everything that one user may do; dropped when a role or binding changes."""

    def __init__(self, grants: tuple[Grant, ...], broken: tuple[tuple[str, str], ...]) -> None:
        self.grants = grants
        self._broken = broken  # namespace and what is wrong with a binding there
        self._by_action: dict[_Key, tuple[Grant, ...]] = {}

    def decide(self, action: Action) -> Decision:
        """Whether some grant allows it."""
        key = (action.verb, action.group, action.plural, action.subresource, action.path)
        found = self._by_action.get(key)
        if found is None:
            found = self._cache(key, action)
        namespace, name = action.namespace, action.name
        for grant in found:
            scope, names = grant.namespace, grant.rule.names
            if (not scope or scope == namespace) and (not names or name in names):
                return grant.decision
        return self._refusal(namespace) if self._broken else NO

    def _cache(self, key: _Key, action: Action) -> tuple[Grant, ...]:
        found = tuple(
            grant
            for grant in self.grants
            if grant.rule.matches_except_name(action)
            and (action.path is None or not grant.namespace)
        )
        if sum([len(part) for part in key if part]) <= _LONGEST_RESOURCE:
            if len(self._by_action) >= _RESOURCES:
                self._by_action.clear()
            self._by_action[key] = found
        return found

    def _refusal(self, namespace: str) -> Decision:
        errors = [why for scope, why in self._broken if scope in ("", namespace)]
        return Decision(False, error=_joined(errors)) if errors else NO


class Rbac:
    """Decides by the roles and bindings that `read` returns; call `forget` after each change."""

    def __init__(self, read: Callable[[], RbacObjects]) -> None:
        self._read = read
        self._bound: dict[_Subject, list[_Bound]] | None = None
        self._rules: dict[tuple[str, str, str], tuple[Rule, ...]] = {}
        self._known: dict[tuple[str, tuple[str, ...]], _Granted] = {}

    def forget(self) -> None:
        """Drops the caches: roles or bindings have changed."""
        self._bound = None
        self._known.clear()

    def decide(self, user: User, action: Action) -> Decision:
        """Whether the user may do it."""
        if MASTERS in user.groups:
            return YES
        return self._granted(user).decide(action)

    def rules_for(self, user: User, namespace: str) -> Iterator[Rule]:
        """Every rule that a user has in a namespace, or with an empty one everywhere."""
        for grant in self._granted(user).grants:
            if grant.namespace in ("", namespace):
                yield grant.rule

    def role(self, kind: str, namespace: str, name: str) -> tuple[Rule, ...] | None:
        """The rules of a role; None if there is no such role."""
        self._index()
        return self._rules.get((kind, "" if kind == "ClusterRole" else namespace, name))

    # ---- indexing roles and bindings

    def _granted(self, user: User) -> _Granted:
        key = (user.name, user.groups)
        found = self._known.get(key)
        if found is None:
            found = self._collect(user)
            if sum([len(part) for part in (user.name, *user.groups)]) <= _LONGEST_USER:
                if len(self._known) >= _USERS:
                    self._known.clear()
                self._known[key] = found
        return found

    def _collect(self, user: User) -> _Granted:
        index = self._index()
        subjects = (("User", user.name), *(("Group", group) for group in user.groups))
        bindings = [each for subject in subjects for each in index.get(subject, ())]
        bindings.sort(key=lambda each: bool(each.namespace))  # cluster-wide ones count first
        grants: list[Grant] = []
        broken: dict[tuple[str, str], None] = {}
        for bound in bindings:
            rules = self._rules.get(bound.role)
            if rules is None:
                kind, _, name = bound.role
                broken[bound.namespace, f'{kind.lower()}.{_SUFFIX} "{name}" not found'] = None
                continue
            yes = Decision(True, reason=bound.reason)
            grants += [Grant(bound.namespace, rule, yes) for rule in rules]
        return _Granted(tuple(grants), tuple(broken))

    def _index(self) -> dict[_Subject, list[_Bound]]:
        if self._bound is not None:
            return self._bound
        objects = self._read()
        self._rules = {
            (
                role["kind"],
                role["metadata"].get("namespace", ""),
                role["metadata"]["name"],
            ): rules_of(role)
            for role in (*objects.cluster_roles, *objects.roles)
        }
        index: dict[_Subject, list[_Bound]] = {}
        for binding in (*objects.cluster_bindings, *objects.bindings):
            for subject, bound in _bound_subjects(binding):
                index.setdefault(subject, []).append(bound)
        self._bound = index
        return index


def account_user(namespace: str, name: str) -> str:
    """The user name of a ServiceAccount."""
    return f"{ACCOUNT}{namespace}:{name}"


def _bound_subjects(binding: Object) -> Iterable[tuple[_Subject, _Bound]]:
    meta, ref = binding["metadata"], binding.get("roleRef") or {}
    scope = meta.get("namespace", "")
    kind, name = ref.get("kind", ""), ref.get("name", "")
    role = (kind, "" if kind == "ClusterRole" else scope, name)
    own = f"{meta['name']}/{scope}" if scope else meta["name"]
    for subject in binding.get("subjects") or ():
        found = _subject(subject, scope)
        if found is not None:
            subject_key, shown = found
            reason = f'RBAC: allowed by {binding["kind"]} "{own}" of {kind} "{name}" to {shown}'
            yield subject_key, _Bound(scope, role, reason)


def _subject(given: Object, scope: str) -> tuple[_Subject, str] | None:
    kind, name = given.get("kind", ""), given.get("name", "")
    if kind in ("User", "Group"):
        return (kind, name), f'{kind} "{name}"'
    namespace = given.get("namespace") or scope
    if kind != "ServiceAccount" or not namespace:
        return None
    return ("User", account_user(namespace, name)), f'{kind} "{name}/{namespace}"'


def _joined(errors: list[str]) -> str:
    return errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
