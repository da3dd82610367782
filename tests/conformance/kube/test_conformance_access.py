"""Access control: tokens, roles, reviews, and the identity of a node."""

from tests.conformance.kube.kit import Api, Json, config, pod

RBAC = "rbac.authorization.k8s.io/v1"
AUTHN = "/apis/authentication.k8s.io/v1"
AUTHZ = "/apis/authorization.k8s.io/v1"


async def token(api: Api, account: str, **spec: object) -> Json:
    path = api.path("serviceaccounts", account, "token")
    return await api.create(path, {"spec": spec} if spec else {"spec": {}})


async def account(api: Api, name: str, rules: list[Json]) -> Api:
    """A client with a new ServiceAccount that has exactly these rules."""
    await api.create(api.path("serviceaccounts"), {"metadata": {"name": name}})
    await api.create(api.path("roles", group=RBAC), {"metadata": {"name": name}, "rules": rules})
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": api.space}],
    }
    await api.create(api.path("rolebindings", group=RBAC), binding)
    issued = await token(api, name)
    caller = api.as_caller(issued["status"]["token"])
    if rules:
        rule = rules[0]
        await granted(caller, rule["verbs"][0], rule["resources"][0], group=rule["apiGroups"][0])
    return caller


async def granted(caller: Api, verb: str, resource: str, *, group: str) -> None:
    """Waits until a new role takes effect."""

    async def check() -> bool | None:
        answer = await may(caller, verb, resource, group=group)
        return answer["allowed"] or None

    await caller.eventually(check)


async def may(caller: Api, verb: str, resource: str, **more: str) -> Json:
    attributes = {"namespace": caller.space, "verb": verb, "resource": resource, **more}
    body = {"spec": {"resourceAttributes": attributes}}
    answer = await caller.create(f"{AUTHZ}/selfsubjectaccessreviews", body)
    status: Json = answer["status"]
    return status


async def test_unauthenticated_requests_are_refused(api: Api) -> None:
    answer = await api.as_caller("").why("GET", api.maps())
    assert answer["code"] in (401, 403)
    answer = await api.as_caller("a-token-of-nobody").why("GET", api.maps())
    assert (answer["code"], answer["reason"]) == (401, "Unauthorized")


async def test_a_role_allows_only_its_rules(api: Api) -> None:
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]
    caller = await account(api, "reader", rules)
    await api.create(api.maps(), config())
    await caller.get(caller.maps("c"))
    assert await caller.names(caller.maps()) == ["c"]
    answer = await caller.why("DELETE", caller.maps("c"))
    assert (answer["code"], answer["reason"]) == (403, "Forbidden")
    assert answer["message"] == (
        f'configmaps "c" is forbidden: User "system:serviceaccount:{api.space}:reader" '
        f'cannot delete resource "configmaps" in API group "" in the namespace "{api.space}"'
    )
    assert answer["details"] == {"name": "c", "kind": "configmaps"}
    answer = await caller.why("GET", "/api/v1/nodes")
    assert answer["message"] == (
        f'nodes is forbidden: User "system:serviceaccount:{api.space}:reader" '
        'cannot list resource "nodes" in API group "" at the cluster scope'
    )
    assert await caller.refused("GET", "/api/v1/namespaces/default/configmaps") == (
        403,
        "Forbidden",
    )
    assert await caller.refused("GET", caller.maps(), watch="true") == (403, "Forbidden")


async def test_one_missing_verb_is_enough(api: Api) -> None:
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
    caller = await account(api, "worker", rules)
    await api.create(api.pods(), pod())
    assert await caller.refused("DELETE", caller.pods("p")) == (403, "Forbidden")


async def test_a_subresource_is_a_resource_of_its_own(api: Api) -> None:
    rules = [{"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]}]
    caller = await account(api, "agent", [])
    await api.create(api.pods(), pod())
    merge = "application/merge-patch+json"
    body = {"status": {"phase": "Running"}}
    path = caller.pods("p", "status")
    assert await caller.refused("PATCH", path, body, kind=merge) == (403, "Forbidden")
    await api.patch(api.path("roles", "agent", group=RBAC), {"rules": rules})

    async def check() -> bool | None:
        return (await caller.call("PATCH", path, body, kind=merge)).status == 200 or None

    await api.eventually(check)
    plain = {"metadata": {"labels": {"a": "b"}}}
    assert await caller.refused("PATCH", caller.pods("p"), plain, kind=merge) == (403, "Forbidden")


async def test_names_narrow_a_rule(api: Api) -> None:
    rules = [
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "verbs": ["get"],
            "resourceNames": ["mine"],
        }
    ]
    caller = await account(api, "narrow", [])
    await api.patch(api.path("roles", "narrow", group=RBAC), {"rules": rules})
    for name in ("mine", "other"):
        await api.create(api.maps(), config(name))

    async def check() -> bool | None:
        return (await caller.call("GET", caller.maps("mine"))).status == 200 or None

    await api.eventually(check)
    assert await caller.refused("GET", caller.maps("other")) == (403, "Forbidden")
    assert await caller.refused("GET", caller.maps()) == (403, "Forbidden")


async def test_a_user_cannot_grant_more_than_its_own_rights(api: Api) -> None:
    rules = [
        {
            "apiGroups": ["rbac.authorization.k8s.io"],
            "resources": ["roles"],
            "verbs": ["create", "get"],
        }
    ]
    caller = await account(api, "climber", rules)
    grant = {
        "metadata": {"name": "more"},
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}],
    }
    answer = await caller.refused("POST", caller.path("roles", group=RBAC), grant)
    assert answer == (403, "Forbidden")


