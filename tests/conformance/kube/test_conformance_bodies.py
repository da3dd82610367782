"""Bodies in protobuf, as kubectl sends them for kinds that it knows: read as the JSON that they stand for."""

import pytest
from tests.conformance.kube.kit import Api
from tests.conformance.kube.protobuf import KIND, envelope, field

AUTHZ = "/apis/authorization.k8s.io/v1"


def named(name: str) -> bytes:
    return field(1, field(1, name.encode()))


async def test_objects_are_created(api: Api) -> None:
    data = field(2, field(1, b"a") + field(2, b"1"))
    made = await api.create(api.maps(), envelope("ConfigMap", named("c") + data), kind=KIND)
    assert made["data"] == {"a": "1"} and made["metadata"]["namespace"] == api.space
    accounts = api.path("serviceaccounts")
    await api.create(accounts, envelope("ServiceAccount", named("guest")), kind=KIND)
    assert await api.names(accounts) == ["default", "guest"]
    space = api.own("more")
    await api.create("/api/v1/namespaces", envelope("Namespace", named(space)), kind=KIND)
    await api.ok("DELETE", f"/api/v1/namespaces/{space}")


async def test_an_object_that_is_cut_off_is_refused(api: Api) -> None:
    body = envelope("ConfigMap", named("c"))[:-3]
    assert await api.refused("POST", api.maps(), body, kind=KIND) == (400, "BadRequest")


async def test_a_token_is_issued_for_its_audience(api: Api) -> None:
    spec = field(2, field(1, b"somebody") + field(4, 600))
    body = envelope("TokenRequest", spec, version="authentication.k8s.io/v1")
    path = api.path("serviceaccounts", "default", "token")
    made = await api.create(path, body, kind=KIND)
    assert made["spec"]["audiences"] == ["somebody"]
    assert made["spec"]["expirationSeconds"] == 600 and made["status"]["token"]


async def test_reviews_are_answered(api: Api) -> None:
    what = field(1, api.space.encode()) + field(2, b"delete") + field(5, b"pods")
    review = envelope(
        "SelfSubjectAccessReview", field(2, field(1, what)), version="authorization.k8s.io/v1"
    )
    answer = await api.create(f"{AUTHZ}/selfsubjectaccessreviews", review, kind=KIND)
    assert answer["status"]["allowed"] is True
    assert answer["spec"]["resourceAttributes"]["resource"] == "pods"
    rules = envelope(
        "SelfSubjectRulesReview",
        field(2, field(1, api.space.encode())),
        version="authorization.k8s.io/v1",
    )
    answer = await api.create(f"{AUTHZ}/selfsubjectrulesreviews", rules, kind=KIND)
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    assert everything in answer["status"]["resourceRules"]


@pytest.mark.since(1, 28)
async def test_self_subject_reviews_are_answered(api: Api) -> None:
    body = envelope("SelfSubjectReview", b"", version="authentication.k8s.io/v1")
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    answer = await api.create(path, body, kind=KIND)
    assert "system:authenticated" in answer["status"]["userInfo"]["groups"]
