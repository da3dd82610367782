"""Lists: selectors, pages, versions, and list metadata."""

import pytest
from tests.conformance.kube.kit import ROOT_CA, Api, config, node, pod

LABELLED = {
    "a": {"tier": "gold", "zone": "x"},
    "b": {"tier": "silver"},
    "c": {"tier": "gold"},
    "d": {},
}


async def fill(api: Api) -> None:
    for name, labels in LABELLED.items():
        await api.create(api.maps(), config(name, labels=labels))


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("tier=gold", "ac"),
        ("tier==gold", "ac"),
        ("tier!=gold", "bd"),
        ("tier in (gold,silver)", "abc"),
        ("tier notin (gold)", "bd"),
        ("tier", "abc"),
        ("!tier", "d"),
        ("tier=gold,zone=x", "a"),
        ("tier=gold,!zone", "c"),
        ("tier=", ""),
        ("tier in (gold),zone notin (x)", "c"),
        (" tier = gold , zone ", "a"),
    ],
)
async def test_labels_select(api: Api, selector: str, names: str) -> None:
    await fill(api)
    assert await api.names(api.maps(), labelSelector=selector) == list(names)


@pytest.mark.parametrize(
    "selector", ["tier=gold=x", "(", "tier in gold", "a b", "=x", "tier in (a"]
)
async def test_an_invalid_selector_is_refused(api: Api, selector: str) -> None:
    assert await api.refused("GET", api.maps(), labelSelector=selector) == (400, "BadRequest")


async def test_fields_select(api: Api) -> None:
    await fill(api)
    assert await api.names(api.maps(), fieldSelector="metadata.name=b") == ["b"]
    assert await api.names(api.maps(), fieldSelector="metadata.name!=b") == ["a", "c", "d"]
    here = f"metadata.namespace={api.space},metadata.name=c"
    assert await api.names(api.maps(), fieldSelector=here) == ["c"]


async def test_pods_are_selected_by_node_and_phase(api: Api) -> None:
    await api.create(api.pods(), pod("a", nodeName=api.own("mac-1")))
    await api.create(api.pods(), pod("b", nodeName=api.own("mac-2")))
    await api.create(api.pods(), pod("c"))
    assert await api.names(api.pods(), fieldSelector=f"spec.nodeName={api.own('mac-1')}") == ["a"]
    assert await api.names(api.pods(), fieldSelector="spec.nodeName=") == ["c"]
    await api.patch(api.pods("b", "status"), {"status": {"phase": "Running"}})
    assert await api.names(api.pods(), fieldSelector="status.phase=Running") == ["b"]
    both = "spec.nodeName!=,status.phase!=Running"
    assert await api.names(api.pods(), fieldSelector=both) == ["a"]
    assert await api.names(api.pods(), fieldSelector="spec.schedulerName=nobody") == list("abc")


async def test_nodes_are_selected_by_unschedulable(api: Api) -> None:
    for name in ("a", "b"):
        await api.create("/api/v1/nodes", node(api.own(name), spec={"unschedulable": name == "a"}))
    closed = await api.names("/api/v1/nodes", fieldSelector="spec.unschedulable=true")
    assert api.own("a") in closed and api.own("b") not in closed
    there = await api.names("/api/v1/nodes", fieldSelector="spec.unschedulable=false")
    assert api.own("b") in there and api.own("a") not in there
    for name in ("a", "b"):
        await api.ok("DELETE", f"/api/v1/nodes/{api.own(name)}")


@pytest.mark.parametrize("field", ["spec.nonsense", "metadata.labels", "data.a"])
async def test_an_unsupported_field_selector_is_refused(api: Api, field: str) -> None:
    assert await api.refused("GET", api.pods(), fieldSelector=f"{field}=x") == (400, "BadRequest")


async def test_a_list_has_kind_and_version(api: Api) -> None:
    await fill(api)
    listed = await api.get(api.maps())
    assert (listed["kind"], listed["apiVersion"]) == ("ConfigMapList", "v1")
    assert int(listed["metadata"]["resourceVersion"]) > 0
    assert "continue" not in listed["metadata"]
    assert all("kind" not in item and "apiVersion" not in item for item in listed["items"])
    empty = await api.get(api.path("secrets"))
    assert empty["items"] == []


