"""The requests of kubectl and of the components about nodes, accounts and events."""

import pytest
from tests.conformance.kube.kit import TABLE, Api, Json, config, node, pod

DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@pytest.mark.since(1, 30)
@pytest.mark.parametrize(
    ("root", "group", "resource"),
    [("/api", "", "pods"), ("/apis", "coordination.k8s.io", "leases")],
    ids=["core", "groups"],
)
async def test_aggregated_discovery_lists_everything(
    api: Api, root: str, group: str, resource: str
) -> None:
    result = await api.get(root, accept=DISCOVERY)
    assert (result["kind"], result["apiVersion"]) == (
        "APIGroupDiscoveryList",
        "apidiscovery.k8s.io/v2",
    )
    (found,) = [item for item in result["items"] if item["metadata"].get("name", "") == group]
    (row,) = [item for item in found["versions"][0]["resources"] if item["resource"] == resource]
    assert row["scope"] == "Namespaced" and "watch" in row["verbs"]


@pytest.mark.since(1, 27)
async def test_schemas_declare_field_validation(api: Api) -> None:
    paths = (await api.get("/openapi/v3"))["paths"]
    where, _, query = paths["api/v1"]["serverRelativeURL"].partition("?")
    answer = await api.call("GET", where, hash=query.removeprefix("hash="))
    operation = answer.json()["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]
    assert operation["x-kubernetes-group-version-kind"] == {
        "group": "",
        "version": "v1",
        "kind": "Pod",
    }
    assert "fieldValidation" in [item.get("name") for item in operation["parameters"]]


async def test_openapi_v2_is_served_for_unknown_kinds(api: Api) -> None:
    result = await api.get("/openapi/v2")
    assert result["swagger"] == "2.0" and result["info"]["title"]
    accept = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
    answer = await api.call("GET", "/openapi/v2", accept=accept)
    assert answer.status == 200 and answer.body.startswith(b"\n\x032.0\x12")


@pytest.mark.parametrize(
    ("path", "columns"),
    [
        ("/api/v1/namespaces/{}/serviceaccounts", ["Name", "Age"]),
        ("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", ["Name", "Role", "Age"]),
        (
            "/apis/certificates.k8s.io/v1/certificatesigningrequests",
            ["Name", "Age", "SignerName", "Requestor", "RequestedDuration", "Condition"],
        ),
    ],
    ids=["accounts", "bindings", "requests"],
)
@pytest.mark.since(1, 30)
async def test_less_usual_kinds_have_columns_too(api: Api, path: str, columns: list[str]) -> None:
    table = await api.get(path.format(api.space), accept=TABLE)
    shown = [item["name"] for item in table["columnDefinitions"] if not item["priority"]]
    assert shown == columns


def event(about: Json, name: str) -> Json:
    meta = about["metadata"]
    return {
        "metadata": {"name": name},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": about["kind"],
            "name": meta["name"],
            "namespace": meta["namespace"],
            "uid": meta["uid"],
        },
        "reason": "Told",
        "message": "once",
        "type": "Normal",
        "count": 1,
    }


async def test_events_are_selected_by_involved_object_and_counted(api: Api) -> None:
    one = await api.create(api.pods(), pod("a"))
    other = await api.create(api.maps(), config("a"))
    events = api.path("events")
    await api.create(events, event(one, "first"))
    await api.create(events, event({**other, "kind": "ConfigMap"}, "second"))

    async def about(**fields: str) -> list[str]:
        result = ",".join(f"involvedObject.{key}={value}" for key, value in fields.items())
        return await api.names(events, fieldSelector=result)

    assert await about(uid=one["metadata"]["uid"]) == ["first"]
    assert await about(kind="ConfigMap", name="a", namespace=api.space) == ["second"]
    assert await about(apiVersion="v1", name="a") == ["first", "second"]
    assert await api.names(events, fieldSelector="reason=Told,type!=Normal") == []
    again = await api.patch(f"{events}/first", {"count": 2, "message": "twice"})
    assert (again["count"], again["message"], again["reason"]) == (2, "twice", "Told")


async def test_a_node_is_watched_by_its_name_while_its_status_changes(api: Api) -> None:
    name = api.own("mini")
    made = await api.create("/api/v1/nodes", node(name))
    start = made["metadata"]["resourceVersion"]
    chosen = {"fieldSelector": f"metadata.name={name}", "resourceVersion": start}
    async with await api.watch("/api/v1/nodes", **chosen, timeoutSeconds=20) as watch:
        await api.create("/api/v1/nodes", node(api.own("other")))
        given = {"conditions": [{"type": "Ready", "status": "False", "reason": "Moved"}]}
        changed = await api.patch(f"/api/v1/nodes/{name}/status", {"status": given})
        assert changed["status"]["conditions"][0]["reason"] == "Moved"
        assert changed["status"]["capacity"]["pods"] == "2"
        seen = await watch.next()
        while seen["object"]["status"]["conditions"][0].get("reason") != "Moved":
            seen = await watch.next()  # a controller may have written in between
        assert (seen["type"], seen["object"]["metadata"]["name"]) == ("MODIFIED", name)
    for each in (name, api.own("other")):
        await api.ok("DELETE", f"/api/v1/nodes/{each}")


@pytest.mark.since(1, 32)
async def test_a_pod_is_waited_for_as_kubectl_waits(api: Api) -> None:
    await api.create(api.pods(), pod("a"))
    await api.create(api.pods(), pod("b"))
    begin = {
        "fieldSelector": "metadata.name=a",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "20",
    }
    async with await api.watch(api.pods(), **begin) as watch:
        first, mark = await watch.next(), await watch.next()
        assert (first["type"], first["object"]["metadata"]["name"]) == ("ADDED", "a")
        notes = mark["object"]["metadata"]["annotations"]
        assert (mark["type"], notes["k8s.io/initial-events-end"]) == ("BOOKMARK", "true")
        await api.patch(api.pods("a", "status"), {"status": {"phase": "Running"}})
        assert (await watch.next())["object"]["status"]["phase"] == "Running"


async def test_pods_are_shown_while_they_change(api: Api) -> None:
    listed = await api.get(api.pods(), accept=TABLE)
    start = listed["metadata"]["resourceVersion"]
    async with await api.watch(
        api.pods(), resourceVersion=start, accept=TABLE, timeoutSeconds=20
    ) as watch:
        await api.create(api.pods(), pod("a"))
        seen = await watch.next()
    assert (seen["type"], seen["object"]["kind"]) == ("ADDED", "Table")
    assert seen["object"]["rows"][0]["cells"][:3] == ["a", "0/1", "Pending"]


async def test_accounts_are_watched_by_their_labels(api: Api) -> None:
    path = api.path("serviceaccounts")
    listed = await api.get(path)
    start = listed["metadata"]["resourceVersion"]
    assert [item["metadata"]["name"] for item in listed["items"]] == ["default"]
    chosen = {"labelSelector": "pool=mac", "resourceVersion": start, "timeoutSeconds": 20}
    async with await api.watch(path, **chosen) as watch:
        await api.create(path, {"metadata": {"name": "b"}})
        await api.create(path, {"metadata": {"name": "c", "labels": {"pool": "mac"}}})
        await api.patch(f"{path}/b", {"metadata": {"labels": {"pool": "mac"}}})
        await api.ok("DELETE", f"{path}/c")
        assert await watch.take(3) == [("ADDED", "c"), ("ADDED", "b"), ("DELETED", "c")]
