"""Roles and bindings: decisions, messages of a real server, and prevention of escalation."""

from typing import Any

import pytest
from tests.embedded.kube_access.accesssupport import (
    ACCOUNTS,
    APPLY,
    BINDINGS,
    BOB,
    BOSS,
    CLUSTER_BINDINGS,
    CLUSTER_ROLES,
    MERGE,
    NOBODY,
    PODS,
    RBAC,
    ROLES,
    SPACE,
    RbacHarness,
    group,
    play,
    rule,
    user,
)

from runyard.embedded.kube.access.auth import Action, User
from runyard.embedded.kube.access.rbac import Rbac, RbacObjects
from runyard.embedded.kube.access.rules import Rule, rule_of, uncovered

MAPS = f"/api/v1/namespaces/{SPACE}/configmaps"

# The answers of a server of version 1.36 to a user without rights.
REFUSALS = {
    "a list": (
        ("GET", PODS),
        f'pods is forbidden: User "bob" cannot list resource "pods" in API group "" in the namespace "{SPACE}"',
        {"kind": "pods"},
    ),
    "an object of the cluster": (
        ("GET", "/api/v1/nodes/n1"),
        'nodes "n1" is forbidden: User "bob" cannot get resource "nodes" in API group "" at the cluster scope',
        {"name": "n1", "kind": "nodes"},
    ),
    "a subresource": (
        ("PATCH", f"{PODS}/x/status"),
        (
            'pods "x" is forbidden: User "bob" cannot patch resource "pods/status" in API group ""'
            f' in the namespace "{SPACE}"'
        ),
        {"name": "x", "kind": "pods"},
    ),
    "a group": (
        ("DELETE", "/apis/coordination.k8s.io/v1/namespaces/default/leases"),
        (
            'leases.coordination.k8s.io is forbidden: User "bob" cannot deletecollection resource "leases"'
            ' in API group "coordination.k8s.io" in the namespace "default"'
        ),
        {"group": "coordination.k8s.io", "kind": "leases"},
    ),
    "a namespace, which is in itself": (
        ("GET", "/api/v1/namespaces/foo"),
        (
            'namespaces "foo" is forbidden: User "bob" cannot get resource "namespaces" in API group ""'
            ' in the namespace "foo"'
        ),
        {"name": "foo", "kind": "namespaces"},
    ),
    "what does not exist": (
        ("GET", "/apis/nope.io/v1/namespaces/d/foos/x"),
        (
            'foos.nope.io "x" is forbidden: User "bob" cannot get resource "foos" in API group "nope.io"'
            ' in the namespace "d"'
        ),
        {"name": "x", "group": "nope.io", "kind": "foos"},
    ),
    "a path": (("GET", "/foo"), 'forbidden: User "bob" cannot get path "/foo"', {}),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refusal_has_the_message_of_a_real_server(case: str) -> None:
    (method, path), message, details = REFUSALS[case]

    async def scenario(harness: RbacHarness) -> None:
        answer = await harness.send(BOB, method, path)
        assert answer.status == 403
        assert answer.json() == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": "Forbidden",
            "details": details,
            "code": 403,
        }

    play(scenario)


def action(verb: str, resource: str = "pods", **more: str) -> Action:
    plural, _, sub = resource.partition("/")
    return Action(verb=verb, plural=plural, subresource=sub, **more)


ALLOWED = {
    "the verb": (rule("pods", "get"), action("get"), True),
    "another verb": (rule("pods", "get"), action("list"), False),
    "any verb": (rule("pods", "*"), action("whatever"), True),
    "another resource": (rule("pods", "get"), action("get", "nodes"), False),
    "another group": (rule("pods", "get", groups="apps"), action("get"), False),
    "any group": (rule("pods", "get", groups="*"), action("get", group="apps"), True),
    "a subresource is another resource": (rule("pods", "get"), action("get", "pods/status"), False),
    "a subresource by name": (rule("pods/status", "get"), action("get", "pods/status"), True),
    "but not the object of it": (rule("pods/status", "get"), action("get"), False),
    "that subresource of all": (rule("*/status", "get"), action("get", "pods/status"), True),
    "and no other": (rule("*/status", "get"), action("get", "pods/log"), False),
    "all resources, all parts": (rule("*", "get"), action("get", "pods/status"), True),
    "a name": (rule("pods", "get", resourceNames=["a"]), action("get", name="a"), True),
    "another name": (rule("pods", "get", resourceNames=["a"]), action("get", name="b"), False),
    "no name": (rule("pods", "list", resourceNames=["a"]), action("list"), False),
    "a path": (
        {"nonResourceURLs": ["/x"], "verbs": ["get"]},
        Action(verb="get", path="/x"),
        True,
    ),
    "below a path": (
        {"nonResourceURLs": ["/x"], "verbs": ["get"]},
        Action(verb="get", path="/x/y"),
        False,
    ),
    "paths": (
        {"nonResourceURLs": ["/x/*"], "verbs": ["get"]},
        Action(verb="get", path="/x/y"),
        True,
    ),
    "a path is no resource": (rule("*", "*", groups="*"), Action(verb="get", path="/x"), False),
    "nonsense": ({"verbs": "get", "resources": [3]}, action("get"), False),
}


