"""Details of writes: parsing, defaults, encoding, ownership of fields, and messages of refusals."""

import json
from typing import Any

import pytest
from tests.conformance.kube.kit import (
    APPLY,
    JSON_PATCH,
    MERGE,
    OWN,
    STRATEGIC,
    Api,
    Json,
    causes,
    config,
    pod,
)

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
LEASES = "coordination.k8s.io/v1"
RBAC = "rbac.authorization.k8s.io/v1"


def owners(obj: Json) -> dict[tuple[str, str, str], Any]:
    """The managed fields, by manager, operation and subresource."""
    return {
        (entry["manager"], entry["operation"], entry.get("subresource", "")): entry["fieldsV1"]
        for entry in obj["metadata"].get("managedFields", ())
    }


# ---- reading and writing out


async def test_quantities_are_written_in_one_way(api: Api) -> None:
    limits = {"cpu": "1500m", "memory": "0.5Gi", "example.com/widgets": "2000m"}
    body = pod("q")
    body["spec"]["containers"][0]["resources"] = {"limits": limits}
    made = await api.create(api.pods(), body)
    result = made["spec"]["containers"][0]["resources"]
    expected = {"cpu": "1500m", "memory": "512Mi", "example.com/widgets": "2"}
    assert result == {"limits": expected, "requests": expected}
    body["metadata"]["name"] = "r"
    body["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1000m", "memory": "1024Ki"}}
    made = await api.create(api.pods(), body)
    result = made["spec"]["containers"][0]["resources"]
    assert result["limits"] == {"cpu": "1", "memory": "1Mi"}


async def test_empty_fields_are_omitted_and_required_ones_encoded(api: Api) -> None:
    made = await api.create(api.maps(), config(data={}, labels={}, annotations={}, finalizers=[]))
    assert "data" not in made
    assert not {"labels", "annotations", "finalizers"} & made["metadata"].keys()
    role = {"metadata": {"name": "r"}}
    assert (await api.create(api.path("roles", group=RBAC), role))["rules"] is None
    event = {"metadata": {"name": "e"}, "involvedObject": {"namespace": api.space}}
    result = await api.create(api.path("events"), event)
    assert result["firstTimestamp"] is None and result["eventTime"] is None
    assert result["source"] == {} and result["reportingComponent"] == ""


async def test_a_time_has_the_precision_of_its_field(api: Api) -> None:
    path = api.path("leases", group=LEASES)
    body = {"metadata": {"name": "l"}, "spec": {"renewTime": "2026-01-01T00:00:00Z"}}
    assert await api.refused("POST", path, body) == (400, "BadRequest")
    body["spec"] = {"renewTime": "2026-01-01T02:00:00.500000+01:00"}
    made = await api.create(path, body)
    assert made["spec"]["renewTime"] == "2026-01-01T01:00:00.500000Z"
    bad = {"spec": {"renewTime": "soon"}}
    assert await api.refused("PATCH", f"{path}/l", bad, kind=MERGE) == (422, "Invalid")


async def test_items_of_a_list_have_no_kind(api: Api) -> None:
    await api.create(api.maps(), config())
    listed = await api.get(api.maps(), fieldSelector=OWN)
    assert [sorted(item) for item in listed["items"]] == [["metadata"]]


async def test_a_duplicate_member_is_warned_about_or_refused(api: Api) -> None:
    body = b'{"metadata":{"name":"twice"},"data":{"x":"1","x":"2"}}'
    result = await api.why("POST", api.maps(), body, fieldValidation="Strict")
    assert (result["code"], result["reason"]) == (400, "BadRequest")
    assert result["message"].endswith('strict decoding error: duplicate field "data.x"')
    answer = await api.call("POST", api.maps(), body)
    assert answer.status == 201 and answer.json()["data"] == {"x": "2"}
    assert answer.header("warning") == '299 - "duplicate field \\"data.x\\""'
    quiet = body.replace(b"twice", b"quiet")
    answer = await api.call("POST", api.maps(), quiet, fieldValidation="Ignore")
    assert answer.status == 201 and not answer.header("warning")


