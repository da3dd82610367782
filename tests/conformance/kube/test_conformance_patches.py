"""The three kinds of patches: what they merge, what they refuse, what they leave alone."""

from typing import Any

import pytest
from tests.conformance.kube.kit import (
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    Api,
    Json,
    causes,
    config,
    node,
    pod,
)

# ---- merge


async def test_a_merge_patch_sets_removes_and_replaces(api: Api) -> None:
    await api.create(api.maps(), config(data={"keep": "1", "drop": "2", "change": "3"}))
    patch = {"data": {"drop": None, "change": "4", "new": "5"}}
    after = await api.patch(api.maps("c"), patch)
    assert after["data"] == {"keep": "1", "change": "4", "new": "5"}


async def test_a_merge_patch_replaces_lists(api: Api) -> None:
    meta = {"finalizers": ["example.com/a", "example.com/b"]}
    await api.create(api.maps(), config(**meta))
    after = await api.patch(api.maps("c"), {"metadata": {"finalizers": ["example.com/c"]}})
    assert after["metadata"]["finalizers"] == ["example.com/c"]
    await api.patch(api.maps("c"), {"metadata": {"finalizers": None}})


async def test_a_patch_that_changes_nothing_keeps_the_version(api: Api) -> None:
    made = await api.create(api.maps(), config(data={"a": "1"}))
    for kind, body in (
        (MERGE, {"data": {"a": "1", "gone": None}}),
        (STRATEGIC, {"data": {"a": "1"}}),
        (JSON_PATCH, [{"op": "replace", "path": "/data/a", "value": "1"}]),
    ):
        after = await api.patch(api.maps("c"), body, kind=kind)
        assert after["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_a_patch_may_name_the_version_that_it_is_for(api: Api) -> None:
    made = await api.create(api.maps(), config(data={"a": "1"}))
    version = made["metadata"]["resourceVersion"]
    patch = {"metadata": {"resourceVersion": version}, "data": {"a": "2"}}
    await api.patch(api.maps("c"), patch)
    assert await api.refused("PATCH", api.maps("c"), patch, kind=MERGE) == (409, "Conflict")


async def test_a_patch_may_name_the_uid_that_it_is_for(api: Api) -> None:
    made = await api.create(api.maps(), config())
    mine = {"metadata": {"uid": made["metadata"]["uid"], "labels": {"a": "b"}}}
    await api.patch(api.maps("c"), mine)
    other = {"metadata": {"uid": "another", "labels": {"a": "c"}}}
    for kind in (MERGE, STRATEGIC):
        result = await api.why("PATCH", api.maps("c"), other, kind=kind)
        assert (result["code"], result["reason"]) == (422, "Invalid")
        assert causes(result) == [("FieldValueInvalid", "metadata.uid")]


async def test_a_patch_of_a_missing_object_is_not_found(api: Api) -> None:
    assert await api.refused("PATCH", api.maps("no"), {"a": 1}, kind=MERGE) == (404, "NotFound")


async def test_a_patch_cannot_rename(api: Api) -> None:
    await api.create(api.maps(), config())
    result = await api.refused("PATCH", api.maps("c"), {"metadata": {"name": "d"}}, kind=MERGE)
    assert result == (400, "BadRequest")


async def test_a_patch_of_an_unknown_kind_is_refused(api: Api) -> None:
    await api.create(api.maps(), config())
    answer = await api.call("PATCH", api.maps("c"), {"data": {}}, kind="application/json")
    assert answer.status == 415


async def test_a_label_removed_by_the_last_patch_is_gone(api: Api) -> None:
    await api.create(api.maps(), config(labels={"a": "b"}))
    after = await api.patch(api.maps("c"), {"metadata": {"labels": {"a": None}}})
    assert "labels" not in after["metadata"]


async def test_a_merge_patch_with_an_invalid_result_is_refused(api: Api) -> None:
    await api.create(api.maps(), config())
    patch = {"metadata": {"labels": {"a": "not valid!"}}}
    assert await api.refused("PATCH", api.maps("c"), patch, kind=MERGE) == (422, "Invalid")


# ---- JSON patch


async def test_a_json_patch_adds_replaces_and_removes(api: Api) -> None:
    await api.create(api.maps(), config(data={"a": "1", "b": "2"}))
    steps = [
        {"op": "test", "path": "/data/a", "value": "1"},
        {"op": "replace", "path": "/data/a", "value": "3"},
        {"op": "remove", "path": "/data/b"},
        {"op": "add", "path": "/data/x~1y", "value": "4"},
        {"op": "copy", "from": "/data/a", "path": "/data/copied"},
        {"op": "move", "from": "/data/copied", "path": "/data/moved"},
    ]
    # a slash cannot be in a key of a ConfigMap, but it can in an annotation
    steps[3] = {"op": "add", "path": "/metadata/annotations", "value": {"x/y": "4"}}
    steps.append({"op": "replace", "path": "/metadata/annotations/x~1y", "value": "5"})
    after = await api.patch(api.maps("c"), steps, kind=JSON_PATCH)
    assert after["data"] == {"a": "3", "moved": "3"}
    assert after["metadata"]["annotations"] == {"x/y": "5"}


async def test_a_json_patch_appends_and_inserts(api: Api) -> None:
    await api.create(api.maps(), config(finalizers=["example.com/a"]))
    steps = [
        {"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/c"},
        {"op": "add", "path": "/metadata/finalizers/1", "value": "example.com/b"},
    ]
    after = await api.patch(api.maps("c"), steps, kind=JSON_PATCH)
    assert after["metadata"]["finalizers"] == ["example.com/a", "example.com/b", "example.com/c"]
    await api.patch(api.maps("c"), {"metadata": {"finalizers": None}})


@pytest.mark.parametrize(
    "step",
    [
        {"op": "test", "path": "/data/a", "value": "other"},
        {"op": "remove", "path": "/data/none"},
        {"op": "add", "path": "/none/a", "value": "1"},
    ],
    ids=["test", "remove", "add"],
)
async def test_a_json_patch_that_does_not_fit_changes_nothing(api: Api, step: Json) -> None:
    made = await api.create(api.maps(), config(data={"a": "1"}))
    steps = [{"op": "replace", "path": "/data/a", "value": "1"}, step]
    assert await api.refused("PATCH", api.maps("c"), steps, kind=JSON_PATCH) == (422, "Invalid")
    assert await api.get(api.maps("c")) == made


async def test_an_invalid_json_patch_is_refused(api: Api) -> None:
    await api.create(api.maps(), config(data={"a": "1"}))
    for body in ({"op": "test"}, b"{"):
        result = await api.refused("PATCH", api.maps("c"), body, kind=JSON_PATCH)
        assert result == (400, "BadRequest")


# ---- strategic merge

TWO = [{"name": "a", "image": "vm:1"}, {"name": "b", "image": "vm:1"}]


async def strategic(api: Api, patch: Json, **spec: Any) -> Json:
    await api.create(api.pods(), pod(**spec))
    return await api.patch(api.pods("p"), patch, kind=STRATEGIC)


async def test_containers_are_merged_by_name(api: Api) -> None:
    patch = {"spec": {"containers": [{"name": "b", "image": "vm:2"}]}}
    after = await strategic(api, patch, containers=TWO)
    images = [(item["name"], item["image"]) for item in after["spec"]["containers"]]
    assert images == [("a", "vm:1"), ("b", "vm:2")]


async def test_conditions_are_merged_by_type(api: Api) -> None:
    await api.create(api.pods(), pod())
    path = api.pods("p", "status")
    first = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    await api.patch(path, first, kind=STRATEGIC)
    second = {"status": {"conditions": [{"type": "Initialized", "status": "True"}]}}
    await api.patch(path, second, kind=STRATEGIC)
    third = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    after = await api.patch(path, third, kind=STRATEGIC)
    given = {item["type"]: item["status"] for item in after["status"]["conditions"]}
    assert given == {"Ready": "True", "Initialized": "True"}


async def test_a_merge_patch_replaces_conditions(api: Api) -> None:
    await api.create(api.pods(), pod())
    path = api.pods("p", "status")
    await api.patch(path, {"status": {"conditions": [{"type": "Ready", "status": "False"}]}})
    patch = {"status": {"conditions": [{"type": "Initialized", "status": "True"}]}}
    after = await api.patch(path, patch)
    assert [item["type"] for item in after["status"]["conditions"]] == ["Initialized"]


async def test_an_item_is_deleted_by_directive(api: Api) -> None:
    await api.create(api.pods(), pod())
    path = api.pods("p", "status")
    begun = [{"type": kind, "status": "False"} for kind in ("Ready", "Initialized")]
    await api.patch(path, {"status": {"conditions": begun}}, kind=STRATEGIC)
    patch = {"status": {"conditions": [{"$patch": "delete", "type": "Ready"}]}}
    after = await api.patch(path, patch, kind=STRATEGIC)
    assert [item["type"] for item in after["status"]["conditions"]] == ["Initialized"]


async def test_taints_have_no_key_to_merge_by(api: Api) -> None:
    name = api.own("n")
    taints = [{"key": key, "effect": "NoSchedule"} for key in ("a", "b")]
    await api.create("/api/v1/nodes", {"metadata": {"name": name}, "spec": {"taints": taints}})
    path = f"/api/v1/nodes/{name}"
    patch = {"spec": {"taints": [{"key": "c", "effect": "NoExecute"}]}}
    after = await api.patch(path, patch, kind=STRATEGIC)
    assert after["spec"]["taints"] == [{"key": "c", "effect": "NoExecute"}]
    await api.ok("DELETE", path)


async def test_a_map_is_replaced_by_directive(api: Api) -> None:
    await api.create(api.maps(), config(data={"a": "1", "b": "2"}))
    patch = {"data": {"$patch": "replace", "c": "3"}}
    after = await api.patch(api.maps("c"), patch, kind=STRATEGIC)
    assert after["data"] == {"c": "3"}


async def test_finalizers_are_merged_as_a_set(api: Api) -> None:
    await api.create(api.maps(), config(finalizers=["example.com/a"]))
    patch: Json = {"metadata": {"finalizers": ["example.com/b", "example.com/a"]}}
    after = await api.patch(api.maps("c"), patch, kind=STRATEGIC)
    assert sorted(after["metadata"]["finalizers"]) == ["example.com/a", "example.com/b"]
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}}
    after = await api.patch(api.maps("c"), patch, kind=STRATEGIC)
    assert after["metadata"]["finalizers"] == ["example.com/b"]
    await api.patch(api.maps("c"), {"metadata": {"finalizers": None}})


