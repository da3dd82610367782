"""Objects of every kind in protobuf: written, read, listed, watched and deleted, and the same as in JSON."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.conformance.kube.kit import Api, Json, config, node, pod
from tests.conformance.kube.test_conformance_certificates import REQUESTS
from tests.conformance.kube.test_conformance_certificates import request as certificate
from tests.conformance.kube.test_conformance_crds import CRDS, SCHEMA
from tests.conformance.kube.test_conformance_pools import path_of, pool

from runyard.embedded.kube.protobuf import wire
from runyard.embedded.kube.protobuf.decoding import PROTOBUF, decode
from runyard.embedded.kube.protobuf.encoding import STREAM, encoded
from runyard.http.messages import Response, Stream

JSON = "application/json"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
RULE = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
USER = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "é"}
META = "as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METAS = "as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
TABLE = "as=Table;g=meta.k8s.io;v=v1"


def own(api: Api, version: str, kind: str, **members: Any) -> Json:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": api.own("pb")}, **members}


def binding(api: Api, kind: str) -> Json:
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    version = "rbac.authorization.k8s.io/v1"
    return own(api, version, kind, subjects=[USER], roleRef=ref)


def large_pod(api: Api) -> Json:
    probe = {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 5}
    source = {"fieldRef": {"fieldPath": "metadata.name"}}
    container = {
        "name": "runner",
        "image": "vm:1",
        "env": [{"name": "A", "value": "é"}, {"name": "B", "valueFrom": source}],
        "resources": {"limits": {"cpu": "1500m", "memory": "0.5Gi"}},
        "ports": [{"name": "http", "containerPort": 80}],
        "readinessProbe": probe,
        "livenessProbe": {"tcpSocket": {"port": 80}},
        "securityContext": {"runAsUser": 0, "privileged": False},
        "volumeMounts": [{"name": "work", "mountPath": "/work"}],
    }
    token = {"serviceAccountToken": {"audience": "x", "expirationSeconds": 3600, "path": "token"}}
    volumes = [
        {"name": "work", "emptyDir": {"sizeLimit": "1Gi"}},
        {"name": "token", "projected": {"sources": [token], "defaultMode": 256}},
        {"name": "config", "configMap": {"name": "c", "optional": True}},
    ]
    need = {"key": "a", "operator": "In", "values": ["b"]}
    term = {"weight": 1, "preference": {"matchExpressions": [need]}}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    wait = {"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}
    meta = {"labels": {"b": "1", "a": "2"}, "finalizers": ["example.com/x"]}
    spec = {"containers": [container], "volumes": volumes, "affinity": affinity}
    return pod(api.own("pb"), meta=meta, tolerations=[wait], **spec)


def lease(api: Api) -> Json:
    spec = {
        "holderIdentity": "",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-02T03:04:05.000000Z",
        "renewTime": "2026-01-02T03:04:05.000600Z",
        "leaseTransitions": 0,
    }
    return own(api, "coordination.k8s.io/v1", "Lease", spec=spec)


def event(api: Api) -> Json:
    about = {"kind": "Pod", "namespace": api.space, "name": "p"}
    times = {"firstTimestamp": "2026-01-02T03:04:05Z", "count": 3}
    return own(api, "v1", "Event", involvedObject=about, reason="Test", type="Normal", **times)


def definition(api: Api) -> Json:
    kind = "Pb" + api.space.removeprefix("t-").capitalize()
    names = {
        "plural": kind.lower(),
        "singular": kind.lower(),
        "kind": kind,
        "listKind": f"{kind}List",
    }
    either: Json = {
        "type": "array",
        "items": {"type": "object", "additionalProperties": {"type": "number"}},
    }
    schema = {"type": "object", "properties": {**SCHEMA["properties"], "more": either}}
    column = {"name": "Image", "type": "string", "jsonPath": ".spec.image", "priority": 1}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
        "additionalPrinterColumns": [column],
    }
    spec = {"group": "pb.example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    body = own(api, "apiextensions.k8s.io/v1", "CustomResourceDefinition", spec=spec)
    return body | {"metadata": {"name": f"{kind.lower()}.pb.example.com"}}


def account(api: Api) -> Json:
    pulled = [{"name": "registry"}]
    return own(
        api, "v1", "ServiceAccount", imagePullSecrets=pulled, automountServiceAccountToken=False
    )


Made = tuple[str, Callable[[Api], Json]]
KINDS: dict[str, Made] = {
    "configmaps": (
        "",
        lambda api: config(api.own("pb"), {"b": "é", "a": ""}) | {"binaryData": {"c": "AP8="}},
    ),
    "secrets": (
        "",
        lambda api: own(api, "v1", "Secret", data={"a": "AP8="}, stringData={"b": "x"}),
    ),
    "serviceaccounts": ("", account),
    "pods": ("", large_pod),
    "events": ("", event),
    "leases": ("coordination.k8s.io/v1", lease),
    "roles": (
        "rbac.authorization.k8s.io/v1",
        lambda api: own(api, "rbac.authorization.k8s.io/v1", "Role", rules=[RULE]),
    ),
    "rolebindings": (
        "rbac.authorization.k8s.io/v1",
        lambda api: binding(api, "RoleBinding"),
    ),
    f"{RBAC}/clusterroles": (
        "",
        lambda api: own(api, "rbac.authorization.k8s.io/v1", "ClusterRole", rules=[RULE]),
    ),
    f"{RBAC}/clusterrolebindings": ("", lambda api: binding(api, "ClusterRoleBinding")),
    "/apis/node.k8s.io/v1/runtimeclasses": (
        "",
        lambda api: own(
            api,
            "node.k8s.io/v1",
            "RuntimeClass",
            handler="vm",
            overhead={"podFixed": {"cpu": "250m", "memory": "2560Mi"}},
        ),
    ),
    "/api/v1/nodes": ("", lambda api: node(api.own("pb"), labels={"a": "b"})),
    "/api/v1/namespaces": ("", lambda api: own(api, "v1", "Namespace")),
    REQUESTS: (
        "",
        lambda api: (
            own(api, "certificates.k8s.io/v1", "CertificateSigningRequest") | certificate(api)
        ),
    ),
    CRDS: ("", definition),
}


async def both(api: Api, path: str, **query: str) -> tuple[Json, bytes]:
    """The same state in JSON and in protobuf: nothing was written between the two."""

    async def check() -> tuple[Json, bytes] | None:
        before = await api.get(path, **query)
        answer = await api.call("GET", path, accept=PROTOBUF, **query)
        assert answer.status == 200 and answer.header("content-type") == PROTOBUF
        after = await api.get(path, **query)
        return (after, answer.body) if unversioned(before) == unversioned(after) else None

    return await api.eventually(check)


def unversioned(obj: Json) -> Json:
    """Without the version of a list, which other writes increment."""
    return obj if "items" not in obj else {**obj, "metadata": {}}


async def created(api: Api, path: str, body: Json) -> Json:
    raw = encoded(body)
    answer = await api.call("POST", path, raw, kind=PROTOBUF, accept=PROTOBUF)
    assert answer.status == 201 and answer.header("content-type") == PROTOBUF, answer.body
    return decode(answer.body)


@pytest.mark.since(1, 30)
@pytest.mark.parametrize("plural", KINDS)
async def test_a_kind_is_the_same_in_protobuf_as_in_json(api: Api, plural: str) -> None:
    group, make = KINDS[plural]
    path = plural if plural.startswith("/") else api.path(plural, group=group)
    body = make(api)
    name = body["metadata"]["name"]
    made = await created(api, path, body)
    assert made["metadata"]["uid"] and made["kind"] == body["kind"]
    shown, raw = await both(api, f"{path}/{name}")
    assert encoded(shown) == raw, "written otherwise than the server does"
    assert encoded(decode(raw)) == raw, "something is lost when it is read"
    one = {"fieldSelector": f"metadata.name={name}"}
    listed, raw = await both(api, path, **one)
    meta = decode(raw)["metadata"]
    assert encoded({**listed, "metadata": meta}) == raw and len(listed["items"]) == 1
    changes = await initial_events(api, path, **one)
    # Controllers of a real server may write the new object meanwhile.
    (first, *others) = [change for change, _ in changes]
    assert first == "ADDED" and set(others) <= {"MODIFIED"}
    assert changes[0][1]["metadata"]["uid"] == made["metadata"]["uid"]
    options = encoded({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0})
    answer = await api.call("DELETE", f"{path}/{name}", options, kind=PROTOBUF, accept=PROTOBUF)
    assert answer.status == 200 and decode(answer.body)["kind"] in (body["kind"], "Status")
    if plural == "pods":
        await api.patch(f"{path}/{name}", {"metadata": {"finalizers": None}})


async def initial_events(api: Api, path: str, **query: str) -> list[tuple[str, Json]]:
    """The events of a watch in protobuf that ends at once, without bookmarks."""
    stream = await api.send("GET", path, accept=PROTOBUF, watch="true", timeoutSeconds="1", **query)
    assert isinstance(stream, Stream) and dict(stream.headers)["content-type"] == STREAM
    data = b"".join([chunk async for chunk in stream])
    await stream.aclose()
    found: list[tuple[str, Json]] = []
    while data:
        size = int.from_bytes(data[:4], "big")
        event_fields = {number: raw for number, _, raw in wire.fields(data[4 : 4 + size])}
        inside = {number: raw for number, _, raw in wire.fields(bytes(event_fields[2]))}
        found.append((bytes(event_fields[1]).decode(), decode(bytes(inside[1]))))
        data = data[4 + size :]
    return found


async def test_an_object_is_replaced_in_protobuf(api: Api) -> None:
    body = lease(api)
    path = api.path("leases", group="coordination.k8s.io/v1")
    made = await created(api, path, body)
    made["spec"] |= {"holderIdentity": "somebody", "renewTime": "2026-01-02T03:04:06.000000Z"}
    raw = encoded(made)
    answer = await api.call("PUT", f"{path}/{api.own('pb')}", raw, kind=PROTOBUF, accept=PROTOBUF)
    assert answer.status == 200 and decode(answer.body)["spec"] == made["spec"]
    again = await api.call("PUT", f"{path}/{api.own('pb')}", raw, kind=PROTOBUF, accept=PROTOBUF)
    assert again.status == 409 and decode(again.body)["reason"] == "Conflict"
    assert decode(again.body)["details"]["name"] == api.own("pb")


async def test_a_body_without_a_kind_is_of_the_kind_of_its_path(api: Api) -> None:
    raw = encoded(config("named-by-path", {"a": "1"}))
    assert raw is not None
    unnamed = raw.replace(b"\n\x0f\n\x02v1\x12\x09ConfigMap", b"\n\x00")
    answer = await api.call("POST", api.maps(), unnamed, kind=PROTOBUF)
    assert answer.status == 201 and answer.json()["data"] == {"a": "1"}
    other = raw.replace(b"ConfigMap", b"ConfigMop")
    assert await api.refused("POST", api.maps(), other, kind=PROTOBUF) == (400, "BadRequest")


# What is answered to an Accept header: about a ConfigMap, all of them, one that is absent; then the same about pools.
ANSWERS: dict[str, tuple[Any, ...]] = {
    "": (JSON, JSON, JSON, JSON, JSON, JSON),
    "*/*": (JSON, JSON, JSON, JSON, JSON, JSON),
    PROTOBUF: (PROTOBUF, PROTOBUF, PROTOBUF, 406, 406, 406),
    f"{PROTOBUF},{JSON}": (PROTOBUF, PROTOBUF, PROTOBUF, JSON, JSON, PROTOBUF),
    f"{PROTOBUF}, */*": (PROTOBUF, PROTOBUF, PROTOBUF, JSON, JSON, PROTOBUF),
    f"{JSON},{PROTOBUF}": (JSON, JSON, JSON, JSON, JSON, JSON),
    f"{JSON};q=0.4,{PROTOBUF};q=0.5": (PROTOBUF, PROTOBUF, PROTOBUF, JSON, JSON, PROTOBUF),
    f"{PROTOBUF};{META}": (PROTOBUF, 406, JSON, PROTOBUF, 406, JSON),
    f"{PROTOBUF};{METAS},{JSON}": (406, PROTOBUF, JSON, None, PROTOBUF, JSON),
    f"{PROTOBUF};{TABLE}": (406, 406, 406, 406, 406, 406),
    f"{PROTOBUF};{TABLE},{JSON};{TABLE}": (JSON, JSON, JSON, JSON, JSON, JSON),
    f"{PROTOBUF};as=Other;g=meta.k8s.io;v=v1": (406, 406, 406, 406, 406, 406),
    f"{PROTOBUF};stream=watch": (PROTOBUF, PROTOBUF, PROTOBUF, 406, 406, 406),
    f"{PROTOBUF};stream=other,{JSON}": (JSON, JSON, JSON, JSON, JSON, JSON),
}


def form(answer: Response) -> int | str:
    return 406 if answer.status == 406 else answer.header("content-type")


@pytest.mark.since(1, 30)
async def test_the_form_of_an_answer_is_negotiated(api: Api) -> None:
    await api.create(api.maps(), config("c"))
    pools = await path_of(api)
    await api.create(pools, pool("p"))
    maps = api.maps()
    paths = (f"{maps}/c", maps, f"{maps}/absent", f"{pools}/p", pools, f"{pools}/absent")
    wrong: dict[tuple[str, str], tuple[Any, Any]] = {}
    for accept, expected in ANSWERS.items():
        for path, wanted in zip(paths, expected, strict=True):
            found = form(await api.call("GET", path, accept=accept))
            if wanted is not None and found != wanted:
                wrong[accept, path] = (found, wanted)
    assert not wrong
