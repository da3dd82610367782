"""Access reviews give the same answers as requests."""

from typing import Any

import pytest
from tests.embedded.kube_access.accesssupport import (
    BOB,
    BOSS,
    PODS,
    ROLES,
    SPACE,
    RbacHarness,
    play,
    rule,
)

AUTHORIZATION = "/apis/authorization.k8s.io/v1"
SELF = f"{AUTHORIZATION}/selfsubjectaccessreviews"
OTHERS = f"{AUTHORIZATION}/subjectaccessreviews"
RULES = f"{AUTHORIZATION}/selfsubjectrulesreviews"
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


def access_review(verb: str, resource: str = "pods", **more: str) -> dict[str, Any]:
    return {
        "spec": {
            "resourceAttributes": {"verb": verb, "resource": resource, "namespace": SPACE} | more
        }
    }


def test_self_access_reviews_match_the_roles() -> None:
    async def scenario(harness: RbacHarness) -> None:
        await harness.grant("bob", rule("pods", "list"))
        yes = await harness.ok(BOB, "POST", SELF, access_review("list"))
        assert yes["kind"] == "SelfSubjectAccessReview"
        assert yes["status"] == {
            "allowed": True,
            "reason": f'RBAC: allowed by RoleBinding "of-bob/{SPACE}" of Role "of-bob" to User "bob"',
        }
        for body in (
            access_review("get"),
            access_review("list", subresource="status"),
            access_review("list", namespace=""),
        ):
            assert (await harness.ok(BOB, "POST", SELF, body))["status"] == {"allowed": False}
        boss = await harness.ok(BOSS, "POST", SELF, access_review("delete"))
        assert boss["status"] == {"allowed": True}
        path = {"spec": {"nonResourceAttributes": {"path": "/version", "verb": "get"}}}
        assert (await harness.ok(BOB, "POST", SELF, path))["status"]["reason"] == (
            'RBAC: allowed by ClusterRoleBinding "system:discovery" of ClusterRole "system:discovery"'
            ' to Group "system:authenticated"'
        )
        await harness.ok(BOSS, "DELETE", f"{ROLES}/of-bob")
        why = 'role.rbac.authorization.k8s.io "of-bob" not found'
        assert (await harness.ok(BOB, "POST", SELF, access_review("list")))["status"] == {
            "allowed": False,
            "reason": f"RBAC: {why}",
            "evaluationError": why,
        }

    play(scenario)


def test_subject_access_reviews_need_a_right() -> None:
    async def scenario(harness: RbacHarness) -> None:
        await harness.grant("bob", rule("pods", "list"))
        body = access_review("list")
        body["spec"]["user"] = "bob"
        assert (await harness.send(BOB, "POST", OTHERS, body)).status == 403
        assert (await harness.ok(BOSS, "POST", OTHERS, body))["status"]["allowed"] is True
        body["spec"] |= {"user": "eve", "groups": ["devs"]}
        assert (await harness.ok(BOSS, "POST", OTHERS, body))["status"]["allowed"] is False

    play(scenario)


NONSENSE = {
    "about nothing": (SELF, {}, 422),
    "about both": (SELF, {"resourceAttributes": {}, "nonResourceAttributes": {}}, 422),
    "no text": (SELF, {"resourceAttributes": {"verb": 3}}, 422),
    "about nobody": (OTHERS, {"resourceAttributes": {"verb": "get"}}, 422),
    "rules of nowhere": (RULES, {}, 400),
}


@pytest.mark.parametrize("case", NONSENSE)
def test_an_invalid_review_is_refused(case: str) -> None:
    path, spec, code = NONSENSE[case]

    async def scenario(harness: RbacHarness) -> None:
        assert (await harness.send(BOSS, "POST", path, {"spec": spec})).status == code

    play(scenario)


def test_self_rules_reviews_list_the_rules_of_a_namespace() -> None:
    async def scenario(harness: RbacHarness) -> None:
        await harness.grant("bob", rule("pods", "list", resourceNames=["a"]))
        body = {"spec": {"namespace": SPACE}}
        status = (await harness.ok(BOB, "POST", RULES, body))["status"]
        mine = {"verbs": ["list"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}
        assert mine in status["resourceRules"] and status["incomplete"] is False
        assert any("/healthz" in each["nonResourceURLs"] for each in status["nonResourceRules"])
        elsewhere = await harness.ok(BOB, "POST", RULES, {"spec": {"namespace": "default"}})
        assert mine not in elsewhere["status"]["resourceRules"]
        boss = (await harness.ok(BOSS, "POST", RULES, body))["status"]["resourceRules"]
        assert {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]} in boss

    play(scenario)


def test_self_subject_reviews_return_the_caller() -> None:
    async def scenario(harness: RbacHarness) -> None:
        found = await harness.ok(BOB, "POST", WHO, {"kind": "SelfSubjectReview"})
        assert found["status"]["userInfo"] == {
            "username": "bob",
            "groups": ["devs", "system:authenticated"],
        }
        headers = (("impersonate-user", "eve"),)
        other = await harness.ok(BOSS, "POST", WHO, {}, headers=headers)
        assert other["status"]["userInfo"]["username"] == "eve"

    play(scenario)


def test_a_review_is_not_stored() -> None:
    async def scenario(harness: RbacHarness) -> None:
        before = harness.core.version
        await harness.ok(BOB, "POST", SELF, access_review("list"))
        assert harness.core.version == before
        assert (await harness.send(BOSS, "GET", SELF)).status == 405
        assert (await harness.send(BOB, "GET", PODS)).status == 403

    play(scenario)