@pytest.mark.parametrize("case", ALLOWED)
def test_a_rule_allows_exactly_its_actions(case: str) -> None:
    given, requested, allowed = ALLOWED[case]
    assert rule_of(given).allows(requested) is allowed
    role: dict[str, Any] = {"kind": "ClusterRole", "metadata": {"name": "r"}, "rules": [given]}
    binding = {
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "r"},
        "roleRef": {"kind": "ClusterRole", "name": "r"},
        "subjects": [user("bob")],
    }
    rbac = Rbac(lambda: RbacObjects.of((role, binding)))
    for _ in range(2):  # the second time from the cache
        assert rbac.decide(User(name="bob"), requested).allowed is allowed
        assert not rbac.decide(User(name="eve"), requested).allowed


SUBJECTS = {
    "a user": (user("bob"), BOB, True),
    "another user": (user("eve"), BOB, False),
    "a group": (group("devs"), BOB, True),
    "a group of that name is no user": (group("bob"), BOB, False),
    "every authenticated user": (group("system:authenticated"), NOBODY, True),
    "an account": (
        {"kind": "ServiceAccount", "name": "a", "namespace": "x"},
        ("system:serviceaccount:x:a",),
        True,
    ),
    "its namesake elsewhere": (
        {"kind": "ServiceAccount", "name": "a", "namespace": "x"},
        ("system:serviceaccount:y:a",),
        False,
    ),
    "all accounts of a namespace": (
        group("system:serviceaccounts:x"),
        ("system:serviceaccount:x:a", "system:serviceaccounts", "system:serviceaccounts:x"),
        True,
    ),
}


@pytest.mark.parametrize("case", SUBJECTS)
def test_a_binding_grants_to_its_subjects_only(case: str) -> None:
    subject, caller, allowed = SUBJECTS[case]

    async def scenario(harness: RbacHarness) -> None:
        await harness.role("reader", rule("pods", "list"))
        await harness.bind("reader", subject)
        assert (await harness.send(caller, "GET", PODS)).status == (200 if allowed else 403)

    play(scenario)


def test_a_role_applies_in_its_namespace_while_it_exists() -> None:
    async def scenario(harness: RbacHarness) -> None:
        assert (await harness.send(BOB, "GET", PODS)).status == 403
        await harness.grant("bob", rule("pods", "list"))
        assert (await harness.send(BOB, "GET", PODS)).status == 200
        assert (await harness.send(BOB, "GET", "/api/v1/pods")).status == 403
        assert (await harness.send(BOB, "GET", "/api/v1/namespaces/default/pods")).status == 403
        await harness.ok(BOSS, "PATCH", f"{ROLES}/of-bob", {"rules": []}, kind=MERGE)
        assert (await harness.send(BOB, "GET", PODS)).status == 403
        await harness.ok(BOSS, "DELETE", f"{ROLES}/of-bob")
        why = await harness.refused(BOB, "GET", PODS)
        assert why.endswith(': RBAC: role.rbac.authorization.k8s.io "of-bob" not found')
        await harness.ok(BOSS, "DELETE", f"{BINDINGS}/of-bob")
        assert "RBAC" not in await harness.refused(BOB, "GET", PODS)

    play(scenario)


def test_a_cluster_role_applies_everywhere_or_in_the_bound_namespace() -> None:
    async def scenario(harness: RbacHarness) -> None:
        await harness.role("r", rule("pods nodes", "list"), where=CLUSTER_ROLES)
        await harness.bind("r", user("bob"), role="ClusterRole")
        await harness.bind("r", user("eve"), role="ClusterRole", where=CLUSTER_BINDINGS)
        for path, bob in ((PODS, 200), ("/api/v1/pods", 403), ("/api/v1/nodes", 403)):
            assert (await harness.send(BOB, "GET", path)).status == bob
            assert (await harness.send(("eve",), "GET", path)).status == 200

    play(scenario)


