"""Tables: the columns and their order."""

import pytest
from tests.conformance.kube.kit import TABLE, Api, Json, config, node, pod


def columns(table: Json, *, priority: int = 0) -> list[str]:
    return [item["name"] for item in table["columnDefinitions"] if item["priority"] <= priority]


@pytest.mark.parametrize(
    ("path", "shown", "wide"),
    [
        (
            "/api/v1/namespaces/{}/pods",
            ["Name", "Ready", "Status", "Restarts", "Age"],
            ["IP", "Node", "Nominated Node", "Readiness Gates"],
        ),
        (
            "/api/v1/nodes",
            ["Name", "Status", "Roles", "Age", "Version"],
            ["Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"],
        ),
        ("/api/v1/namespaces", ["Name", "Status", "Age"], []),
        ("/api/v1/namespaces/{}/configmaps", ["Name", "Data", "Age"], []),
        ("/api/v1/namespaces/{}/secrets", ["Name", "Type", "Data", "Age"], []),
        (
            "/api/v1/namespaces/{}/events",
            ["Last Seen", "Type", "Reason", "Object", "Message"],
            ["Subobject", "Source", "First Seen", "Count", "Name"],
        ),
        ("/apis/coordination.k8s.io/v1/namespaces/{}/leases", ["Name", "Holder", "Age"], []),
        ("/apis/node.k8s.io/v1/runtimeclasses", ["Name", "Handler", "Age"], []),
        ("/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles", ["Name", "Created At"], []),
        (
            "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
            ["Name", "Role", "Age"],
            ["Users", "Groups", "ServiceAccounts"],
        ),
        ("/apis/rbac.authorization.k8s.io/v1/clusterroles", ["Name", "Created At"], []),
        (
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            ["Name", "Created At"],
            [],
        ),
    ],
)
async def test_a_kind_has_its_columns(
    api: Api, path: str, shown: list[str], wide: list[str]
) -> None:
    table = await api.get(path.format(api.space), accept=TABLE, limit=500)
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    names = [item["name"] for item in table["columnDefinitions"]]
    if path.endswith("/events"):  # whose columns of both kinds are mixed
        assert columns(table) == shown and sorted(names) == sorted(shown + wide)
    else:
        assert columns(table) == shown and names == shown + wide


async def test_a_row_shows_a_running_pod(api: Api) -> None:
    await api.create(api.pods(), pod(nodeName=api.own("mac-1")))
    state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    given = {
        "phase": "Running",
        "podIP": "10.0.0.9",
        "podIPs": [{"ip": "10.0.0.9"}],
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [
            {
                "name": "runner",
                "image": "vm:1",
                "imageID": "",
                "ready": True,
                "restartCount": 0,
                "state": state,
            }
        ],
    }
    await api.patch(api.pods("p", "status"), {"status": given})
    table = await api.get(api.pods(), accept=TABLE)
    (row,) = table["rows"]
    assert row["cells"][:4] == ["p", "1/1", "Running", "0"]
    assert row["cells"][5:] == ["10.0.0.9", api.own("mac-1"), "<none>", "<none>"]
    assert (row["object"]["kind"], row["object"]["apiVersion"]) == (
        "PartialObjectMetadata",
        "meta.k8s.io/v1",
    )
    assert row["object"]["metadata"]["name"] == "p"


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        ({"phase": "Pending"}, "Pending"),
        ({"phase": "Failed", "reason": "Evicted"}, "Evicted"),
        ({"phase": "Succeeded"}, "Succeeded"),
        (
            {
                "phase": "Pending",
                "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}],
            },
            "ImagePullBackOff",
        ),
        (
            {
                "phase": "Failed",
                "containerStatuses": [
                    {"state": {"terminated": {"reason": "Error", "exitCode": 1}}}
                ],
            },
            "Error",
        ),
        (
            {
                "phase": "Succeeded",
                "containerStatuses": [
                    {"state": {"terminated": {"reason": "Completed", "exitCode": 0}}}
                ],
            },
            "Completed",
        ),
    ],
    ids=["pending", "evicted", "succeeded", "waiting", "error", "completed"],
)
async def test_the_status_cell_of_a_pod(api: Api, status: Json, shown: str) -> None:
    base = {"name": "runner", "image": "vm:1", "imageID": "", "ready": False, "restartCount": 0}
    if "containerStatuses" in status:
        status = {**status, "containerStatuses": [base | status["containerStatuses"][0]]}
    await api.create(api.pods(), pod(nodeName=api.own("mac-1")))
    await api.patch(api.pods("p", "status"), {"status": status})
    table = await api.get(api.pods("p"), accept=TABLE)
    assert table["rows"][0]["cells"][2] == shown


