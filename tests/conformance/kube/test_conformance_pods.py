"""Pods and Nodes: defaults, bindings, scheduling, eviction, leases, Events."""

from typing import Any

import pytest
from tests.conformance.kube.kit import MERGE, STRATEGIC, Api, Json, causes, node, pod

SCHEDULED = {"schedulerName": "default-scheduler"}


async def test_a_pod_is_filled_in(api: Api) -> None:
    made = await api.create(api.pods(), pod())
    spec = made["spec"]
    expected = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "default",
        "serviceAccount": "default",
        "securityContext": {},
        "enableServiceLinks": True,
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    assert {key: spec.get(key) for key in expected} == expected
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    (container,) = spec["containers"]
    container.pop("volumeMounts", None)
    assert container == {
        "name": "runner",
        "image": "vm:1",
        "imagePullPolicy": "IfNotPresent",
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }


async def test_a_pod_tolerates_a_silent_node_for_a_while(api: Api) -> None:
    made = await api.create(api.pods(), pod())
    keys = ("not-ready", "unreachable")
    assert made["spec"]["tolerations"] == [
        {
            "key": f"node.kubernetes.io/{key}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        }
        for key in keys
    ]


@pytest.mark.parametrize(
    ("image", "policy"),
    [("vm", "Always"), ("vm:latest", "Always"), ("vm:1", "IfNotPresent")],
)
async def test_an_image_is_pulled_by_its_tag(api: Api, image: str, policy: str) -> None:
    made = await api.create(api.pods(), pod(containers=[{"name": "a", "image": image}]))
    assert made["spec"]["containers"][0]["imagePullPolicy"] == policy


@pytest.mark.parametrize(
    ("resources", "quality"),
    [
        ({}, "BestEffort"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
    ],
    ids=["none", "limits", "requests"],
)
async def test_limits_are_requests(api: Api, resources: Json, quality: str) -> None:
    container = {"name": "a", "image": "vm:1", "resources": resources}
    made = await api.create(api.pods(), pod(containers=[container]))
    assert made["status"]["qosClass"] == quality
    if "limits" in resources:
        filled = made["spec"]["containers"][0]["resources"]
        assert filled["requests"] == resources["limits"]


async def test_a_pod_needs_containers(api: Api) -> None:
    result = await api.why("POST", api.pods(), pod(containers=[]))
    assert causes(result) == [("FieldValueRequired", "spec.containers")]
    result = await api.why("POST", api.pods(), pod(containers=[{"name": "a"}]))
    assert causes(result) == [("FieldValueRequired", "spec.containers[0].image")]
    twice = [{"name": "a", "image": "vm:1"}] * 2
    result = await api.why("POST", api.pods(), pod(containers=twice))
    assert causes(result) == [("FieldValueDuplicate", "spec.containers[1].name")]


@pytest.mark.parametrize(
    ("spec", "reason", "field"),
    [
        ({"restartPolicy": "Sometimes"}, "FieldValueNotSupported", "spec.restartPolicy"),
        ({"nodeSelector": {"a": "not valid!"}}, "FieldValueInvalid", "spec.nodeSelector"),
    ],
    ids=["restart", "selector"],
)
async def test_a_pod_is_checked(api: Api, spec: Json, reason: str, field: str) -> None:
    result = await api.why("POST", api.pods(), pod(**spec))
    assert (result["code"], result["reason"]) == (422, "Invalid")
    assert causes(result) == [(reason, field)]


async def test_an_account_must_exist_before_its_pods(api: Api) -> None:
    result = await api.why("POST", api.pods(), pod(serviceAccountName="nobody"))
    assert (result["code"], result["reason"]) == (403, "Forbidden")
    assert result["message"] == (
        'pods "p" is forbidden: error looking up service account '
        f'{api.space}/nobody: serviceaccount "nobody" not found'
    )


async def test_the_server_sets_the_status_of_a_new_pod(api: Api) -> None:
    made = await api.create(api.pods(), {**pod(), "status": {"phase": "Running"}})
    assert made["status"]["phase"] == "Pending"


async def test_a_pod_is_bound_once(api: Api) -> None:
    await api.create(api.pods(), pod())
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": api.own("mac-1")},
    }
    result = await api.ok("POST", api.pods("p", "binding"), binding)
    assert (result["kind"], result["status"]) == ("Status", "Success")
    bound = await api.get(api.pods("p"))
    assert bound["spec"]["nodeName"] == api.own("mac-1")
    (condition,) = bound["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    assert await api.refused("POST", api.pods("p", "binding"), binding) == (409, "Conflict")


async def test_a_bound_pod_keeps_its_node(api: Api) -> None:
    await api.create(api.pods(), pod(nodeName=api.own("mac-1")))
    result = await api.refused("PATCH", api.pods("p"), {"spec": {"nodeName": "b"}}, kind=MERGE)
    assert result == (422, "Invalid")


# ---- nodes


async def test_a_node_begins_not_ready(api: Api) -> None:
    name = api.own("n")
    made = await api.create("/api/v1/nodes", node(name))
    assert {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"} in made["spec"]["taints"]
    assert made["status"]["allocatable"]["pods"] == "2"
    await api.ok("DELETE", f"/api/v1/nodes/{name}")


async def test_a_status_write_of_a_node_leaves_its_spec_alone(api: Api) -> None:
    name = api.own("n")
    await api.create("/api/v1/nodes", node(name))
    patch = {"spec": {"unschedulable": True}, "status": {"phase": "x", "capacity": {"pods": "9"}}}
    after = await api.patch(f"/api/v1/nodes/{name}/status", patch, kind=STRATEGIC)
    assert after["status"]["capacity"]["pods"] == "9"
    assert "unschedulable" not in after["spec"]
    await api.ok("DELETE", f"/api/v1/nodes/{name}")


async def ready_node(api: Api, name: str, **more: Any) -> str:
    """Adds a Node and waits until it is Ready and the scheduler may use it."""
    name = api.own(name)
    labels = {"kubernetes.io/hostname": name, "run": api.space} | more.pop("labels", {})
    await api.create("/api/v1/nodes", node(name, labels=labels, **more))

    async def trusted() -> bool | None:
        found = await api.get(f"/api/v1/nodes/{name}")
        taints = [item["key"] for item in found["spec"].get("taints", ())]
        return "node.kubernetes.io/not-ready" not in taints or None

    await api.eventually(trusted)
    return name


async def placed(api: Api, name: str) -> str:
    async def check() -> str | None:
        return (await api.get(api.pods(name)))["spec"].get("nodeName")

    return await api.eventually(check)


async def condition(api: Api, name: str) -> Json:
    """The scheduler's condition on a Pod that it cannot place."""

    async def check() -> Json | None:
        found = await api.get(api.pods(name))
        for item in found["status"].get("conditions", ()):
            if item["type"] == "PodScheduled" and item["status"] == "False":
                result: Json = item
                return result
        return None

    return await api.eventually(check)


def here(api: Api, **spec: Any) -> Json:
    return {**SCHEDULED, "nodeSelector": {"run": api.space}, **spec}


async def test_a_pod_is_scheduled_where_it_fits(api: Api) -> None:
    chosen = await ready_node(api, "n", labels={"tier": "gold"})
    other = await ready_node(api, "m", labels={"tier": "tin"})
    selector = {"run": api.space, "tier": "gold"}
    await api.create(api.pods(), pod(**{**SCHEDULED, "nodeSelector": selector}))
    assert await placed(api, "p") == chosen
    for name in (chosen, other):
        await api.ok("DELETE", f"/api/v1/nodes/{name}")


async def test_a_full_node_takes_no_more_pods(api: Api) -> None:
    name = await ready_node(api, "n", pods="1")
    await api.create(api.pods(), pod("a", **here(api)))
    assert await placed(api, "a") == name
    await api.create(api.pods(), pod("b", **here(api)))
    result = await condition(api, "b")
    assert result["reason"] == "Unschedulable"
    assert "Too many pods" in result["message"]
    await api.ok("DELETE", api.pods("a"), {"gracePeriodSeconds": 0})
    assert await placed(api, "b") == name
    await api.ok("DELETE", f"/api/v1/nodes/{name}")


async def test_a_taint_keeps_pods_away(api: Api) -> None:
    taint = {"key": "example.com/mac", "value": "x", "effect": "NoSchedule"}
    name = await ready_node(api, "n", spec={"taints": [taint]})
    await api.create(api.pods(), pod("a", **here(api)))
    result = await condition(api, "a")
    assert "untolerated taint" in result["message"]
    toleration = {"key": "example.com/mac", "operator": "Exists"}
    await api.create(api.pods(), pod("b", **here(api, tolerations=[toleration])))
    assert await placed(api, "b") == name
    await api.ok("DELETE", f"/api/v1/nodes/{name}")


async def test_an_unschedulable_pod_gets_an_event(api: Api) -> None:
    await api.create(api.pods(), pod(**here(api)))
    result = await condition(api, "p")
    assert "didn't match Pod's node affinity/selector" in result["message"] or (
        "no nodes available" in result["message"]
    )

    async def event() -> Json | None:
        query = "involvedObject.name=p,reason=FailedScheduling"
        listed = await api.get(api.path("events"), fieldSelector=query)
        return listed["items"][0] if listed["items"] else None

    found = await api.eventually(event)
    assert found["type"] == "Warning" and found["involvedObject"]["kind"] == "Pod"
    assert found["message"] == result["message"]


async def test_a_cordoned_node_takes_no_pods(api: Api) -> None:
    name = await ready_node(api, "n")
    path = f"/api/v1/nodes/{name}"
    await api.patch(path, {"spec": {"unschedulable": True}}, kind=STRATEGIC)
    await api.create(api.pods(), pod(**here(api)))
    result = await condition(api, "p")
    assert "unschedulable" in result["message"]
    await api.patch(path, {"spec": {"unschedulable": None}}, kind=STRATEGIC)
    assert await placed(api, "p") == name
    await api.ok("DELETE", path)


async def test_resources_are_counted(api: Api) -> None:
    name = await ready_node(api, "n", pods="10")
    limits = {"limits": {"cpu": "10", "memory": "1Gi"}}
    container = {"name": "a", "image": "vm:1", "resources": limits}
    await api.create(api.pods(), pod("a", **here(api, containers=[container])))
    assert await placed(api, "a") == name
    await api.create(api.pods(), pod("b", **here(api, containers=[container])))
    assert "Insufficient cpu" in (await condition(api, "b"))["message"]
    await api.ok("DELETE", f"/api/v1/nodes/{name}")


# ---- eviction, leases, Events


async def test_an_eviction_is_a_deletion(api: Api) -> None:
    await api.create(api.pods(), pod(nodeName=api.own("mac-1")))
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "p", "namespace": api.space},
    }
    result = await api.ok("POST", api.pods("p", "eviction"), body)
    assert (result["kind"], result["status"]) == ("Status", "Success")
    assert (await api.get(api.pods("p")))["metadata"]["deletionTimestamp"]
    assert await api.refused("POST", api.pods("none", "eviction"), body) in (
        (404, "NotFound"),
        (400, "BadRequest"),
    )


async def test_a_lease_is_held_by_version(api: Api) -> None:
    path = api.path("leases", group="coordination.k8s.io/v1")
    body = {
        "metadata": {"name": "l"},
        "spec": {
            "holderIdentity": "a",
            "leaseDurationSeconds": 15,
            "renewTime": "2026-01-01T00:00:00.000000Z",
        },
    }
    made = await api.create(path, body)
    assert made["spec"] == body["spec"]
    stale = made["metadata"]["resourceVersion"]
    made["spec"]["holderIdentity"] = "b"
    await api.ok("PUT", f"{path}/l", made)
    made["metadata"]["resourceVersion"] = stale
    assert await api.refused("PUT", f"{path}/l", made) == (409, "Conflict")


async def test_an_event_is_about_something_in_its_namespace(api: Api) -> None:
    body: Json = {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "namespace": api.space, "name": "p"},
        "reason": "Tested",
        "message": "it was",
        "type": "Normal",
    }
    made = await api.create(api.path("events"), body)
    assert made["reason"] == "Tested"
    body["metadata"] = {"name": "f"}
    body["involvedObject"] = {"kind": "Pod", "namespace": "elsewhere", "name": "p"}
    assert await api.refused("POST", api.path("events"), body) == (422, "Invalid")


async def test_a_runtime_class_names_its_handler(api: Api) -> None:
    path = "/apis/node.k8s.io/v1/runtimeclasses"
    name = api.own("rc")
    made = await api.create(path, {"metadata": {"name": name}, "handler": "tart"})
    assert made["handler"] == "tart"
    result = await api.why("PATCH", f"{path}/{name}", {"handler": "other"}, kind=MERGE)
    assert (result["code"], causes(result)) == (422, [("FieldValueInvalid", "handler")])
    await api.create(api.pods(), pod(runtimeClassName=name))
    await api.ok("DELETE", f"{path}/{name}")

    async def refused() -> bool | None:  # a server may handle the deletion a moment later
        wanted = pod("q", runtimeClassName=name)
        answer = await api.call("POST", api.pods(), wanted, dryRun="All")
        return (answer.status, answer.json().get("reason")) == (403, "Forbidden") or None

    await api.eventually(refused)