def test_a_list_or_watch_of_one_name_is_allowed_by_that_name() -> None:
    async def scenario(harness: RbacHarness) -> None:
        await harness.grant("bob", rule("configmaps", "list get", resourceNames=["mine"]))
        await harness.ok(BOSS, "POST", MAPS, {"metadata": {"name": "mine"}})
        assert (await harness.send(BOB, "GET", MAPS)).status == 403
        only = await harness.ok(BOB, "GET", MAPS, fieldSelector="metadata.name=mine")
        assert [item["metadata"]["name"] for item in only["items"]] == ["mine"]
        other = await harness.send(BOB, "GET", MAPS, fieldSelector="metadata.name=other")
        assert other.status == 403

    play(scenario)


def test_an_apply_that_creates_needs_the_right_to_create() -> None:
    async def scenario(harness: RbacHarness) -> None:
        await harness.grant("bob", rule("configmaps", "patch"))
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}}
        body["metadata"] = {"name": "m"}
        options = {"kind": APPLY, "fieldManager": "bob"}
        why = await harness.refused(BOB, "PATCH", f"{MAPS}/m", body, **options)
        assert 'cannot create resource "configmaps"' in why
        await harness.ok(BOSS, "POST", MAPS, {"metadata": {"name": "m"}})
        assert (await harness.send(BOB, "PATCH", f"{MAPS}/m", body, **options)).status == 200

    play(scenario)


def test_default_roles_are_created_and_changes_to_them_are_kept() -> None:
    async def scenario(harness: RbacHarness) -> None:
        await harness.bind("admin", user("ann"), role="ClusterRole")
        await harness.bind("edit", user("ed"), role="ClusterRole")
        await harness.bind("view", user("vi"), role="ClusterRole")
        path = f"/api/v1/namespaces/{SPACE}/secrets"
        codes = {
            caller: [
                (await harness.send((caller,), "GET", PODS)).status,
                (await harness.send((caller,), "GET", path)).status,
                (await harness.send((caller,), "GET", ROLES)).status,
                (await harness.send((caller,), "GET", "/api/v1/nodes")).status,
            ]
            for caller in ("ann", "ed", "vi", "nobody")
        }
        assert codes == {
            "ann": [200, 200, 200, 403],
            "ed": [200, 200, 403, 403],
            "vi": [200, 403, 403, 403],
            "nobody": [403, 403, 403, 403],
        }
        for shown in ("/api", "/apis", "/api/v1", "/version", "/healthz", "/openapi/v3"):
            assert (await harness.send(NOBODY, "GET", shown)).status == 200, shown
        found = await harness.ok(BOSS, "GET", f"{CLUSTER_ROLES}/system:discovery")
        assert found["metadata"]["labels"] == {"kubernetes.io/bootstrapping": "rbac-defaults"}

    play(scenario)


GRANTOR = rule(
    "roles rolebindings clusterroles clusterrolebindings", "create update patch", groups=RBAC[6:-3]
)


def test_a_user_cannot_write_a_role_with_more_rights_than_its_own() -> None:
    async def scenario(harness: RbacHarness) -> None:
        await harness.grant_cluster_wide("bob", GRANTOR, rule("pods", "get"))
        wanted = [
            rule("pods pods/status", "list get"),
            rule("nodes", "get", resourceNames=["a", "b"]),
        ]
        body = {"metadata": {"name": "r1"}, "rules": wanted}
        why = await harness.refused(BOB, "POST", ROLES, body)
        assert why == (
            'roles.rbac.authorization.k8s.io "r1" is forbidden: user "bob" (groups=["devs"'
            ' "system:authenticated"]) is attempting to grant RBAC permissions not currently held:\n'
            '{APIGroups:[""], Resources:["nodes"], ResourceNames:["a"], Verbs:["get"]}\n'
            '{APIGroups:[""], Resources:["nodes"], ResourceNames:["b"], Verbs:["get"]}\n'
            '{APIGroups:[""], Resources:["pods"], Verbs:["list"]}\n'
            '{APIGroups:[""], Resources:["pods/status"], Verbs:["list" "get"]}'
        )
        body["rules"] = [rule("pods", "get")]
        await harness.ok(BOB, "POST", ROLES, body)
        more = {"rules": [rule("pods", "get delete")]}
        assert "not currently held" in await harness.refused(
            BOB, "PATCH", f"{ROLES}/r1", more, kind=MERGE
        )
        assert "not currently held" in await harness.refused(
            BOB, "POST", CLUSTER_ROLES, {**body, **more}
        )

    play(scenario)


