"""Deletion: grace, finalizers, preconditions, owners, namespaces."""

import pytest
from tests.conformance.kube.kit import MERGE, Api, Json, causes, config, pod


async def test_a_deletion_returns_the_deleted_object(api: Api) -> None:
    made = await api.create(api.maps(), config())
    result = await api.ok("DELETE", api.maps("c"))
    assert (result["kind"], result["status"]) == ("Status", "Success")
    uid = made["metadata"]["uid"]
    assert result["details"] == {"name": "c", "kind": "configmaps", "uid": uid}
    assert (await api.call("GET", api.maps("c"))).status == 404


async def test_a_removed_object_cannot_be_deleted(api: Api) -> None:
    assert await api.refused("DELETE", api.maps("c")) == (404, "NotFound")


@pytest.mark.parametrize("field", ["uid", "resourceVersion"])
async def test_a_deletion_may_have_preconditions(api: Api, field: str) -> None:
    made = await api.create(api.maps(), config())
    wrong = {"preconditions": {field: "12345"}}
    assert await api.refused("DELETE", api.maps("c"), wrong) == (409, "Conflict")
    right = {"preconditions": {field: made["metadata"][field]}}
    await api.ok("DELETE", api.maps("c"), right)


async def test_a_bound_pod_is_deleted_in_two_steps(api: Api) -> None:
    await api.create(api.pods(), pod(nodeName=api.own("mac-1"), terminationGracePeriodSeconds=7))
    result = await api.ok("DELETE", api.pods("p"))
    assert result["kind"] == "Pod"
    assert result["metadata"]["deletionGracePeriodSeconds"] == 7
    assert result["metadata"]["deletionTimestamp"]
    still = await api.get(api.pods("p"))
    assert still["metadata"]["deletionTimestamp"] == result["metadata"]["deletionTimestamp"]
    result = await api.ok("DELETE", api.pods("p"), {"gracePeriodSeconds": 0})
    assert result["kind"] == "Pod"
    assert (await api.call("GET", api.pods("p"))).status == 404


async def test_an_unbound_pod_is_removed_at_once(api: Api) -> None:
    await api.create(api.pods(), pod())
    result = await api.ok("DELETE", api.pods("p"))
    assert result["kind"] == "Pod"
    assert (await api.call("GET", api.pods("p"))).status == 404


async def test_a_finished_pod_is_removed_at_once(api: Api) -> None:
    await api.create(api.pods(), pod(nodeName=api.own("mac-1")))
    await api.patch(api.pods("p", "status"), {"status": {"phase": "Succeeded"}})
    await api.ok("DELETE", api.pods("p"))
    assert (await api.call("GET", api.pods("p"))).status == 404


async def test_a_grace_period_can_be_requested(api: Api) -> None:
    await api.create(api.pods(), pod(nodeName=api.own("mac-1")))
    result = await api.ok("DELETE", api.pods("p"), {"gracePeriodSeconds": 3})
    assert result["metadata"]["deletionGracePeriodSeconds"] == 3


async def test_a_grace_period_only_shrinks(api: Api) -> None:
    await api.create(api.pods(), pod(nodeName=api.own("mac-1")))
    await api.ok("DELETE", api.pods("p"), {"gracePeriodSeconds": 20})
    longer = await api.ok("DELETE", api.pods("p"), {"gracePeriodSeconds": 30})
    assert longer["metadata"]["deletionGracePeriodSeconds"] == 20
    shorter = await api.ok("DELETE", api.pods("p"), {"gracePeriodSeconds": 5})
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 5


async def test_a_deletion_bumps_the_generation_of_a_pod_once(api: Api) -> None:
    made = await api.create(api.pods(), pod(nodeName=api.own("mac-1")))
    result = await api.ok("DELETE", api.pods("p"))
    if api.version >= (1, 33):
        assert (made["metadata"]["generation"], result["metadata"]["generation"]) == (1, 2)


