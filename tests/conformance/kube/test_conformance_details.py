"""Details that generated sequences have found, one test each."""

import pytest
from tests.conformance.kube.kinds import GAUGE_DEFINITION
from tests.conformance.kube.kit import (
    APPLY,
    JSON_PATCH,
    MERGE,
    TABLE,
    Api,
    Json,
    causes,
    config,
    node,
    pod,
    status_of,
)

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NODES = "/api/v1/nodes"
RBAC = "rbac.authorization.k8s.io/v1"
METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"
METADATA_LIST = METADATA.replace("Metadata;", "MetadataList;")
BEGINNING = {
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "true",
}


async def gauges(api: Api) -> str:
    """Where objects of a kind with a rich schema are; a kind of this script alone."""
    group = f"{api.space}.example.com"
    spec = {**GAUGE_DEFINITION["spec"], "group": group}
    named = {"metadata": {"name": f"gauges.{group}"}, "spec": spec}
    await api.create(CRDS, {**GAUGE_DEFINITION, **named})
    path = api.path("gauges", group=f"{group}/v1")

    async def served() -> bool | None:
        return (await api.call("GET", path)).status == 200 or None

    await api.eventually(served)
    return path


def gauge(path: str, **spec: object) -> Json:
    group = path.split("/")[2]
    body = {"image": "vm:1", **spec}
    return {
        "apiVersion": f"{group}/v1",
        "kind": "Gauge",
        "metadata": {"name": "g"},
        "spec": body,
    }


# ---- nulls and types of custom objects


@pytest.mark.since(1, 32)
async def test_a_null_is_kept_only_where_the_schema_has_one(api: Api) -> None:
    path = await gauges(api)
    body = gauge(path, note=None, tuning=None, mode=None, port=None)
    made = await api.create(path, body)
    assert made["spec"] == {"image": "vm:1", "note": None, "mode": "fast"}
    removed = await api.patch(f"{path}/g", {"spec": {"note": None}})
    assert "note" not in removed["spec"]
    again = await api.patch(
        f"{path}/g", [{"op": "add", "path": "/spec/note", "value": None}], JSON_PATCH
    )
    assert again["spec"]["note"] is None
    result = await api.why(
        "PATCH", f"{path}/g", gauge(path, tuning=None), kind=APPLY, fieldManager="m", force="true"
    )
    assert causes(result) == [("FieldValueTypeInvalid", "spec.tuning")]


@pytest.mark.since(1, 32)
@pytest.mark.parametrize(
    "spec",
    [
        {"image": 1},
        {"tags": "a"},
        {"tags": ["a", "a"]},
        {"parts": [{"size": 1}]},
        {"parts": [{"name": "a"}, {"name": "a"}]},
        {"tuning": []},
    ],
    ids=["text", "list", "twice in a set", "without its key", "twice by key", "map"],
)
async def test_a_value_that_cannot_be_merged_cannot_be_applied(api: Api, spec: Json) -> None:
    path = await gauges(api)
    assert await api.refused(
        "PATCH", f"{path}/g", gauge(path, **spec), kind=APPLY, fieldManager="m"
    ) == (500, "")


@pytest.mark.since(1, 32)
async def test_a_scale_needs_a_count_to_be_read_and_none_to_be_set(api: Api) -> None:
    path = await gauges(api)
    await api.create(path, gauge(path))
    assert await api.refused("GET", f"{path}/g/scale") == (500, "InternalError")
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "g"}}
    result = await api.ok("PUT", f"{path}/g/scale", {**scale, "spec": {"replicas": 3}})
    assert result["spec"] == {"replicas": 3}
    assert (await api.get(f"{path}/g"))["spec"]["replicas"] == 3


# ---- warnings


@pytest.mark.since(1, 27)
async def test_a_refused_request_is_warned_too(api: Api) -> None:
    await api.create(api.maps(), config())
    answer = await api.call("POST", api.maps(), {**config(), "surprise": 1})
    assert (await status_of(answer))["reason"] == "AlreadyExists"
    assert answer.header("warning") == '299 - "unknown field \\"surprise\\""'


# ---- forms of answers