def test_a_user_cannot_bind_a_role_with_more_rights_without_the_verb_bind() -> None:
    async def scenario(harness: RbacHarness) -> None:
        await harness.grant_cluster_wide("bob", GRANTOR)
        await harness.role("strong", rule("pods", "delete"))
        body = {
            "metadata": {"name": "x"},
            "roleRef": {"kind": "Role", "name": "strong"},
            "subjects": [user("bob")],
        }
        assert "not currently held" in await harness.refused(BOB, "POST", BINDINGS, body)
        group_name = RBAC[6:-3]
        await harness.grant(
            "bob", rule("roles", "bind", groups=group_name, resourceNames=["strong"])
        )
        await harness.ok(BOB, "POST", BINDINGS, body)
        assert (await harness.send(BOB, "DELETE", f"{PODS}/none")).status == 404
        missing = {**body, "metadata": {"name": "y"}, "roleRef": {"kind": "Role", "name": "no"}}
        assert (await harness.send(BOB, "POST", BINDINGS, missing)).status == 404

    play(scenario)


def test_the_verb_escalate_allows_adding_rights_to_a_role() -> None:
    async def scenario(harness: RbacHarness) -> None:
        await harness.grant_cluster_wide(
            "bob", GRANTOR, rule("roles", "escalate", groups=RBAC[6:-3])
        )
        body = {"metadata": {"name": "r1"}, "rules": [rule("*", "*")]}
        await harness.ok(BOB, "POST", ROLES, body)

    play(scenario)