async def test_a_finalizer_holds_an_object(api: Api) -> None:
    await api.create(api.maps(), config(finalizers=["example.com/a", "example.com/b"]))
    result = await api.ok("DELETE", api.maps("c"))
    assert result["kind"] == "ConfigMap"
    assert result["metadata"]["deletionTimestamp"]
    assert result["metadata"]["deletionGracePeriodSeconds"] == 0
    await api.patch(api.maps("c"), {"metadata": {"finalizers": ["example.com/b"]}})
    assert (await api.call("GET", api.maps("c"))).status == 200
    last = await api.patch(api.maps("c"), {"metadata": {"finalizers": []}})
    assert last["metadata"]["name"] == "c"
    assert (await api.call("GET", api.maps("c"))).status == 404


async def test_a_second_deletion_of_a_held_object_changes_nothing(api: Api) -> None:
    await api.create(api.maps(), config(finalizers=["example.com/a"]))
    first = await api.ok("DELETE", api.maps("c"))
    second = await api.ok("DELETE", api.maps("c"))
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    await api.patch(api.maps("c"), {"metadata": {"finalizers": None}})


async def test_no_finalizer_is_added_to_a_deleting_object(api: Api) -> None:
    await api.create(api.maps(), config(finalizers=["example.com/a"]))
    await api.ok("DELETE", api.maps("c"))
    more = {"metadata": {"finalizers": ["example.com/a", "example.com/b"]}}
    result = await api.why("PATCH", api.maps("c"), more, kind=MERGE)
    assert (result["code"], result["reason"]) == (422, "Invalid")
    assert causes(result) == [("FieldValueForbidden", "metadata.finalizers")]
    await api.patch(api.maps("c"), {"metadata": {"finalizers": None}})


async def test_a_pod_with_a_finalizer_outlives_its_grace(api: Api) -> None:
    meta = {"finalizers": ["example.com/vm"]}
    await api.create(api.pods(), pod(meta=meta, nodeName=api.own("mac-1")))
    await api.ok("DELETE", api.pods("p"))
    await api.ok("DELETE", api.pods("p"), {"gracePeriodSeconds": 0})
    held = await api.get(api.pods("p"))
    assert held["metadata"]["deletionGracePeriodSeconds"] == 0
    await api.patch(api.pods("p"), {"metadata": {"finalizers": None}})
    assert (await api.call("GET", api.pods("p"))).status == 404


async def test_a_new_object_of_the_same_name_has_another_uid(api: Api) -> None:
    before = await api.create(api.maps(), config())
    await api.ok("DELETE", api.maps("c"))
    after = await api.create(api.maps(), config())
    assert before["metadata"]["uid"] != after["metadata"]["uid"]


async def test_a_collection_is_deleted_by_selection(api: Api) -> None:
    for name, value in (("a", "1"), ("b", "2"), ("c", "1")):
        await api.create(api.maps(), config(name, labels={"x": value}))
    result = await api.ok("DELETE", api.maps(), labelSelector="x=1")
    assert result["kind"] in ("ConfigMapList", "Status")
    assert await api.names(api.maps()) == ["b"]


# ---- owners


def reference(owner: Json, **more: object) -> Json:
    meta = owner["metadata"]
    base = {"apiVersion": "v1", "kind": "ConfigMap", "name": meta["name"], "uid": meta["uid"]}
    return {**base, **more}


async def test_dependents_are_deleted_after_their_owner(api: Api) -> None:
    owner = await api.create(api.maps(), config("owner"))
    await api.create(api.maps(), config("owned", ownerReferences=[reference(owner)]))
    await api.ok("DELETE", api.maps("owner"), {"propagationPolicy": "Background"})
    assert (await api.call("GET", api.maps("owner"))).status == 404
    await api.gone(api.maps("owned"))


async def test_dependents_stay_when_orphaned(api: Api) -> None:
    owner = await api.create(api.maps(), config("owner"))
    await api.create(api.maps(), config("owned", ownerReferences=[reference(owner)]))
    await api.ok("DELETE", api.maps("owner"), {"propagationPolicy": "Orphan"})
    await api.gone(api.maps("owner"))
    left = await api.get(api.maps("owned"))
    assert "ownerReferences" not in left["metadata"]


