"""Validation of each kind: an invalid object is refused with the field and the reason of a real server."""

from typing import Any

import pytest
from tests.embedded.kube.coresupport import MAPS, MERGE, NODES, PODS, Harness, play, pod

from runyard.embedded.kube.admission import service_class
from runyard.embedded.kube.nodeproxy.calls import NodeCall
from runyard.http.messages import Request, Response

RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
RUNTIMES = "/apis/node.k8s.io/v1/runtimeclasses"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
SECRETS = "/api/v1/namespaces/default/secrets"
REQUIRED, INVALID, TWICE = "FieldValueRequired", "FieldValueInvalid", "FieldValueDuplicate"
UNSUPPORTED = "FieldValueNotSupported"
NEEDED = "requiredDuringSchedulingIgnoredDuringExecution"
TERMS = f"spec.affinity.nodeAffinity.{NEEDED}.nodeSelectorTerms"


def one(**container: Any) -> dict[str, Any]:
    return pod(containers=[{"name": "c", "image": "i", **container}])


def named(**more: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x", **more.pop("meta", {})}, **more}


AFFINITY = {
    "nodeAffinity": {
        NEEDED: {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Near"}]}],
        }
    }
}
WRONG: dict[str, tuple[str, dict[str, Any], list[tuple[str, str]]]] = {
    "pod name": (PODS, pod("Upper"), [(INVALID, "metadata.name")]),
    "no containers": (PODS, pod(containers=[]), [(REQUIRED, "spec.containers")]),
    "no image": (PODS, one(image=""), [(REQUIRED, "spec.containers[0].image")]),
    "port": (
        PODS,
        one(ports=[{"containerPort": 70000}]),
        [(INVALID, "spec.containers[0].ports[0].containerPort")],
    ),
    "mount of nothing": (
        PODS,
        one(volumeMounts=[{"name": "v", "mountPath": "/v"}]),
        [("FieldValueNotFound", "spec.containers[0].volumeMounts[0].name")],
    ),
    "volume twice": (
        PODS,
        pod(volumes=[{"name": "v", "emptyDir": {}}] * 2),
        [(TWICE, "spec.volumes[1].name")],
    ),
    "request above limit": (
        PODS,
        one(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
        [(INVALID, "spec.containers[0].resources.requests")],
    ),
    "toleration": (
        PODS,
        pod(tolerations=[{"key": "a", "operator": "Perhaps"}, {"operator": "Equal"}]),
        [(UNSUPPORTED, "spec.tolerations[0].operator"), (INVALID, "spec.tolerations[1].operator")],
    ),
    "affinity": (
        PODS,
        pod(affinity=AFFINITY),
        [(INVALID, f"{TERMS}[0].matchExpressions[0].operator")],
    ),
    "spread": (
        PODS,
        pod(topologySpreadConstraints=[{"maxSkew": 0, "topologyKey": "a"}]),
        [
            (INVALID, "spec.topologySpreadConstraints[0].maxSkew"),
            (UNSUPPORTED, "spec.topologySpreadConstraints[0].whenUnsatisfiable"),
        ],
    ),
    "deadline": (PODS, pod(activeDeadlineSeconds=0), [(INVALID, "spec.activeDeadlineSeconds")]),
    "taint": (
        NODES,
        named(spec={"taints": [{"key": "a", "effect": "Never"}]}),
        [(UNSUPPORTED, "metadata.taints[0].effect")],
    ),
    "capacity": (
        NODES,
        named(status={"capacity": {"cpu": "-1"}, "allocatable": {"cpu": "1"}}),
        [(INVALID, "status.capacity.cpu")],
    ),
    "label": (MAPS, named(meta={"labels": {"a b": "c"}}), [(INVALID, "metadata.labels")]),
    "annotations": (
        MAPS,
        named(meta={"annotations": {"a": "x" * 300_000}}),
        [("FieldValueTooLong", "metadata.annotations")],
    ),
    "finalizer": (
        MAPS,
        named(meta={"finalizers": ["nobodys"]}),
        [(INVALID, "metadata.finalizers[0]")],
    ),
    "data key": (MAPS, named(data={"a b": "c"}), [(INVALID, "data[a b]")]),
    "key twice": (MAPS, named(data={"a": "b"}, binaryData={"a": "eA=="}), [(INVALID, "data[a]")]),
    "lease": (
        LEASES,
        named(spec={"leaseDurationSeconds": 0}),
        [(INVALID, "spec.leaseDurationSeconds")],
    ),
    "rule": (
        f"{RBAC}/roles",
        named(rules=[{"resources": ["pods"]}]),
        [(REQUIRED, "rules[0].verbs"), (REQUIRED, "rules[0].apiGroups")],
    ),
    "binding": (
        f"{RBAC}/rolebindings",
        named(roleRef={"kind": "Wish", "name": "r"}, subjects=[{"kind": "User"}]),
        [(UNSUPPORTED, "roleRef.kind"), (REQUIRED, "subjects[0].name")],
    ),
    "role name": (
        f"{RBAC}/roles",
        {"metadata": {"name": "a%b"}, "rules": []},
        [(INVALID, "metadata.name")],
    ),
    "handler": (RUNTIMES, named(), [(REQUIRED, "handler")]),
}


@pytest.mark.parametrize("case", WRONG)
def test_an_invalid_object_is_refused_with_its_field(case: str) -> None:
    path, body, causes = WRONG[case]

    async def scenario(harness: Harness) -> None:
        answer = await harness.call("POST", path, body)
        assert answer.status == 422, answer.body
        found = answer.json()["details"]["causes"]
        assert [(item["reason"], item["field"]) for item in found] == causes

    play(scenario)


FIXED: dict[str, tuple[str, dict[str, Any], dict[str, Any], tuple[str, str]]] = {
    "spec of a pod": (
        PODS,
        pod("x"),
        {"spec": {"hostNetwork": True}},
        ("FieldValueForbidden", "spec"),
    ),
    "tolerations": (
        PODS,
        pod("x", tolerations=[{"key": "a", "operator": "Exists"}]),
        {"spec": {"tolerations": []}},
        ("FieldValueForbidden", "spec.tolerations"),
    ),
    "immutable map": (
        MAPS,
        named(immutable=True, data={"a": "b"}),
        {"data": {"a": "c"}},
        ("FieldValueForbidden", "data"),
    ),
    "type of a secret": (SECRETS, named(), {"type": "a/b"}, (INVALID, "type")),
    "role of a binding": (
        f"{RBAC}/rolebindings",
        named(
            roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
            subjects=[],
        ),
        {"roleRef": {"name": "s"}},
        (INVALID, "roleRef"),
    ),
    "handler of a class": (RUNTIMES, named(handler="a"), {"handler": "b"}, (INVALID, "handler")),
}


@pytest.mark.parametrize("case", FIXED)
def test_immutable_fields_cannot_change(case: str) -> None:
    path, body, patch, cause = FIXED[case]

    async def scenario(harness: Harness) -> None:
        await harness.ok("POST", path, body)
        answer = await harness.call("PATCH", f"{path}/x", patch, kind=MERGE)
        assert answer.status == 422, answer.body
        found = answer.json()["details"]["causes"]
        assert [(item["reason"], item["field"]) for item in found] == [cause]

    play(scenario)


def test_a_pod_gets_the_fields_of_its_runtime_class_which_must_exist() -> None:
    async def scenario(harness: Harness) -> None:
        assert await harness.refused("POST", PODS, pod(runtimeClassName="vm")) == (403, "Forbidden")
        tolerated = {"key": "vm", "operator": "Exists"}
        body = {
            "metadata": {"name": "vm"},
            "handler": "vm",
            "overhead": {"podFixed": {"cpu": "250m"}},
            "scheduling": {"nodeSelector": {"kind": "metal"}, "tolerations": [tolerated]},
        }
        await harness.ok("POST", RUNTIMES, body)
        made = await harness.ok("POST", PODS, pod(runtimeClassName="vm"))
        assert made["spec"]["overhead"] == {"cpu": "250m"}
        assert made["spec"]["nodeSelector"] == {"kind": "metal"}
        assert tolerated in made["spec"]["tolerations"]
        other = pod("q", runtimeClassName="vm", nodeSelector={"kind": "cloud"})
        assert await harness.refused("POST", PODS, other) == (403, "Forbidden")

    play(scenario)


LIMITS = {"cpu": "1", "memory": "1Gi"}
CLASSES: dict[str, tuple[list[dict[str, Any]], str]] = {
    "nothing": ([{}], "BestEffort"),
    "limits": ([{"limits": LIMITS, "requests": LIMITS}], "Guaranteed"),
    "less than the limits": (
        [{"limits": LIMITS, "requests": {"cpu": "500m", "memory": "1Gi"}}],
        "Burstable",
    ),
    "one of two": ([{"limits": LIMITS, "requests": LIMITS}, {}], "Burstable"),
    "only processors": ([{"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}], "Burstable"),
    "other things": ([{"limits": {"example.com/gpu": "1"}}], "BestEffort"),
}


@pytest.mark.parametrize("case", CLASSES)
def test_the_qos_class_follows_from_requests_and_limits(case: str) -> None:
    given, expected = CLASSES[case]
    containers = [{"resources": item} for item in given]
    assert service_class({"containers": containers}) == expected


SERVING = {
    "addresses": [
        {"type": "Hostname", "address": "mini-1"},
        {"type": "InternalIP", "address": "10.0.0.7"},
    ],
    "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
}
CALLS = {
    "log": "/containerLogs/default/p/runner",
    "exec": "/exec/default/p/runner",
    "attach": "/attach/default/p/runner",
    "portforward": "/portForward/default/p",
}


@pytest.mark.parametrize("sub", CALLS)
def test_node_subresources_are_forwarded_or_refused_with_a_reason(sub: str) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.ok("POST", NODES, {"metadata": {"name": "n"}, "status": SERVING})
        container = {"name": "runner", "image": "vm:1"}
        await harness.ok("POST", PODS, pod(nodeName="n", containers=[container]))
        headers = (("connection", "keep-alive, Upgrade"), ("upgrade", "raw"), ("cookie", "x"))
        request = Request(method="GET", path=f"{PODS}/p/{sub}", headers=headers)
        assert (await harness.core.handle(request)).status == 501
        calls: list[NodeCall] = []

        async def node(call: NodeCall) -> Response:
            calls.append(call)
            return Response(status=200, body=b"from there")

        harness.core.proxy = node
        assert await harness.core.handle(request) == Response(status=200, body=b"from there")
        [call] = calls
        assert (call.node, call.host, call.port) == ("n", "10.0.0.7", 10250)
        assert (call.path, call.what) == (CALLS[sub], sub)
        given = (("upgrade", "raw"), ("connection", "Upgrade"))
        assert call.headers == (() if sub == "log" else given)
        assert (await harness.call("GET", f"{PODS}/q/{sub}")).status == 404, (
            "no such Pod: the node is not called"
        )
        assert len(calls) == 1

    play(scenario)


@pytest.mark.parametrize("port", [None, 0], ids=["absent", "zero"])
def test_a_node_without_a_kubelet_port_is_not_called(port: int | None) -> None:
    async def scenario(harness: Harness) -> None:
        ends = {} if port is None else {"daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}
        status = {"addresses": SERVING["addresses"], **ends}
        await harness.ok("POST", NODES, {"metadata": {"name": "n"}, "status": status})
        await harness.ok("POST", PODS, pod(nodeName="n"))
        given = (await harness.call("GET", f"{PODS}/p/log")).json()
        assert (given["code"], given["reason"]) == (501, "NotImplemented")
        assert "of the Node n: its status has no kubelet port" in given["message"]

    play(scenario)