async def test_callers_can_review_their_own_access(api: Api) -> None:
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]
    caller = await account(api, "asker", rules)
    assert (await may(caller, "get", "configmaps"))["allowed"] is True
    denied = await may(caller, "delete", "configmaps")
    assert denied["allowed"] is False
    body = {
        "spec": {
            "user": f"system:serviceaccount:{api.space}:asker",
            "resourceAttributes": {
                "namespace": api.space,
                "verb": "get",
                "resource": "configmaps",
            },
        }
    }
    answer = await api.create(f"{AUTHZ}/subjectaccessreviews", body)
    assert answer["status"]["allowed"] is True


async def test_callers_can_review_their_own_identity(api: Api) -> None:
    caller = await account(api, "me", [])
    answer = await caller.create(f"{AUTHN}/selfsubjectreviews", {})
    info = answer["status"]["userInfo"]
    assert info["username"] == f"system:serviceaccount:{api.space}:me"
    assert sorted(info["groups"]) == [
        "system:authenticated",
        "system:serviceaccounts",
        f"system:serviceaccounts:{api.space}",
    ]


# ---- tokens


async def review(api: Api, text: str, *audiences: str) -> Json:
    spec: Json = {"token": text}
    if audiences:
        spec["audiences"] = list(audiences)
    answer = await api.create(f"{AUTHN}/tokenreviews", {"spec": spec})
    status: Json = answer["status"]
    return status


async def test_a_token_is_for_its_audience(api: Api) -> None:
    issued = await token(api, "default", audiences=["dispatch"], expirationSeconds=3600)
    assert issued["kind"] == "TokenRequest"
    assert issued["spec"]["expirationSeconds"] == 3600
    assert issued["status"]["expirationTimestamp"]
    text = issued["status"]["token"]
    answer = await review(api, text, "dispatch")
    assert answer["authenticated"] is True and answer["audiences"] == ["dispatch"]
    assert answer["user"]["username"] == f"system:serviceaccount:{api.space}:default"
    assert not (await review(api, text, "another")).get("authenticated")
    assert not (await review(api, text)).get("authenticated")
    assert (await api.as_caller(text).why("GET", api.maps()))["code"] == 401


async def test_a_token_bound_to_a_pod_is_revoked_with_it(api: Api) -> None:
    made = await api.create(api.pods(), pod())
    uid = made["metadata"]["uid"]
    bound = {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": uid}
    issued = await token(api, "default", audiences=["dispatch"], boundObjectRef=bound)
    text = issued["status"]["token"]
    answer = await review(api, text, "dispatch")
    assert answer["user"]["extra"]["authentication.kubernetes.io/pod-name"] == ["p"]
    assert answer["user"]["extra"]["authentication.kubernetes.io/pod-uid"] == [uid]
    await api.ok("DELETE", api.pods("p"))
    await api.create(api.pods(), pod())

    async def dead() -> bool | None:
        return not (await review(api, text, "dispatch")).get("authenticated") or None

    await api.eventually(dead)


async def test_a_token_is_bound_to_the_pod_of_its_uid(api: Api) -> None:
    await api.create(api.pods(), pod())
    bound = {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": "another"}
    path = api.path("serviceaccounts", "default", "token")
    answer = await api.refused("POST", path, {"spec": {"boundObjectRef": bound}})
    assert answer == (409, "Conflict")
    bound["name"] = "none"
    answer = await api.refused("POST", path, {"spec": {"boundObjectRef": bound}})
    assert answer == (404, "NotFound")


async def test_a_token_has_a_minimum_lifetime(api: Api) -> None:
    path = api.path("serviceaccounts", "default", "token")
    answer = await api.refused("POST", path, {"spec": {"expirationSeconds": 10}})
    assert answer == (422, "Invalid")


async def test_a_missing_account_has_no_token(api: Api) -> None:
    path = api.path("serviceaccounts", "none", "token")
    assert await api.refused("POST", path, {"spec": {}}) == (404, "NotFound")


async def test_an_invalid_token_is_not_authenticated(api: Api) -> None:
    answer = await review(api, "not.a.token")
    assert not answer.get("authenticated")
    assert answer.get("error")