@pytest.mark.parametrize("kind", [MERGE, STRATEGIC])
async def test_a_patch_with_unknown_fields_is_warned_about_or_refused(api: Api, kind: str) -> None:
    made = await api.create(api.maps(), config())
    body = {"dat": {"x": "1"}}
    answer = await api.call("PATCH", api.maps("c"), body, kind=kind)
    assert answer.status == 200 and answer.json() == made
    assert answer.header("warning") == '299 - "unknown field \\"dat\\""'
    result = await api.why("PATCH", api.maps("c"), body, kind=kind, fieldValidation="Strict")
    assert (result["code"], causes(result)) == (422, [("FieldValueInvalid", "patch")])


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (MERGE, {"data": {"x": 1}}),
        (STRATEGIC, {"data": {"x": 1}}),
        (JSON_PATCH, [{"op": "add", "path": "/data", "value": {"x": 1}}]),
        (MERGE, {"kind": "Pod"}),
    ],
    ids=["merge", "strategic", "json", "another kind"],
)
async def test_a_patch_with_an_unreadable_result_is_invalid(api: Api, kind: str, body: Any) -> None:
    await api.create(api.maps(), config())
    result = await api.why("PATCH", api.maps("c"), body, kind=kind)
    assert (result["code"], causes(result)) == (422, [("FieldValueInvalid", "patch")])


async def test_a_json_patch_may_replace_a_missing_member(api: Api) -> None:
    await api.create(api.maps(), config(data={"a": "1"}))
    body = [{"op": "replace", "path": "/data/b", "value": "2"}]
    assert (await api.patch(api.maps("c"), body, JSON_PATCH))["data"] == {"a": "1", "b": "2"}
    result = await api.why(
        "PATCH", api.maps("c"), [{"op": "remove", "path": "/data/z"}], kind=JSON_PATCH
    )
    assert (result["code"], result["reason"], result["details"]) == (422, "Invalid", {})


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"dryRun": "Some"}, "dryRun"),
        ({"fieldValidation": "Much"}, "fieldValidation"),
        ({"fieldManager": "m" * 129}, "fieldManager"),
    ],
    ids=["dry run", "validation", "manager"],
)
async def test_an_invalid_parameter_is_named(api: Api, query: dict[str, str], field: str) -> None:
    result = await api.why("POST", api.maps(), config(), **query)
    assert result["details"]["kind"] == "CreateOptions" and result["code"] == 422
    assert [cause["field"] for cause in result["details"]["causes"]] == [field]


async def test_only_json_can_be_negotiated(api: Api) -> None:
    result = await api.why("GET", api.maps(), accept="text/plain")
    assert (result["code"], result["reason"], result["details"]) == (406, "NotAcceptable", {})
    assert await api.names(api.maps(), accept="text/plain, */*;q=0.1") is not None
    result = await api.why("POST", api.maps(), b"x", kind="text/plain")
    assert (result["code"], result["reason"]) == (415, "UnsupportedMediaType")


# ---- dry runs


async def test_a_dry_run_shows_the_result(api: Api) -> None:
    made = await api.create(api.maps(), config(data={"a": "1"}))
    version = made["metadata"]["resourceVersion"]
    after = await api.patch(api.maps("c"), {"data": {"b": "2"}}, dryRun="All")
    assert after["data"] == {"a": "1", "b": "2"}
    assert after["metadata"]["resourceVersion"] == version
    result = await api.ok("DELETE", api.maps("c"), {"dryRun": ["All"]})
    assert result["status"] == "Success"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "n"}, "data": {"x": "1"}}
    fresh = await api.apply(api.maps("n"), body, "one", dryRun="All")
    assert fresh["metadata"]["uid"] and "resourceVersion" not in fresh["metadata"]
    assert owners(fresh) == {("one", "Apply", ""): {"f:data": {"f:x": {}}}}
    assert await api.names(api.maps(), fieldSelector="metadata.name=n") == []
    assert await api.get(api.maps("c")) == made


async def test_only_a_dry_run_takes_an_object_that_has_a_version(api: Api) -> None:
    body = config(data={"x": "1"}, resourceVersion="5")
    assert (await api.why("POST", api.maps(), body))["code"] == 500
    result = await api.create(api.maps(), body, dryRun="All")
    assert result["metadata"]["resourceVersion"] == "5"
    assert await api.names(api.maps()) == []
    path = api.path("leases", "l", group="coordination.k8s.io/v1")
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "l", "resourceVersion": "5"},
    }
    result = await api.ok("PUT", path, lease, dryRun="All")
    assert result["metadata"]["resourceVersion"] == "5"
    result = await api.ok("PUT", path, lease)
    assert result["metadata"]["resourceVersion"] != "5"