async def test_foreground_deletion_removes_the_owner_last(api: Api) -> None:
    owner = await api.create(api.maps(), config("owner"))
    owned = config(
        "owned",
        ownerReferences=[reference(owner, blockOwnerDeletion=True)],
        finalizers=["example.com/hold"],
    )
    await api.create(api.maps(), owned)

    async def known() -> bool | None:  # the collector learns of the dependent a moment later
        return (await api.call("GET", api.maps("owned"))).status == 200 or None

    await api.eventually(known)
    result = await api.ok("DELETE", api.maps("owner"), {"propagationPolicy": "Foreground"})
    assert result["metadata"]["finalizers"] == ["foregroundDeletion"]

    async def deleting() -> bool | None:
        found = await api.get(api.maps("owned"))
        return "deletionTimestamp" in found["metadata"] or None

    await api.eventually(deleting)
    assert (await api.call("GET", api.maps("owner"))).status == 200
    await api.patch(api.maps("owned"), {"metadata": {"finalizers": None}})
    await api.gone(api.maps("owner"))


async def test_a_dependent_of_a_missing_owner_is_deleted(api: Api) -> None:
    ghost = {"apiVersion": "v1", "kind": "ConfigMap", "name": "ghost", "uid": "never-existed"}
    await api.create(api.maps(), config("owned", ownerReferences=[ghost]))
    await api.gone(api.maps("owned"))


async def test_one_of_two_owners_is_enough_to_stay(api: Api) -> None:
    first = await api.create(api.maps(), config("first"))
    second = await api.create(api.maps(), config("second"))
    owners = [reference(first), reference(second)]
    await api.create(api.maps(), config("owned", ownerReferences=owners))
    await api.ok("DELETE", api.maps("first"))

    async def released() -> bool | None:
        found = await api.get(api.maps("owned"))
        left = [item["name"] for item in found["metadata"]["ownerReferences"]]
        return left == ["second"] or None

    await api.eventually(released)


@pytest.mark.parametrize("policy", ["Sideways", "background"])
async def test_an_unknown_policy_is_refused(api: Api, policy: str) -> None:
    await api.create(api.maps(), config())
    body = {"propagationPolicy": policy}
    assert await api.refused("DELETE", api.maps("c"), body) == (422, "Invalid")


async def test_a_negative_grace_is_refused(api: Api) -> None:
    await api.create(api.pods(), pod(nodeName=api.own("mac-1")))
    answer = await api.call("DELETE", api.pods("p"), {"gracePeriodSeconds": -1})
    assert answer.status in (200, 422)
    await api.ok("DELETE", api.pods("p"), {"gracePeriodSeconds": 0})


# ---- namespaces


async def test_a_deleted_namespace_deletes_its_contents(api: Api) -> None:
    name = api.own("ns")
    path = f"/api/v1/namespaces/{name}"
    made = await api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    assert made["spec"] == {"finalizers": ["kubernetes"]}
    assert made["status"] == {"phase": "Active"}
    assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": name}
    await api.create(f"{path}/configmaps", config(finalizers=["example.com/hold"]))
    result = await api.ok("DELETE", path)
    assert result["status"]["phase"] == "Terminating"
    assert result["metadata"]["deletionTimestamp"]
    refused = await api.why("POST", f"{path}/configmaps", config("late"))
    assert (refused["code"], refused["reason"]) == (403, "Forbidden")
    assert causes(refused) == [("NamespaceTerminating", "metadata.namespace")]

    async def deleting() -> bool | None:
        found = await api.get(f"{path}/configmaps/c")
        return "deletionTimestamp" in found["metadata"] or None

    await api.eventually(deleting)
    await api.patch(f"{path}/configmaps/c", {"metadata": {"finalizers": None}})
    await api.gone(path, seconds=60)


async def test_some_namespaces_cannot_be_deleted(api: Api) -> None:
    assert await api.refused("DELETE", "/api/v1/namespaces/default") == (403, "Forbidden")
