"""The client sends the right requests and maps each answer to a value or an error."""

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kube.kubesupport import Recorded, Script, listing, pod, refusal

from runyard.http.errors import NotSent, OutcomeUnknown
from runyard.http.messages import Request, Response, Stream, json_response
from runyard.kube import errors
from runyard.kube.client import Kube
from runyard.kube.kinds import EVENTS, LEASES, NODES, PODS, RUNNER_POOLS, SERVICE_ACCOUNTS, Kind
from runyard.kube.objects import Node, Pod, key, split_key


def talk(answer: Response | Stream, call: Any, **how: Any) -> tuple[Any, Request]:
    """Make one call against one answer; its result and the request it made."""
    transport = Recorded(lambda request: answer)
    result = asyncio.run(call(Kube(transport, **how)))
    assert len(transport.requests) == 1
    return result, transport.requests[0]


OK = json_response(200, {"metadata": {"name": "a"}})


@pytest.mark.parametrize(
    ("kind", "args", "path"),
    [
        (PODS, (), "/api/v1/pods"),
        (PODS, ("ns",), "/api/v1/namespaces/ns/pods"),
        (PODS, ("ns", "a"), "/api/v1/namespaces/ns/pods/a"),
        (PODS, ("ns", "a", "status"), "/api/v1/namespaces/ns/pods/a/status"),
        (NODES, ("", "a"), "/api/v1/nodes/a"),
        (NODES, ("ns", "a"), "/api/v1/nodes/a"),
        (LEASES, ("n", "a"), "/apis/coordination.k8s.io/v1/namespaces/n/leases/a"),
        (RUNNER_POOLS, (), "/apis/tuist.dev/v1alpha1/runnerpools"),
    ],
    ids=lambda value: value.plural if isinstance(value, Kind) else None,
)
def test_paths(kind: Kind, args: tuple[str, ...], path: str) -> None:
    assert kind.path(*args) == path


def test_api_versions() -> None:
    assert PODS.api_version == "v1"
    assert LEASES.api_version == "coordination.k8s.io/v1"


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../nodes/x", "a%2fb", "a?x=y", "a#b", "a b", "a\n", "a\x00"]
)
def test_a_name_that_would_address_something_else_is_refused_before_it_is_sent(name: str) -> None:
    transport = Recorded(lambda request: OK)
    kube = Kube(transport)
    for call in (
        kube.get(PODS, name, namespace="ns"),
        kube.delete(PODS, name, namespace="ns"),
        kube.patch(PODS, name, {}, namespace="ns"),
        kube.apply(PODS, name, {}, namespace="ns", manager="m"),
        kube.create_token(name, namespace="ns", audience="a", seconds=600),
    ):
        with pytest.raises(errors.Invalid):
            asyncio.run(call)
    assert transport.requests == []


def test_an_object_of_a_namespaced_kind_needs_its_namespace() -> None:
    transport = Recorded(lambda request: OK)
    kube = Kube(transport)
    for call in (kube.get(PODS, "a"), kube.delete(PODS, "a"), kube.create(PODS, {})):
        with pytest.raises(errors.Invalid):
            asyncio.run(call)
    assert transport.requests == []