async def test_owners_are_merged_by_uid(api: Api) -> None:
    made = await api.create(api.maps(), config("owner"))
    owner = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": made["metadata"]["uid"],
    }
    await api.create(api.maps(), config("owned", ownerReferences=[owner]))
    patch = {"metadata": {"ownerReferences": [{"uid": owner["uid"], "controller": True}]}}
    after = await api.patch(api.maps("owned"), patch, kind=STRATEGIC)
    assert after["metadata"]["ownerReferences"] == [owner | {"controller": True}]


async def test_cordoning_is_a_strategic_patch(api: Api) -> None:
    name = api.own("n")
    await api.create("/api/v1/nodes", node(name))
    path = f"/api/v1/nodes/{name}"
    after = await api.patch(path, {"spec": {"unschedulable": True}}, kind=STRATEGIC)
    assert after["spec"]["unschedulable"] is True
    after = await api.patch(path, {"spec": {"unschedulable": None}}, kind=STRATEGIC)
    assert "unschedulable" not in after["spec"]
    await api.ok("DELETE", path)


async def test_order_directives_order(api: Api) -> None:
    await api.create(api.pods(), pod())
    path = api.pods("p", "status")
    begun = [{"type": kind, "status": "False"} for kind in ("Ready", "Initialized")]
    await api.patch(path, {"status": {"conditions": begun}}, kind=STRATEGIC)
    patch = {
        "status": {
            "$setElementOrder/conditions": [{"type": "Initialized"}, {"type": "Ready"}],
            "conditions": [{"type": "Ready", "status": "True"}],
        }
    }
    after = await api.patch(path, patch, kind=STRATEGIC)
    given = [(item["type"], item["status"]) for item in after["status"]["conditions"]]
    assert given == [("Initialized", "False"), ("Ready", "True")]