INVALID = {
    "another role": (
        "PATCH",
        f"{BINDINGS}/b",
        {"roleRef": {"name": "x"}},
        (
            'roleRef: Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"Role","Name":"x"}:'
            " cannot change roleRef"
        ),
    ),
    "no such kind of role": (
        "POST",
        BINDINGS,
        {"metadata": {"name": "c"}, "roleRef": {"kind": "Foo", "name": "x"}},
        'roleRef.kind: Unsupported value: "Foo": supported values: "Role", "ClusterRole"',
    ),
    "no such kind of subject": (
        "POST",
        BINDINGS,
        {
            "metadata": {"name": "c"},
            "roleRef": {"kind": "Role", "name": "b"},
            "subjects": [{"kind": "Foo", "name": "x"}],
        },
        'subjects[0].kind: Unsupported value: "Foo": supported values: "ServiceAccount", "User", "Group"',
    ),
    "an account from nowhere": (
        "POST",
        CLUSTER_BINDINGS,
        {
            "metadata": {"name": "c"},
            "roleRef": {"kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "ServiceAccount", "name": "x"}],
        },
        "subjects[0].namespace: Required value",
    ),
    "a rule without verbs": (
        "POST",
        ROLES,
        {"metadata": {"name": "c"}, "rules": [{"apiGroups": [""], "resources": ["pods"]}]},
        "rules[0].verbs: Required value: verbs must contain at least one value",
    ),
    "a path in a namespace": (
        "POST",
        ROLES,
        {"metadata": {"name": "c"}, "rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]},
        'rules[0].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs',
    ),
    "a rule about nothing": (
        "POST",
        ROLES,
        {"metadata": {"name": "c"}, "rules": [{"verbs": ["get"], "apiGroups": [""]}]},
        "rules[0].resources: Required value: resource rules must supply at least one resource",
    ),
}


@pytest.mark.parametrize("case", INVALID)
def test_invalid_roles_and_bindings_are_refused_with_the_reason(case: str) -> None:
    method, path, body, why = INVALID[case]

    async def scenario(harness: RbacHarness) -> None:
        await harness.role("b", rule("pods", "get"))
        await harness.bind("b", user("bob"))
        kind = MERGE if method == "PATCH" else "application/json"
        answer = await harness.send(BOSS, method, path, body, kind=kind)
        assert answer.status == 422 and why in answer.json()["message"], answer.body

    play(scenario)


def test_a_binding_gets_its_default_api_groups() -> None:
    async def scenario(harness: RbacHarness) -> None:
        await harness.role("b", rule("pods", "get"))
        await harness.bind(
            "b", user("bob"), {"kind": "ServiceAccount", "name": "a", "namespace": "x"}
        )
        made = await harness.ok(BOSS, "GET", f"{BINDINGS}/b")
        assert made["roleRef"]["apiGroup"] == "rbac.authorization.k8s.io"
        assert [each.get("apiGroup") for each in made["subjects"]] == [
            "rbac.authorization.k8s.io",
            None,
        ]

    play(scenario)


def test_impersonation_needs_the_verb_impersonate() -> None:
    async def scenario(harness: RbacHarness) -> None:
        await harness.grant("bob", rule("pods", "list"))
        headers = (("impersonate-user", "bob"), ("impersonate-group", "devs"))
        assert (await harness.send(BOSS, "GET", PODS, headers=headers)).status == 200
        why = await harness.refused(NOBODY, "GET", PODS, headers=headers)
        assert 'users "bob" is forbidden: User "nobody" cannot impersonate resource "users"' in why
        path = f"/api/v1/namespaces/{SPACE}/secrets"
        assert 'User "bob"' in await harness.refused(BOSS, "GET", path, headers=headers)
        account = (("impersonate-user", f"system:serviceaccount:{SPACE}:a"),)
        assert 'serviceaccounts "a" is forbidden' in await harness.refused(
            BOB, "GET", PODS, headers=account
        )
        alone = (("impersonate-group", "system:masters"),)
        assert (await harness.send(NOBODY, "GET", PODS, headers=alone)).status == 400
        strong = (("impersonate-user", "nobody"), ("impersonate-group", "system:masters"))
        await harness.grant_cluster_wide("nobody", rule("users", "impersonate"))
        assert 'groups "system:masters"' in await harness.refused(
            NOBODY, "GET", PODS, headers=strong
        )

    play(scenario)


COVERED = {
    "the same": (Rule(verbs=("get",), groups=("",), resources=("pods",)), 0),
    "less": (Rule(verbs=("get",), groups=("",), resources=("pods",), names=("a",)), 0),
    "a verb more": (Rule(verbs=("get", "list"), groups=("",), resources=("pods",)), 1),
    "all verbs": (Rule(verbs=("*",), groups=("",), resources=("pods",)), 1),
    "all resources": (Rule(verbs=("get",), groups=("",), resources=("*",)), 1),
    "another group": (Rule(verbs=("get",), groups=("apps",), resources=("pods",)), 1),
    "a subresource": (Rule(verbs=("get",), groups=("",), resources=("pods/log",)), 1),
    "a path": (Rule(verbs=("get",), paths=("/x",)), 1),
}


@pytest.mark.parametrize("case", COVERED)
def test_held_rules_cover_only_their_own_rights(case: str) -> None:
    wanted, missing = COVERED[case]
    held = Rule(verbs=("get",), groups=("",), resources=("pods",))
    assert len(uncovered([wanted], [held])) == missing
    named = Rule(verbs=("get",), groups=("",), resources=("pods",), names=("a",))
    assert uncovered([held], [named])


def test_a_core_without_rbac_allows_everything() -> None:
    async def scenario(harness: RbacHarness) -> None:
        assert (await harness.send(NOBODY, "GET", PODS)).status == 200
        assert (await harness.send(NOBODY, "GET", f"{ACCOUNTS}/x")).status == 404
        assert (await harness.ok(NOBODY, "GET", CLUSTER_ROLES))["items"] == []

    play(scenario, roles=False)


def test_an_aggregation_rule_is_refused() -> None:
    async def scenario(harness: RbacHarness) -> None:
        selected = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
        body = {"metadata": {"name": "x"}, "aggregationRule": selected}
        answer = await harness.send(BOSS, "POST", CLUSTER_ROLES, body)
        assert answer.status == 501 and "aggregationRule" in answer.json()["message"]
        await harness.grant_cluster_wide(
            "bob", rule("clusterroles", "create patch", groups="rbac.authorization.k8s.io")
        )
        why = await harness.refused(BOB, "POST", CLUSTER_ROLES, body)
        assert "must have cluster-admin privileges to use the aggregationRule" in why
        await harness.role("x", where=CLUSTER_ROLES)
        change = {"aggregationRule": selected}
        await harness.refused(BOB, "PATCH", f"{CLUSTER_ROLES}/x", change, kind=MERGE)
        answer = await harness.send(BOSS, "PATCH", f"{CLUSTER_ROLES}/x", change, kind=MERGE)
        assert answer.status == 501

    play(scenario)