@given(st.text(max_size=30), st.text(max_size=30))
def test_no_text_makes_a_path_of_another_shape(namespace: str, name: str) -> None:
    try:
        path = PODS.object_path(name, namespace=namespace)
    except errors.Invalid:
        return
    parts = path.split("/")
    assert parts[:4] == ["", "api", "v1", "namespaces"]
    assert parts[4:] == [namespace, "pods", name]


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        (refusal(400), errors.Invalid),
        (refusal(401), errors.Unauthorized),
        (refusal(403), errors.Forbidden),
        (refusal(404), errors.NotFound),
        (refusal(405), errors.Invalid),
        (refusal(409, "Conflict"), errors.Conflict),
        (refusal(409, "AlreadyExists"), errors.AlreadyExists),
        (refusal(410), errors.Gone),
        (refusal(418), errors.KubeError),
        (refusal(422), errors.Invalid),
        (refusal(429), errors.Throttled),
        (refusal(500), errors.ServerFailed),
        (refusal(503), errors.ServerFailed),
        (Response(status=502, body=b"<html>"), errors.ServerFailed),
        (Response(status=404, body=b"[1]"), errors.NotFound),
        (Response(status=404, body=b'{"reason": null, "message": null}'), errors.NotFound),
        (Response(status=302), errors.KubeError),
        (Response(status=200, body=b"<html>"), errors.ServerFailed),
        (Response(status=200, body=b"[]"), errors.ServerFailed),
        (Response(status=200), errors.ServerFailed),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else str(value.status),
)
def test_refusals_become_the_error_of_their_class(
    response: Response, kind: type[errors.KubeError]
) -> None:
    with pytest.raises(errors.KubeError) as caught:
        talk(response, lambda kube: kube.get(PODS, "a", namespace="ns"))
    assert type(caught.value) is kind
    assert caught.value.status == response.status
    assert "/api/v1/namespaces/ns/pods/a" in str(caught.value)


CAUSES = [
    pytest.param([{"field": "metadata.uid"}], errors.Conflict, id="another uid"),
    pytest.param(
        [{"field": "spec.x"}, {"field": "metadata.uid"}], errors.Conflict, id="among others"
    ),
    pytest.param([{"field": "spec.nodeName"}], errors.Invalid, id="another field"),
    pytest.param([{"reason": "x"}], errors.Invalid, id="no field"),
    pytest.param(None, errors.Invalid, id="none"),
]


@pytest.mark.parametrize(("causes", "kind"), CAUSES)
def test_a_patch_of_an_object_that_is_another_by_now_is_a_stale_plan(
    causes: object, kind: type[errors.KubeError]
) -> None:
    """The API reports an immutable field; in fact it is another object by now."""
    status = {"kind": "Status", "code": 422, "reason": "Invalid", "details": {"causes": causes}}
    with pytest.raises(errors.KubeError) as caught:
        talk(
            json_response(422, status),
            lambda kube: kube.patch(PODS, "a", {}, namespace="n", uid="old"),
        )
    assert type(caught.value) is kind


@pytest.mark.parametrize(("text", "seconds"), [("7", 7.0), ("", 0.0), ("soon", 0.0), ("-3", 0.0)])
def test_retry_after_is_read_if_it_is_a_number(text: str, seconds: float) -> None:
    with pytest.raises(errors.Throttled) as caught:
        talk(refusal(429, retry_after=text), lambda kube: kube.get(NODES, "a"))
    assert caught.value.retry_after == seconds


@pytest.mark.parametrize("error", [NotSent("x"), OutcomeUnknown("x")], ids=["not sent", "unknown"])
def test_transport_errors_pass_through_the_client_unchanged(error: Exception) -> None:
    script = Script([error], [])
    with pytest.raises(type(error)):
        asyncio.run(Kube(script).get(NODES, "a"))


def test_a_stream_in_place_of_an_answer_is_closed_and_is_an_unknown_outcome() -> None:
    closed: list[bool] = []

    async def nothing() -> Any:
        return
        yield b""

    stream = Stream(nothing(), on_close=lambda: closed.append(True))
    with pytest.raises(OutcomeUnknown):
        talk(stream, lambda kube: kube.delete(NODES, "a"))
    assert closed == [True]


def test_a_watch_refused_by_a_stream_is_closed_and_classified() -> None:
    closed: list[bool] = []

    async def nothing() -> Any:
        return
        yield b""

    stream = Stream(nothing(), status=410, on_close=lambda: closed.append(True))
    with pytest.raises(errors.Gone):
        talk(stream, lambda kube: kube.watch(NODES, resource_version="1"))
    assert closed == [True]
    with pytest.raises(errors.ServerFailed):
        talk(OK, lambda kube: kube.watch(NODES, resource_version="1"))


def test_credentials_and_agent_are_sent() -> None:
    _, request = talk(OK, lambda kube: kube.get(NODES, "a"), token=lambda: "secret", agent="me")
    assert request.header("authorization") == "Bearer secret"
    assert request.header("user-agent") == "me"
    assert request.header("accept") == "application/json"
    _, request = talk(OK, lambda kube: kube.get(NODES, "a"))
    assert request.header("authorization") == ""
    assert all(name == name.lower() for name, _ in request.headers)