async def test_a_list_is_not_older_than_what_was_just_written(api: Api) -> None:
    await fill(api)
    made = await api.create(api.maps(), config("last"))
    listed = await api.get(api.maps())
    newest = int(made["metadata"]["resourceVersion"])
    assert int(listed["metadata"]["resourceVersion"]) >= newest
    assert await api.names(api.maps(), resourceVersion="0") == ["a", "b", "c", "d", "last"]
    newer = await api.get(
        api.maps(), resourceVersion=str(newest), resourceVersionMatch="NotOlderThan"
    )
    assert len(newer["items"]) == 6


async def test_pages_add_up_to_the_list(api: Api) -> None:
    await fill(api)
    first = await api.get(api.maps(), limit=3)
    assert [item["metadata"]["name"] for item in first["items"]] == ["a", "b", "c"]
    assert first["metadata"]["remainingItemCount"] == 2
    token = first["metadata"]["continue"]
    second = await api.get(api.maps(), **{"limit": 3, "continue": token})
    assert [item["metadata"]["name"] for item in second["items"]] == ["d", ROOT_CA]
    assert "continue" not in second["metadata"] and "remainingItemCount" not in second["metadata"]
    versions = [page["metadata"]["resourceVersion"] for page in (first, second)]
    assert versions[0] == versions[1]


async def test_later_pages_show_the_version_of_the_first(api: Api) -> None:
    await fill(api)
    first = await api.get(api.maps(), limit=2)
    await api.ok("DELETE", api.maps("c"))
    await api.create(api.maps(), config("bb"))
    rest = await api.names(api.maps(), **{"continue": first["metadata"]["continue"]})
    assert rest == ["c", "d"]


async def test_a_page_of_a_selection_does_not_count_the_rest(api: Api) -> None:
    await fill(api)
    page = await api.get(api.maps(), limit=1, labelSelector="tier")
    assert len(page["items"]) == 1 and page["metadata"]["continue"]
    assert "remainingItemCount" not in page["metadata"]


@pytest.mark.parametrize("token", ["nonsense", "e30"])
async def test_a_forged_page_is_refused(api: Api, token: str) -> None:
    assert await api.refused("GET", api.maps(), **{"continue": token}) == (400, "BadRequest")


async def test_a_version_from_the_future_times_out(api: Api) -> None:
    listed = await api.get(api.maps())
    future = str(int(listed["metadata"]["resourceVersion"]) + 1_000_000)
    result = await api.why("GET", api.maps(), resourceVersion=future)
    assert (result["code"], result["reason"]) == (504, "Timeout")
    assert result["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


@pytest.mark.parametrize("version", ["abc", "-1", "1.5"])
async def test_an_invalid_version_is_refused(api: Api, version: str) -> None:
    answer = await api.call("GET", api.maps(), resourceVersion=version)
    assert answer.status in (400, 422)


async def test_a_match_needs_a_version(api: Api) -> None:
    result = await api.refused("GET", api.maps(), resourceVersionMatch="NotOlderThan")
    assert result == (422, "Invalid")
    result = await api.refused("GET", api.maps(), resourceVersionMatch="Exact", resourceVersion="0")
    assert result == (422, "Invalid")


async def test_all_namespaces_are_listed_at_once(api: Api) -> None:
    await fill(api)
    listed = await api.get("/api/v1/configmaps", labelSelector="zone=x")
    mine = [item for item in listed["items"] if item["metadata"]["namespace"] == api.space]
    assert [item["metadata"]["name"] for item in mine] == ["a"]


async def test_metadata_alone_can_be_requested(api: Api) -> None:
    await api.create(api.maps(), config(data={"a": "1"}, labels={"x": "y"}))
    accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    one = await api.get(api.maps("c"), accept=accept)
    assert (one["kind"], one["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
    assert one["metadata"]["labels"] == {"x": "y"} and "data" not in one
    accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    many = await api.get(api.maps(), accept=accept)
    assert many["kind"] == "PartialObjectMetadataList"
    assert "data" not in many["items"][0]