async def test_an_unknown_directive_is_refused(api: Api) -> None:
    await api.create(api.maps(), config(data={"a": "1"}))
    patch = {"data": {"$patch": "surprise"}}
    answer = await api.call("PATCH", api.maps("c"), patch, kind=STRATEGIC)
    assert answer.status in (400, 500)


# ---- what may change


async def test_most_of_a_pod_is_fixed(api: Api) -> None:
    await api.create(api.pods(), pod())
    result = await api.why("PATCH", api.pods("p"), {"spec": {"hostNetwork": True}}, kind=MERGE)
    assert (result["code"], result["reason"]) == (422, "Invalid")
    assert causes(result) == [("FieldValueForbidden", "spec")]


async def test_the_image_of_a_pod_may_change(api: Api) -> None:
    await api.create(api.pods(), pod())
    patch = {"spec": {"containers": [{"name": "runner", "image": "vm:2"}]}}
    after = await api.patch(api.pods("p"), patch, kind=STRATEGIC)
    assert after["spec"]["containers"][0]["image"] == "vm:2"
    assert after["metadata"].get("generation", 2) == 2


async def test_a_plain_patch_leaves_the_status_of_a_pod_alone(api: Api) -> None:
    await api.create(api.pods(), pod())
    body = {"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Running"}}
    after = await api.patch(api.pods("p"), body)
    assert after["metadata"]["labels"] == {"a": "b"}
    assert after["status"]["phase"] == "Pending"