def test_a_token_renewed_while_in_use_is_tried_once_more() -> None:
    tokens = iter(["old", "new", "newer", "newest"])
    transport = Recorded(
        lambda request: OK if request.header("authorization") == "Bearer new" else refusal(401)
    )
    asyncio.run(Kube(transport, token=lambda: next(tokens)).get(NODES, "a"))
    assert len(transport.requests) == 2
    with pytest.raises(errors.Unauthorized):
        asyncio.run(Kube(transport, token=lambda: "same").get(NODES, "a"))
    assert len(transport.requests) == 3


def test_a_list_follows_its_pages_and_keeps_its_selectors() -> None:
    script = Script(
        [
            listing(7, pod("a", 1), token="t1"),
            listing(7, pod("b", 2), token="t2"),
            listing(7, pod("c", 3)),
        ],
        [],
    )
    result = asyncio.run(Kube(script).list(PODS, labels="l=m", fields="f=g", limit=1))
    assert [item["metadata"]["name"] for item in result.items] == ["a", "b", "c"]
    assert result.resource_version == "7"
    assert [r.param("continue") for r in script.requests] == ["", "t1", "t2"]
    for request in script.requests:
        assert request.param("limit") == "1"
        assert request.param("labelSelector") == "l=m"
        assert request.param("fieldSelector") == "f=g"


def test_a_list_whose_pages_expired_begins_again_in_one_page() -> None:
    fresh = listing(9, pod("b", 8))
    script = Script([listing(7, pod("a", 1), token="t1"), refusal(410), fresh], [])
    result = asyncio.run(Kube(script).list(PODS))
    assert [item["metadata"]["name"] for item in result.items] == ["b"]
    assert result.resource_version == "9"
    assert script.requests[-1].param("limit") == script.requests[-1].param("continue") == ""


def test_a_list_is_complete_or_it_fails() -> None:
    script = Script([listing(7, pod("a", 1), token="t1"), refusal(500)], [])
    with pytest.raises(errors.ServerFailed):
        asyncio.run(Kube(script).list(PODS))


def test_an_empty_list_may_be_null() -> None:
    body = json_response(200, {"metadata": {"resourceVersion": "3"}, "items": None})
    result, _ = talk(body, lambda kube: kube.list(PODS))
    assert result.items == ()


def test_lists_and_objects_as_structs() -> None:
    result, _ = talk(listing(7, pod("a", 1, x="y")), lambda kube: kube.list_as(PODS, Pod))
    assert [p.metadata.labels for p in result] == [{"x": "y"}]
    bad = json_response(200, {"metadata": {"name": 7}})
    with pytest.raises(errors.ServerFailed):
        talk(bad, lambda kube: kube.get_as(NODES, "a", Node))


def test_create_fills_in_what_the_kind_knows() -> None:
    _, request = talk(
        OK, lambda kube: kube.create(PODS, {"metadata": {"name": "a"}}, namespace="n")
    )
    assert (request.method, request.path) == ("POST", "/api/v1/namespaces/n/pods")
    assert request.header("content-type") == "application/json"
    assert msgspec.json.decode(request.body) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a"},
    }


def test_a_patch_carries_its_preconditions_and_leaves_its_argument_alone() -> None:
    body = {"metadata": {"labels": {"a": None}}, "spec": {"replicas": 0}}
    before = msgspec.json.encode(body)
    _, request = talk(
        OK,
        lambda kube: kube.patch(
            PODS, "a", body, namespace="n", subresource="status", uid="u", resource_version="5"
        ),
    )
    assert (request.method, request.path) == ("PATCH", "/api/v1/namespaces/n/pods/a/status")
    assert request.header("content-type") == "application/merge-patch+json"
    assert msgspec.json.decode(request.body) == {
        "metadata": {"labels": {"a": None}, "uid": "u", "resourceVersion": "5"},
        "spec": {"replicas": 0},
    }
    assert msgspec.json.encode(body) == before
    _, request = talk(OK, lambda kube: kube.patch(NODES, "a", {"spec": {}}))
    assert msgspec.json.decode(request.body) == {"spec": {}}