@pytest.mark.since(1, 32)
async def test_the_bookmark_after_the_initial_events_has_their_form(api: Api) -> None:
    await api.create(api.maps(), config("a"))
    for accept in ("application/json", METADATA, TABLE):
        options = {"accept": accept, "fieldSelector": "metadata.name=a", **BEGINNING}
        async with await api.watch(api.maps(), **options) as watch:
            first, last = await watch.next(), await watch.next()
        assert (first["type"], last["type"]) == ("ADDED", "BOOKMARK")
        assert first["object"]["kind"] == last["object"]["kind"]
        marked = last["object"]["rows"][0]["object"] if accept == TABLE else last["object"]
        assert marked["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    async with await api.watch(api.pods(), **BEGINNING) as watch:
        blank = (await watch.next())["object"]
    assert blank["spec"] == {"containers": None} and blank["status"] == {}


async def test_nothing_has_more_than_one_form(api: Api) -> None:
    roles = api.path("roles", group=RBAC)
    assert (await api.get(roles, accept=TABLE))["rows"] is None
    assert (await api.get(api.path("secrets"), accept=TABLE))["rows"] == []
    assert (await api.get(api.path("secrets"), accept=METADATA_LIST))["items"] is None
    assert (await api.get(api.path("secrets")))["items"] == []


async def test_the_row_of_a_finished_pod_has_a_condition(api: Api) -> None:
    await api.create(api.pods(), pod())
    (row,) = (await api.get(api.pods(), accept=TABLE))["rows"]
    assert "conditions" not in row
    await api.patch(api.pods("p", "status"), {"status": {"phase": "Failed"}})
    (row,) = (await api.get(api.pods(), accept=TABLE))["rows"]
    (result,) = row["conditions"]
    assert (result["type"], result["status"], result["reason"]) == ("Completed", "True", "Failed")


# ---- deletions


async def test_a_deletion_with_a_body_ignores_parameters(api: Api) -> None:
    await api.create(api.maps(), config())
    await api.ok("DELETE", api.maps("c"), dryRun="All")
    assert (await api.call("GET", api.maps("c"))).status == 200
    await api.ok("DELETE", api.maps("c"), {"propagationPolicy": "Background"}, dryRun="All")
    assert (await api.call("GET", api.maps("c"))).status == 404


async def test_one_more_deletion_only_shortens(api: Api) -> None:
    await api.create(api.pods(), pod(nodeName=api.own("nowhere"), terminationGracePeriodSeconds=30))
    await api.ok("DELETE", api.pods("p"))
    await api.patch(api.pods("p", "status"), {"status": {"phase": "Failed"}})
    for options, seconds in (
        ({}, 30),
        ({"gracePeriodSeconds": 40, "propagationPolicy": "Orphan"}, 30),
        ({"gracePeriodSeconds": 7}, 7),
    ):
        left = await api.ok("DELETE", api.pods("p"), options)
        assert left["metadata"]["deletionGracePeriodSeconds"] == seconds
        assert "finalizers" not in left["metadata"]
    await api.ok("DELETE", api.pods("p"), {"gracePeriodSeconds": 0})
    await api.gone(api.pods("p"))


async def test_events_own_nothing(api: Api) -> None:
    event = {"metadata": {"name": "e"}, "involvedObject": {"namespace": api.space}}
    made = await api.create(api.path("events"), event)
    owner = {"apiVersion": "v1", "kind": "Event", "name": "e", "uid": made["metadata"]["uid"]}
    result = await api.why("POST", api.maps(), config(ownerReferences=[owner]))
    assert causes(result) == [("FieldValueInvalid", "metadata.ownerReferences")]
    gone = await api.ok("DELETE", api.path("events", "e"), {"propagationPolicy": "Foreground"})
    assert gone["status"] == "Success"


# ---- preconditions and patches


async def test_a_put_of_a_missing_object_may_not_have_a_uid(api: Api) -> None:
    body = {
        "apiVersion": RBAC,
        "kind": "RoleBinding",
        "metadata": {"name": "b", "uid": "00000000-0000-0000-0000-000000000000"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
    }
    path = api.path("rolebindings", "b", group=RBAC)
    assert await api.refused("PUT", path, body) == (409, "Conflict")


async def test_an_unreadable_body_is_refused_before_any_lookup(api: Api) -> None:
    body = config("none") | {"data": {"k": 1}}
    assert await api.refused("PUT", api.maps("none"), body) == (400, "BadRequest")


async def test_copying_a_missing_member_copies_null(api: Api) -> None:
    await api.create(api.maps(), config(annotations={"a": "b"}))
    copy = {"op": "copy", "from": "/metadata/labels", "path": "/metadata/annotations"}
    made = await api.patch(api.maps("c"), [copy], JSON_PATCH)
    assert "annotations" not in made["metadata"]
    deep = {"op": "copy", "from": "/metadata/labels/a", "path": "/metadata/annotations"}
    assert await api.refused("PATCH", api.maps("c"), [deep], kind=JSON_PATCH) == (422, "Invalid")


# ---- immutable fields


async def test_a_node_keeps_its_networks_and_its_provider(api: Api) -> None:
    name = api.own("n")
    spec = {"podCIDR": "10.9.0.0/24", "providerID": "mac://1"}
    made = await api.create(NODES, node(name, spec=spec))
    assert made["spec"]["podCIDRs"] == ["10.9.0.0/24"]
    path = f"{NODES}/{name}"
    result = await api.why("PATCH", path, {"spec": {"providerID": "mac://2"}}, kind=MERGE)
    assert causes(result) == [("FieldValueForbidden", "spec.providerID")]
    await api.ok("DELETE", path)


async def test_a_pod_keeps_its_containers(api: Api) -> None:
    await api.create(api.pods(), pod())
    more = {"spec": {"containers": [{"name": "other", "image": "vm:1"}]}}
    kind = "application/strategic-merge-patch+json"
    result = await api.why("PATCH", api.pods("p"), more, kind=kind)
    assert causes(result) == [("FieldValueForbidden", "spec.containers")]