async def test_a_dry_run_reaches_no_watcher(api: Api) -> None:
    since = (await api.get(api.maps()))["metadata"]["resourceVersion"]
    await api.create(api.maps(), config("dry"), dryRun="All")
    await api.create(api.maps(), config("real"))
    await api.ok("DELETE", api.maps(), labelSelector="!x", dryRun="All")
    await api.ok("DELETE", api.maps("real"))
    async with await api.watch(api.maps(), resourceVersion=since, fieldSelector=OWN) as watch:
        assert await watch.take(2) == [("ADDED", "real"), ("DELETED", "real")]


# ---- versions


async def test_a_put_creates_a_lease_and_then_requires_a_version(api: Api) -> None:
    path = api.path("leases", "l", group=LEASES)
    body = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}}
    answer = await api.call("PUT", path, body)
    assert answer.status == 201
    result = await api.why("PUT", path, body)
    assert (result["code"], causes(result)) == (
        422,
        [("FieldValueInvalid", "metadata.resourceVersion")],
    )
    assert result["details"]["kind"] == "leases"
    body["metadata"] = answer.json()["metadata"]
    assert (await api.ok("PUT", path, body))["metadata"]["resourceVersion"]


async def test_another_uid_in_a_patch_is_invalid(api: Api) -> None:
    await api.create(api.maps(), config())
    for kind in (MERGE, STRATEGIC):
        body = {"metadata": {"uid": "another"}, "data": {"x": "1"}}
        result = await api.why("PATCH", api.maps("c"), body, kind=kind)
        assert (result["code"], causes(result)) == (422, [("FieldValueInvalid", "metadata.uid")])
    assert "data" not in await api.get(api.maps("c"))


async def test_a_limit_implies_the_exact_version(api: Api) -> None:
    for name in ("x1", "x2", "x3"):
        await api.create(api.maps(), config(name, labels={"mine": "yes"}))
    first = await api.get(api.maps(), labelSelector="mine=yes")
    version = first["metadata"]["resourceVersion"]
    await api.ok("DELETE", api.maps("x2"))
    query = {"labelSelector": "mine=yes"}
    assert len(await api.names(api.maps(), limit=1, resourceVersion="0", **query)) != 1
    page = await api.get(api.maps(), limit=2, resourceVersion=version, **query)
    assert [item["metadata"]["name"] for item in page["items"]] == ["x1", "x2"]
    exact = {"resourceVersion": version, "resourceVersionMatch": "Exact"}
    assert await api.names(api.maps(), **exact, **query) == ["x1", "x2", "x3"]


# ---- who owns what


async def test_a_creator_owns_defaults_but_not_the_servers_additions(api: Api) -> None:
    made = await api.create(api.pods(), pod("p"), agent="maker")
    spec = owners(made)["maker", "Update", ""]["f:spec"]
    for field in ("f:restartPolicy", "f:dnsPolicy", "f:securityContext", "f:enableServiceLinks"):
        assert spec[field] == {}
    assert not {"f:tolerations", "f:priority", "f:serviceAccountName"} & spec.keys()
    container = spec["f:containers"]['k:{"name":"runner"}']
    assert container["f:resources"] == {} and container["."] == {}
    assert "f:status" not in owners(made)["maker", "Update", ""]


async def test_managed_fields_start_with_the_first_owned_field(api: Api) -> None:
    made = await api.create(api.maps(), config())
    assert "managedFields" not in made["metadata"]
    after = await api.patch(api.maps("c"), {"data": {"a": "1"}})
    assert "managedFields" not in after["metadata"]
    body = config(data={"b": "2"})
    after = await api.apply(api.maps("c"), body, "one")
    assert owners(after) == {
        ("one", "Apply", ""): {"f:data": {"f:b": {}}},
        ("before-first-apply", "Update", ""): {"f:data": {".": {}, "f:a": {}}},
    }
    result = await api.why(
        "PATCH", api.maps("c"), config(data={"a": "9"}), kind=APPLY, fieldManager="one"
    )
    assert result["message"] == (
        'Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .data.a'
    )


async def test_an_apply_without_a_change_has_no_time(api: Api) -> None:
    await api.apply(api.maps("c"), config(data={"a": "1"}), "one")
    shared = await api.apply(api.maps("c"), config(data={"a": "1"}), "two")
    times = {item["manager"]: "time" in item for item in shared["metadata"]["managedFields"]}
    assert times == {"one": True, "two": False}


async def test_old_update_entries_are_merged(api: Api) -> None:
    await api.create(api.maps(), config(data={"a": "1"}), agent="w00")
    for number in range(1, 12):
        body = {"data": {f"k{number}": "1"}}
        after = await api.patch(api.maps("c"), body, agent=f"w{number:02}")
    found = [item["manager"] for item in after["metadata"]["managedFields"]]
    assert len(found) == 10 and "ancient-changes" in found and "w11" in found