async def test_a_deleting_pod_shows_terminating(api: Api) -> None:
    await api.create(api.pods(), pod(nodeName=api.own("mac-1")))
    await api.ok("DELETE", api.pods("p"))
    table = await api.get(api.pods("p"), accept=TABLE)
    assert table["rows"][0]["cells"][2] == "Terminating"


async def test_a_row_shows_a_node(api: Api) -> None:
    name = api.own("n")
    body = node(name, labels={"node-role.kubernetes.io/runner": ""}, spec={"unschedulable": True})
    body["status"]["nodeInfo"] = {
        "kubeletVersion": "v9.9.9",
        "osImage": "macOS 15.6",
        "kernelVersion": "24.6.0",
        "containerRuntimeVersion": "tart://2.28.0",
    }
    body["status"]["addresses"] = [{"type": "InternalIP", "address": "127.0.0.7"}]
    await api.create("/api/v1/nodes", body)
    table = await api.get(f"/api/v1/nodes/{name}", accept=TABLE)
    cells = table["rows"][0]["cells"]
    assert cells[:3] == [name, "Ready,SchedulingDisabled", "runner"]
    assert cells[4:] == ["v9.9.9", "127.0.0.7", "<none>", "macOS 15.6", "24.6.0", "tart://2.28.0"]
    await api.ok("DELETE", f"/api/v1/nodes/{name}")


@pytest.mark.since(1, 36)
@pytest.mark.parametrize(
    ("info", "shown"),
    [
        ({}, "<unknown>"),
        ({"kernelVersion": "24.6.0", "architecture": "arm64"}, "24.6.0 (arm64)"),
        ({"architecture": "arm64"}, "<unknown> (arm64)"),
    ],
)
async def test_a_kernel_cell_shows_the_architecture(api: Api, info: Json, shown: str) -> None:
    name = api.own("n")
    body = node(name)
    body["status"]["nodeInfo"] = info
    await api.create("/api/v1/nodes", body)
    table = await api.get(f"/api/v1/nodes/{name}", accept=TABLE)
    assert table["rows"][0]["cells"][-2] == shown
    await api.ok("DELETE", f"/api/v1/nodes/{name}")


async def test_rows_may_carry_whole_objects_or_none(api: Api) -> None:
    await api.create(api.maps(), config(data={"a": "1"}))
    table = await api.get(api.maps("c"), accept=TABLE, includeObject="Object")
    assert table["rows"][0]["object"]["data"] == {"a": "1"}
    table = await api.get(api.maps("c"), accept=TABLE, includeObject="None")
    assert table["rows"][0].get("object") is None


async def test_a_table_is_paged_as_a_list_is(api: Api) -> None:
    for name in ("a", "b"):
        await api.create(api.maps(), config(name))
    table = await api.get(api.maps(), accept=TABLE, limit=1)
    assert len(table["rows"]) == 1 and table["metadata"]["remainingItemCount"] == 2
    rest = await api.get(
        api.maps(), accept=TABLE, **{"continue": table["metadata"]["continue"], "limit": 1}
    )
    assert rest["rows"][0]["cells"][0] == "b"


async def test_a_refusal_is_no_table(api: Api) -> None:
    assert await api.refused("GET", api.maps("none"), accept=TABLE) == (404, "NotFound")
