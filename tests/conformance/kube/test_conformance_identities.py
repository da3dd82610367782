"""Impersonation, reviews about other users, and what everybody may read."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.conformance.kube.kit import Api, Json
from tests.conformance.kube.test_conformance_access import AUTHN, AUTHZ, RBAC, account

CLUSTER = f"/apis/{RBAC}"
AUTHENTICATED = "system:authenticated"
ACCOUNTS = "system:serviceaccounts"


def acting(*expected: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((f"impersonate-{key}", value) for key, value in expected)


AS: dict[str, tuple[list[tuple[str, str]], list[str]]] = {
    "a user": ([("user", "bob")], [AUTHENTICATED]),
    "in groups": ([("user", "bob"), ("group", "g"), ("group", "h")], ["g", "h", AUTHENTICATED]),
    "a group twice": ([("user", "bob"), ("group", AUTHENTICATED)], [AUTHENTICATED]),
    "an account": (
        [("user", "system:serviceaccount:a:b.c")],
        [ACCOUNTS, f"{ACCOUNTS}:a", AUTHENTICATED],
    ),
    "an account in groups": (
        [("user", "system:serviceaccount:a:b"), ("group", "g")],
        ["g", AUTHENTICATED],
    ),
    "three parts": ([("user", "system:serviceaccount:a:b:c")], [AUTHENTICATED]),
    "no namespace": ([("user", "system:serviceaccount:A_:b")], [AUTHENTICATED]),
    "a namespace with a dot": ([("user", "system:serviceaccount:a.b:c")], [AUTHENTICATED]),
    "an empty namespace": ([("user", "system:serviceaccount::b")], [AUTHENTICATED]),
    "no account": ([("user", "system:serviceaccount:a:B_")], [AUTHENTICATED]),
    "an empty account": ([("user", "system:serviceaccount:a:")], [AUTHENTICATED]),
}


@pytest.mark.parametrize("case", AS)
async def test_impersonation_completes_the_groups(api: Api, case: str) -> None:
    result, groups = AS[case]
    me = await api.create(f"{AUTHN}/selfsubjectreviews", {}, headers=acting(*result))
    assert me["status"]["userInfo"] == {"username": result[0][1], "groups": groups}


@pytest.mark.parametrize(
    "expected",
    [
        [("user", "bob"), ("group", "system:unauthenticated")],
        [("user", "system:anonymous")],
        [("user", "system:anonymous"), ("group", "g")],
    ],
    ids=["unauthenticated", "anonymous", "anonymous in a group"],
)
async def test_impersonating_anonymous_is_unauthenticated(
    api: Api, expected: list[tuple[str, str]]
) -> None:
    answer = await api.refused("POST", f"{AUTHN}/selfsubjectreviews", {}, headers=acting(*expected))
    assert answer == (403, "Forbidden")


EXTRA = {
    "a%2fb": "a/b",
    "a%2Fb%2541": "a/b%41",
    "a%zz": "a%zz",
    "a%": "a%",
    "%C3%A9": "é",
    "plain": "plain",
}


@pytest.mark.parametrize("key", EXTRA)
async def test_a_key_of_extra_is_unescaped(api: Api, key: str) -> None:
    headers = acting(("user", "bob"), (f"extra-{key.lower()}", "v"), (f"extra-{key.lower()}", "w"))
    me = await api.create(f"{AUTHN}/selfsubjectreviews", {}, headers=headers)
    assert me["status"]["userInfo"]["extra"] == {EXTRA[key]: ["v", "w"]}


@asynccontextmanager
async def everywhere(api: Api, name: str, rules: list[Json], user: str) -> AsyncIterator[None]:
    """A user with these rights in the whole cluster, meanwhile."""
    name = api.own(name)
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    body = {"metadata": {"name": name}, "roleRef": ref, "subjects": [subject]}
    await api.create(f"{CLUSTER}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    try:
        await api.create(f"{CLUSTER}/clusterrolebindings", body)
        yield
    finally:
        await api.call("DELETE", f"{CLUSTER}/clusterrolebindings/{name}")
        await api.call("DELETE", f"{CLUSTER}/clusterroles/{name}")


async def may(api: Api, user: str, **attributes: Json) -> bool:
    body = {"spec": {"user": user, **attributes}}
    result = await api.create(f"{AUTHZ}/subjectaccessreviews", body)
    return bool(result["status"]["allowed"])


async def test_a_right_on_users_does_not_include_accounts(api: Api) -> None:
    caller = await account(api, "actor", [])
    user = f"system:serviceaccount:{api.space}:actor"
    rules = [
        {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"]},
        {
            "apiGroups": ["authentication.k8s.io"],
            "resources": ["userextras/a/b"],
            "verbs": ["impersonate"],
        },
    ]

    async def acts(name: str, *more: tuple[str, str]) -> bool:
        headers = acting(("user", name), *more)
        answer = await caller.call("POST", f"{AUTHN}/selfsubjectreviews", {}, headers=headers)
        assert answer.status in (201, 403), answer.body
        return answer.status == 201

    async with everywhere(api, "actor", rules, user):
        await api.eventually(lambda: acts("bob"))
        assert await acts("system:serviceaccount:a:b:c")
        assert not await acts("system:serviceaccount:a:b")
        assert await acts("bob", ("extra-a%2fb", "v"))
        assert not await acts("bob", ("extra-a%2fc", "v"))


async def test_a_path_without_a_name_is_no_resource(api: Api) -> None:
    user = api.own("all-resources")
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    async with everywhere(api, "all-resources", rules, user):
        nothing: Json = {"verb": "get", "resource": ""}

        async def check() -> bool | None:
            return await may(api, user, resourceAttributes=nothing) or None

        await api.eventually(check)
        assert not await may(api, user, nonResourceAttributes={"verb": "get", "path": ""})


async def test_an_aggregation_rule_needs_all_rights(api: Api) -> None:
    user = api.own("author")
    rules = [
        {
            "apiGroups": ["rbac.authorization.k8s.io"],
            "resources": ["clusterroles"],
            "verbs": ["create"],
        }
    ]
    selected = {"clusterRoleSelectors": [{"matchLabels": {api.own("to"): "all"}}]}
    body: Json = {"metadata": {"name": api.own("filled")}, "aggregationRule": selected}
    attributes = {
        "verb": "create",
        "resource": "clusterroles",
        "group": "rbac.authorization.k8s.io",
    }
    async with everywhere(api, "author", rules, user):

        async def check() -> bool | None:
            return await may(api, user, resourceAttributes=attributes) or None

        await api.eventually(check)
        result = await api.why(
            "POST", f"{CLUSTER}/clusterroles", body, headers=acting(("user", user))
        )
        assert (result["code"], result["reason"]) == (403, "Forbidden")
        assert "must have cluster-admin privileges to use the aggregationRule" in result["message"]


async def test_the_view_role_has_no_leases(api: Api) -> None:
    group = "coordination.k8s.io"
    for role, verbs in (("view", []), ("edit", ["delete", "get", "list", "watch"])):
        found = await api.get(f"{CLUSTER}/clusterroles/{role}")
        held = [
            verb
            for rule in found["rules"]
            if "leases" in rule.get("resources", ()) and group in rule["apiGroups"]
            for verb in rule["verbs"]
        ]
        assert [verb for verb in verbs if verb not in held] == []
        assert bool(held) is bool(verbs)


CHECKS = {"ping": 200, "log": 200, "etcd": 200, "anything": 404, "ping/x": 404}


@pytest.mark.parametrize("check", CHECKS)
async def test_an_unknown_health_check_is_not_found(api: Api, check: str) -> None:
    for path in ("/livez", "/readyz", "/healthz"):
        assert (await api.call("GET", f"{path}/{check}")).status == CHECKS[check]
    assert (await api.call("GET", "/livez/shutdown")).status == 404
    assert (await api.call("GET", "/readyz/shutdown")).status == 200
    caller = await account(api, "anybody", [])
    assert (await caller.call("GET", "/livez/ping")).status == 403