async def test_conflicts_are_listed_by_manager_and_path(api: Api) -> None:
    body = pod("p", nodeSelector={"a": "b"})
    body["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "name": "http"}]
    await api.apply(api.pods("p"), body, "one")
    other = pod("p", nodeSelector={"a": "c"})
    other["spec"]["containers"][0] |= {
        "image": "vm:2",
        "ports": [{"containerPort": 80, "name": "web"}],
    }
    result = await api.why("PATCH", api.pods("p"), other, kind=APPLY, fieldManager="two")
    fields = [cause["field"] for cause in result["details"]["causes"]]
    port = '.spec.containers[name="runner"].ports[containerPort=80,protocol="TCP"].name'
    assert fields == [".spec.nodeSelector", '.spec.containers[name="runner"].image', port]
    lines = ['conflicts with "one":', *(f"- {field}" for field in fields)]
    assert result["message"] == "Apply failed with 3 conflicts: " + "\n".join(lines)
    assert "name" not in result["details"] and result["reason"] == "Conflict"


async def test_an_apply_of_no_fields_leaves_a_valid_object(api: Api) -> None:
    body = config(data={"a": "1"}, annotations={}, labels={"x": "y"})
    made = await api.apply(api.maps("c"), body, "one")
    after = await api.apply(api.maps("c"), config(), "one")
    assert "data" not in after and "labels" not in after["metadata"]
    assert after["metadata"]["uid"] == made["metadata"]["uid"]
    assert "managedFields" not in after["metadata"]


async def test_every_field_of_an_apply_must_be_declared(api: Api) -> None:
    await api.create(api.maps(), config())
    body = config() | {"dat": {"a": "1"}}
    result = await api.why("PATCH", api.maps("c"), body, kind=APPLY, fieldManager="one")
    assert result["code"] == 500 and ".dat: field not declared in schema" in result["message"]


async def test_kubectl_takes_over_fields_of_its_client_side_apply(api: Api) -> None:
    """What `kubectl apply` leaves behind, and `kubectl apply --server-side` after it."""
    wanted = config(data={"a": "1", "b": "1"})
    note = json.dumps(wanted)
    body = {**wanted, "metadata": {"name": "c", "annotations": {LAST_APPLIED: note}}}
    manager = "kubectl-client-side-apply"
    await api.create(api.maps(), body, fieldManager=manager)
    await api.patch(api.maps("c"), {"data": {"b": "2"}}, agent="hand")
    mine = config(data={"a": "5"})
    after = await api.apply(api.maps("c"), mine, "kubectl")
    assert after["data"] == {"a": "5", "b": "2"}
    assert json.loads(after["metadata"]["annotations"][LAST_APPLIED])["data"] == {"a": "5"}
    assert "f:a" not in owners(after)[manager, "Update", ""].get("f:data", {})
    other = config(data={"a": "5", "b": "7"})
    result = await api.why("PATCH", api.maps("c"), other, kind=APPLY, fieldManager="kubectl")
    assert [cause["field"] for cause in result["details"]["causes"]] == [".data.b"]
    conflicting = await api.refused(
        "PATCH", api.maps("c"), config(data={"a": "9"}), kind=APPLY, fieldManager="other"
    )
    assert conflicting == (409, "Conflict")


async def test_a_status_write_of_a_node_can_change_its_labels(api: Api) -> None:
    name = api.own("n")
    await api.create("/api/v1/nodes", {"metadata": {"name": name}})
    body = {"metadata": {"labels": {"x": "y"}}, "spec": {"unschedulable": True}}
    after = await api.patch(f"/api/v1/nodes/{name}/status", body, STRATEGIC, agent="agent")
    assert after["metadata"]["labels"]["x"] == "y" and "unschedulable" not in after["spec"]
    await api.ok("DELETE", f"/api/v1/nodes/{name}")


# ---- how things go


async def test_an_unbound_pod_is_marked_and_then_removed(api: Api) -> None:
    since = (await api.get(api.pods()))["metadata"]["resourceVersion"]
    await api.create(api.pods(), pod("p"))
    left = await api.ok("DELETE", api.pods("p"))
    assert left["metadata"]["deletionGracePeriodSeconds"] == 0
    assert left["metadata"]["generation"] == 2
    async with await api.watch(api.pods(), resourceVersion=since) as watch:
        found = [await watch.next() for _ in range(3)]
    assert [event["type"] for event in found] == ["ADDED", "MODIFIED", "DELETED"]
    last = found[-1]["object"]["metadata"]
    assert last["resourceVersion"] == left["metadata"]["resourceVersion"]
    assert last["deletionTimestamp"] == found[1]["object"]["metadata"]["deletionTimestamp"]


async def test_removing_the_last_finalizer_keeps_the_version(api: Api) -> None:
    since = (await api.get(api.maps()))["metadata"]["resourceVersion"]
    await api.create(api.maps(), config(finalizers=["example.com/hold"]))
    marked = await api.ok("DELETE", api.maps("c"))
    freed = await api.patch(api.maps("c"), {"metadata": {"finalizers": None}})
    assert freed["metadata"]["resourceVersion"] == marked["metadata"]["resourceVersion"]
    assert "finalizers" not in freed["metadata"]
    async with await api.watch(
        api.maps(), resourceVersion=since, fieldSelector="metadata.name=c"
    ) as watch:
        found = [await watch.next() for _ in range(3)]
    assert [event["type"] for event in found] == ["ADDED", "MODIFIED", "DELETED"]
    last = found[-1]["object"]["metadata"]
    assert last["finalizers"] == ["example.com/hold"]
    assert int(last["resourceVersion"]) > int(marked["metadata"]["resourceVersion"])


async def test_deletecollection_returns_the_objects_as_listed(api: Api) -> None:
    for name in ("a", "b", "c"):
        await api.create(api.maps(), config(name, labels={"mine": name}))
    result = await api.ok("DELETE", api.maps(), labelSelector="mine in (a,b)", limit=1)
    assert [item["metadata"]["name"] for item in result["items"]] == ["a"]
    assert result["kind"] == "ConfigMapList" and result["metadata"]["continue"]
    assert await api.names(api.maps(), labelSelector="mine") == ["b", "c"]
    assert await api.refused("DELETE", "/api/v1/namespaces") == (405, "MethodNotAllowed")
    assert await api.refused("DELETE", "/api/v1/configmaps") == (405, "MethodNotAllowed")


# ---- selectors and watches


@pytest.mark.parametrize(
    ("labels", "result"),
    [
        ("a=b=c", "found '=', expected: ',' or 'end of string'"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("a,,b", "found ',', expected: identifier after ','"),
        ("a=b,", "found '', expected: identifier after ','"),
        ("=b", "found '=', expected: !, identifier, or 'end of string'"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
    ],
)
async def test_an_invalid_selector_is_explained(api: Api, labels: str, result: str) -> None:
    status = await api.why("GET", api.maps(), labelSelector=labels)
    assert (status["code"], status["message"]) == (400, result)


async def test_numbers_in_labels_can_be_compared(api: Api) -> None:
    for name, size in (("small", "3"), ("large", "30"), ("vague", "some")):
        await api.create(api.maps(), config(name, labels={"size": size}))
    assert await api.names(api.maps(), labelSelector="size>9") == ["large"]
    assert await api.names(api.maps(), labelSelector="size < 9") == ["small"]
    assert await api.names(api.maps(), labelSelector="size in (3,some),size!=3") == ["vague"]
    assert (await api.refused("GET", api.maps(), labelSelector="size>x"))[0] == 400
    assert await api.names(api.maps(), labelSelector="size>009") == ["large"]
    most = 2**63 - 1
    assert await api.names(api.maps(), labelSelector=f"size<{most}") == ["large", "small"]


@pytest.mark.parametrize(
    "number", ["9223372036854775808", "-4", "+4", "9" * 64, "0" * 64, "9" * 5000]
)
async def test_a_number_that_no_label_can_have_is_refused(api: Api, number: str) -> None:
    await api.create(api.maps(), config("small", labels={"size": "3"}))
    status = await api.why("GET", api.maps(), labelSelector=f"size>{number}")
    assert (status["code"], status["reason"]) == (400, "BadRequest")
    assert status["message"].count("Invalid value") == (
        1 if len(number) < 64 or number[0] == "0" else 2
    )


async def test_a_watch_parameter_on_one_object_is_ignored(api: Api) -> None:
    made = await api.create(api.maps(), config())
    assert (await api.call("GET", api.maps("c"), watch="true", timeoutSeconds=1)).json() == made


async def test_a_watch_from_a_future_version_waits(api: Api) -> None:
    made = await api.create(api.maps(), config())
    future = str(int(made["metadata"]["resourceVersion"]) + 1_000_000)
    async with await api.watch(api.maps(), resourceVersion=future, timeoutSeconds=1) as watch:
        await api.patch(api.maps("c"), {"data": {"x": "1"}})
        assert await watch.rest() == []