def test_apply_names_its_manager_and_its_object() -> None:
    _, request = talk(
        OK,
        lambda kube: kube.apply(
            RUNNER_POOLS, "p", {"spec": {"replicas": 0}}, manager="m", namespace="n", force=True
        ),
    )
    assert request.header("content-type") == "application/apply-patch+yaml"
    assert (request.param("fieldManager"), request.param("force")) == ("m", "true")
    assert msgspec.json.decode(request.body) == {
        "apiVersion": "tuist.dev/v1alpha1",
        "kind": "RunnerPool",
        "metadata": {"name": "p", "namespace": "n"},
        "spec": {"replicas": 0},
    }


def test_delete_carries_grace_zero_and_preconditions() -> None:
    _, request = talk(
        OK,
        lambda kube: kube.delete(PODS, "a", namespace="n", uid="u", resource_version="5", grace=0),
    )
    assert request.method == "DELETE"
    assert msgspec.json.decode(request.body) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "u", "resourceVersion": "5"},
    }
    _, request = talk(OK, lambda kube: kube.delete(SERVICE_ACCOUNTS, "a", namespace="n"))
    assert msgspec.json.decode(request.body) == {"apiVersion": "v1", "kind": "DeleteOptions"}


def test_create_token_binds_it_to_the_pod() -> None:
    answer = json_response(201, {"status": {"token": "t", "expirationTimestamp": "x"}})
    token, request = talk(
        answer,
        lambda kube: kube.create_token(
            "sa", namespace="n", audience="aud", seconds=600, pod_name="p", pod_uid="u"
        ),
    )
    assert token == "t"
    assert request.path == "/api/v1/namespaces/n/serviceaccounts/sa/token"
    assert msgspec.json.decode(request.body)["spec"] == {
        "audiences": ["aud"],
        "expirationSeconds": 600,
        "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"},
    }


def test_review_token_reads_the_pod_out_of_the_claims() -> None:
    extra = {
        "authentication.kubernetes.io/pod-name": ["p"],
        "authentication.kubernetes.io/pod-uid": ["u"],
    }
    user = {"username": "system:serviceaccount:n:sa", "extra": extra, "groups": ["g"]}
    status = {"authenticated": True, "user": user, "audiences": ["aud"]}
    review, request = talk(
        json_response(201, {"status": status}),
        lambda kube: kube.review_token("secret", audiences=("aud",)),
    )
    assert request.path == "/apis/authentication.k8s.io/v1/tokenreviews"
    assert msgspec.json.decode(request.body)["spec"] == {"token": "secret", "audiences": ["aud"]}
    assert (review.authenticated, review.pod_name, review.pod_uid) == (True, "p", "u")
    assert (review.username, review.audiences) == ("system:serviceaccount:n:sa", ("aud",))


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"authenticated": False, "error": "expired"},
        {"authenticated": None, "user": None, "audiences": None},
        {"user": {"extra": {"authentication.kubernetes.io/pod-name": []}}},
    ],
    ids=["nothing", "refused", "nulls", "empty claim"],
)
def test_a_token_is_authenticated_only_if_the_api_says_so(status: dict[str, Any]) -> None:
    review, _ = talk(
        json_response(201, {"status": status}), lambda kube: kube.review_token("x", audiences=())
    )
    assert not review.authenticated
    assert review.pod_name == ""


def test_a_refused_review_does_not_repeat_the_token() -> None:
    with pytest.raises(errors.KubeError) as caught:
        talk(refusal(403), lambda kube: kube.review_token("s3cret", audiences=()))
    assert "s3cret" not in str(caught.value)


def test_keys() -> None:
    obj = Kube(Script([OK], [])).reader(Pod).of(pod("a", 1))
    assert key(obj) == "ns/a"
    assert split_key("ns/a") == ("ns", "a")
    assert split_key("/node") == ("", "node")
    assert EVENTS.kind == "Event"