async def test_a_status_patch_leaves_the_rest_alone(api: Api) -> None:
    await api.create(api.pods(), pod())
    body = {"spec": {"nodeName": "elsewhere"}, "status": {"phase": "Running"}}
    after = await api.patch(api.pods("p", "status"), body)
    assert after["status"]["phase"] == "Running"
    assert "nodeName" not in after["spec"]


# ---- what a patch may cost


def _copies(count: int) -> list[Json]:
    return [{"op": "copy", "from": "/data/k", "path": "/data/l"}] * count


async def test_the_copies_of_a_patch_are_bounded_in_total(api: Api) -> None:
    await api.create(api.maps(), config(data={"k": "x" * 100_000}))
    after = await api.patch(api.maps("c"), _copies(31), kind=JSON_PATCH)
    assert after["data"]["l"] == after["data"]["k"]
    refusal = await api.refused("PATCH", api.maps("c"), _copies(32), kind=JSON_PATCH)
    assert refusal == (422, "Invalid")


async def test_a_patch_that_doubles_itself_is_refused(api: Api) -> None:
    await api.create(api.maps(), config())
    start = {"op": "add", "path": "/more", "value": {"a": "x" * 1000}}
    doubling = [{"op": "copy", "from": "/more", "path": f"/more/{step}"} for step in range(40)]
    refusal = await api.refused("PATCH", api.maps("c"), [start, *doubling], kind=JSON_PATCH)
    assert refusal == (422, "Invalid")


async def test_a_part_that_was_copied_or_moved_is_changed_alone(api: Api) -> None:
    await api.create(api.maps(), config(data={"a": "1"}))
    patch = [
        {"op": "copy", "from": "/data", "path": "/metadata/labels"},
        {"op": "add", "path": "/data/b", "value": "2"},
        {"op": "add", "path": "/metadata/labels/c", "value": "3"},
        {"op": "move", "from": "/metadata/labels", "path": "/metadata/annotations"},
        {"op": "add", "path": "/metadata/annotations/d", "value": "4"},
        {"op": "copy", "from": "/metadata/annotations/c", "path": "/data/c"},
    ]
    after = await api.patch(api.maps("c"), patch, kind=JSON_PATCH)
    assert after["data"] == {"a": "1", "b": "2", "c": "3"}
    assert after["metadata"]["annotations"] == {"a": "1", "c": "3", "d": "4"}
    assert "labels" not in after["metadata"]
