"""Controllers: owners and dependents, namespaces, unhealthy and silent Nodes, evictions."""

from typing import Any

import pytest
from tests.conformance.kube.kit import Api, Json, causes, config, node, pod
from tests.conformance.kube.nodekit import NODES, fleet


def ref(owner: Json, **more: Any) -> Json:
    meta = owner["metadata"]
    given = {"apiVersion": "v1", "kind": "ConfigMap", "name": meta["name"], "uid": meta["uid"]}
    return {**given, **more}


async def owners(api: Api, name: str) -> list[str]:
    found = await api.get(api.maps(name))
    return [item["name"] for item in found["metadata"].get("ownerReferences", ())]


async def until(api: Api, name: str, wanted: list[str]) -> None:
    async def check() -> bool | None:
        return await owners(api, name) == wanted or None

    await api.eventually(check)


async def stays(api: Api, path: str) -> None:
    """Waits until the collector has handled everything that was created before, and checks that this still exists."""
    ghost = {"apiVersion": "v1", "kind": "ConfigMap", "name": "ghost", "uid": "never-was"}
    for index in range(3):
        await api.create(api.maps(), config(f"sign-{index}", ownerReferences=[ghost]))
        await api.gone(api.maps(f"sign-{index}"))
    assert (await api.call("GET", path)).status == 200


# ---- owners


async def test_an_owner_in_another_namespace_is_no_owner(api: Api) -> None:
    owner = await api.create("/api/v1/namespaces/default/configmaps", config(api.own("owner")))
    await api.create(api.maps(), config("owned", ownerReferences=[ref(owner)]))
    await api.gone(api.maps("owned"))

    async def event() -> Json | None:
        query = "involvedObject.name=owned,reason=OwnerRefInvalidNamespace"
        listed = await api.get(api.path("events"), fieldSelector=query)
        return listed["items"][0] if listed["items"] else None

    result = await api.eventually(event)
    named = f"v1/ConfigMap, namespace: {api.space}, name: {api.own('owner')}"
    assert result["type"] == "Warning"
    assert result["message"] == (
        f"ownerRef [{named}, uid: {owner['metadata']['uid']}]"
        f' does not exist in namespace "{api.space}"'
    )
    await api.ok("DELETE", f"/api/v1/namespaces/default/configmaps/{api.own('owner')}")


async def test_a_reference_to_an_owner_with_another_uid_is_removed(api: Api) -> None:
    good = await api.create(api.maps(), config("good"))
    other = {**ref(good), "uid": "another-life"}
    await api.create(api.maps(), config("only", ownerReferences=[other]))
    await api.gone(api.maps("only"))
    await api.create(api.maps(), config("both", ownerReferences=[other, ref(good)]))

    async def removed() -> bool | None:
        found = await api.get(api.maps("both"))
        return found["metadata"]["ownerReferences"] == [ref(good)] or None

    await api.eventually(removed)


async def test_an_owner_of_an_unknown_kind_changes_nothing(api: Api) -> None:
    unknown_kind = {"apiVersion": "example.com/v9", "kind": "Thing", "name": "a", "uid": "u"}
    await api.create(api.maps(), config("owned", ownerReferences=[unknown_kind]))
    await stays(api, api.maps("owned"))


async def test_a_cluster_wide_object_is_not_owned_by_a_namespaced_one(api: Api) -> None:
    owner = await api.create(api.maps(), config("owner"))
    name = api.own("class")
    path = "/apis/node.k8s.io/v1/runtimeclasses"
    body = {"metadata": {"name": name, "ownerReferences": [ref(owner)]}, "handler": "tart"}
    await api.create(path, body)
    await stays(api, f"{path}/{name}")
    await api.ok("DELETE", f"{path}/{name}")


async def test_foreground_deletion_waits_for_blocking_dependents_only(api: Api) -> None:
    owner = await api.create(api.maps(), config("owner"))
    held = {"finalizers": ["example.com/hold"]}
    await api.create(api.maps(), config("owned", ownerReferences=[ref(owner)], **held))
    await stays(api, api.maps("owned"))
    await api.ok("DELETE", api.maps("owner"), {"propagationPolicy": "Foreground"})
    await api.gone(api.maps("owner"))

    async def deleting() -> bool | None:
        return "deletionTimestamp" in (await api.get(api.maps("owned")))["metadata"] or None

    await api.eventually(deleting)
    await api.patch(api.maps("owned"), {"metadata": {"finalizers": None}})


async def test_foreground_deletion_keeps_dependents_with_another_owner(api: Api) -> None:
    owner = await api.create(api.maps(), config("owner"))
    other = await api.create(api.maps(), config("other"))
    both = [ref(owner, blockOwnerDeletion=True), ref(other)]
    await api.create(api.maps(), config("owned", ownerReferences=both))
    await stays(api, api.maps("owned"))
    await api.ok("DELETE", api.maps("owner"), {"propagationPolicy": "Foreground"})
    await api.gone(api.maps("owner"))
    await until(api, "owned", ["other"])


async def test_foreground_deletion_removes_the_deepest_dependents_first(api: Api) -> None:
    first = await api.create(api.maps(), config("first"))
    second = config("second", ownerReferences=[ref(first, blockOwnerDeletion=True)])
    made = await api.create(api.maps(), second)
    third = config("third", ownerReferences=[ref(made, blockOwnerDeletion=True)])
    await api.create(
        api.maps(), third | {"metadata": {**third["metadata"], "finalizers": ["example.com/hold"]}}
    )
    await stays(api, api.maps("third"))
    await api.ok("DELETE", api.maps("first"), {"propagationPolicy": "Foreground"})

    async def deleting() -> bool | None:
        return "deletionTimestamp" in (await api.get(api.maps("third")))["metadata"] or None

    await api.eventually(deleting)
    middle = (await api.get(api.maps("second")))["metadata"]
    assert middle["finalizers"] == ["foregroundDeletion"] and middle["deletionTimestamp"]
    assert (await api.get(api.maps("first")))["metadata"]["finalizers"] == ["foregroundDeletion"]
    await api.patch(api.maps("third"), {"metadata": {"finalizers": None}})
    for name in ("third", "second", "first"):
        await api.gone(api.maps(name))


async def test_a_cycle_of_owners_is_deleted(api: Api) -> None:
    one = await api.create(api.maps(), config("one"))
    owned = config("two", ownerReferences=[ref(one, blockOwnerDeletion=True)])
    two = await api.create(api.maps(), owned)
    ring = {"metadata": {"ownerReferences": [ref(two, blockOwnerDeletion=True)]}}
    await api.patch(api.maps("one"), ring)
    await stays(api, api.maps("one"))
    await api.ok("DELETE", api.maps("one"), {"propagationPolicy": "Foreground"})
    await api.gone(api.maps("one"))
    await api.gone(api.maps("two"))


async def test_a_pod_on_a_node_holds_its_owner_until_it_has_stopped(api: Api) -> None:
    owner = await api.create(api.maps(), config("owner"))
    meta = {"ownerReferences": [ref(owner, blockOwnerDeletion=True)]}
    await api.create(api.pods(), pod(meta=meta, nodeName=api.own("no-such-node")))
    await stays(api, api.pods("p"))
    await api.ok("DELETE", api.maps("owner"), {"propagationPolicy": "Foreground"})

    async def marked() -> bool | None:
        return "deletionTimestamp" in (await api.get(api.pods("p")))["metadata"] or None

    await api.eventually(marked)
    assert (await api.call("GET", api.maps("owner"))).status == 200
    await api.ok("DELETE", api.pods("p"), {"gracePeriodSeconds": 0})
    await api.gone(api.maps("owner"))


async def test_an_orphan_keeps_its_other_owners(api: Api) -> None:
    owner = await api.create(api.maps(), config("owner"))
    other = await api.create(api.maps(), config("other"))
    await api.create(api.maps(), config("owned", ownerReferences=[ref(owner), ref(other)]))
    await stays(api, api.maps("owned"))
    result = await api.ok("DELETE", api.maps("owner"), {"propagationPolicy": "Orphan"})
    assert result["metadata"]["finalizers"] == ["orphan"]
    await api.gone(api.maps("owner"))
    assert await owners(api, "owned") == ["other"]


# ---- namespaces


async def test_pods_of_a_namespace_are_deleted_first(api: Api) -> None:
    path = f"/api/v1/namespaces/{api.own('ns')}"
    await api.create("/api/v1/namespaces", {"metadata": {"name": api.own("ns")}})

    async def has_account() -> bool | None:
        return (await api.call("GET", f"{path}/serviceaccounts/default")).status == 200 or None

    await api.eventually(has_account)
    await api.create(f"{path}/pods", pod(nodeName=api.own("no-such-node")))
    await api.create(f"{path}/configmaps", config("free"))
    await api.create(f"{path}/configmaps", config("held", finalizers=["example.com/hold"]))
    await api.ok("DELETE", path)

    async def marked() -> bool | None:
        return "deletionTimestamp" in (await api.get(f"{path}/pods/p"))["metadata"] or None

    await api.eventually(marked)
    if api.version >= (1, 33):
        assert (await api.call("GET", f"{path}/configmaps/free")).status == 200
    await api.ok("DELETE", f"{path}/pods/p", {"gracePeriodSeconds": 0})
    await api.gone(f"{path}/configmaps/free", seconds=60)

    async def reported() -> dict[str, Json] | None:
        found = (await api.get(path))["status"].get("conditions", ())
        by_type = {item["type"]: item for item in found}
        remaining = by_type.get("NamespaceContentRemaining", {})
        return by_type if "configmaps" in remaining.get("message", "") else None

    conditions = await api.eventually(reported)
    assert conditions["NamespaceContentRemaining"]["message"] == (
        "Some resources are remaining: configmaps. has 1 resource instances"
    )
    assert conditions["NamespaceFinalizersRemaining"]["message"] == (
        "Some content in the namespace has finalizers remaining:"
        " example.com/hold in 1 resource instances"
    )
    await api.patch(f"{path}/configmaps/held", {"metadata": {"finalizers": None}})
    await api.gone(path, seconds=60)


async def test_a_terminating_namespace_takes_no_new_objects(api: Api) -> None:
    name = api.own("ns")
    path = f"/api/v1/namespaces/{name}"
    await api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    await api.create(f"{path}/configmaps", config("held", finalizers=["example.com/hold"]))
    await api.ok("DELETE", path)
    result = await api.why("POST", f"{path}/configmaps", config("late"))
    assert (result["code"], result["reason"]) == (403, "Forbidden")
    assert result["message"] == (
        f'configmaps "late" is forbidden: unable to create new content in namespace {name}'
        " because it is being terminated"
    )
    assert causes(result) == [("NamespaceTerminating", "metadata.namespace")]
    await api.patch(f"{path}/configmaps/held", {"metadata": {"finalizers": None}})
    await api.gone(path, seconds=60)


async def test_the_default_account_of_a_namespace_is_recreated(api: Api) -> None:
    path = api.path("serviceaccounts", "default")
    before = await api.get(path)
    await api.ok("DELETE", path)

    async def recreated() -> bool | None:
        answer = await api.call("GET", path)
        return (
            answer.status == 200 and answer.json()["metadata"]["uid"] != before["metadata"]["uid"]
        )

    await api.eventually(recreated)


# ---- Nodes

UNWELL = {
    "not ready": (("Ready", "False"), "not-ready"),
    "unknown": (("Ready", "Unknown"), "unreachable"),
    "memory": (("MemoryPressure", "True"), "memory-pressure"),
    "disk": (("DiskPressure", "True"), "disk-pressure"),
    "processes": (("PIDPressure", "True"), "pid-pressure"),
    "network": (("NetworkUnavailable", "True"), "network-unavailable"),
}
WELL = {"Ready": "True"}


@pytest.mark.parametrize("case", UNWELL)
async def test_conditions_of_a_node_become_taints(api: Api, case: str) -> None:
    (kind, status), key = UNWELL[case]
    async with fleet(api) as nodes:
        name = await nodes.add("n")
        own = {"key": "example.com/own", "effect": "PreferNoSchedule"}
        await nodes.taint(name, own)
        await nodes.post_conditions(name, (kind, status))
        await nodes.until_taints(name, has=key)
        assert (key, "NoSchedule") in await nodes.taints(name)
        await nodes.run()
        assert "untolerated taint" in (await nodes.condition())["message"]
        await nodes.post_conditions(name, (kind, WELL.get(kind, "False")))
        await nodes.until_taints(name, absent=key)
        assert await nodes.taints(name) == [("example.com/own", "PreferNoSchedule")]
        assert await nodes.placed() == name


async def test_a_cordon_is_a_taint_too(api: Api) -> None:
    async with fleet(api) as nodes:
        name = await nodes.add("n")
        await api.patch(f"{NODES}/{name}", {"spec": {"unschedulable": True}})
        await nodes.until_taints(name, has="unschedulable")
        assert await nodes.taints(name) == [("unschedulable", "NoSchedule")]
        await api.patch(f"{NODES}/{name}", {"spec": {"unschedulable": None}})
        await nodes.until_taints(name, absent="unschedulable")


async def test_two_labels_of_a_node_have_older_names(api: Api) -> None:
    path = f"{NODES}/{api.own('labelled')}"
    body = node(
        api.own("labelled"), labels={"kubernetes.io/os": "darwin", "beta.kubernetes.io/os": "x"}
    )
    await api.create(NODES, body)

    async def labels(**expected: str | None) -> None:
        async def same() -> bool | None:
            held = (await api.get(path))["metadata"]["labels"]
            wanted = {f"beta.kubernetes.io/{key}": value for key, value in expected.items()}
            return all(held.get(key) == value for key, value in wanted.items()) or None

        await api.eventually(same)

    await labels(os="darwin", arch=None)
    await api.patch(path, {"metadata": {"labels": {"kubernetes.io/arch": "arm64"}}})
    await labels(os="darwin", arch="arm64")
    await api.patch(path, {"metadata": {"labels": {"beta.kubernetes.io/arch": None}}})
    await labels(arch="arm64")
    await api.patch(path, {"metadata": {"labels": {"kubernetes.io/os": None}}})
    await labels(os="darwin", arch="arm64")
    await api.ok("DELETE", path)


def toleration(seconds: int | None = None) -> list[Json]:
    given = {"key": "example.com/stop", "operator": "Exists", "effect": "NoExecute"}
    return [given | ({"tolerationSeconds": seconds} if seconds is not None else {})]


STOP = {"key": "example.com/stop", "effect": "NoExecute"}


@pytest.mark.slow
async def test_a_noexecute_taint_evicts_pods_that_do_not_tolerate_it(api: Api) -> None:
    async with fleet(api) as nodes:
        name = await nodes.add("n")
        for each, tolerations in (
            ("none", []),
            ("short", toleration(1)),
            ("long", toleration(600)),
            ("good", toleration()),
        ):
            await nodes.run(each, nodeName=name, tolerations=tolerations)
        await nodes.taint(name, STOP)
        await nodes.until_deleting("none")
        await nodes.until_deleting("short")
        assert [await nodes.is_deleting(each) for each in ("long", "good")] == [False, False]
        result = await nodes.condition("none", "DisruptionTarget")
        assert (result["status"], result["reason"]) == ("True", "DeletionByTaintManager")
        assert result["message"] == "Taint manager: deleting due to NoExecute taint"
        event = await nodes.event("none", "TaintManagerEviction")
        assert event["message"] == f"Marking for deletion Pod {api.space}/none"
        await nodes.taint(name)
        event = await nodes.event("long", "TaintManagerEviction")
        assert event["message"] == f"Cancelling deletion of Pod {api.space}/long"


async def test_a_pod_bound_to_a_tainted_node_is_evicted(api: Api) -> None:
    async with fleet(api) as nodes:
        name = await nodes.add("n", spec={"taints": [STOP]})
        await nodes.run(nodeName=name)
        await nodes.until_deleting()


@pytest.mark.slow
async def test_a_silent_node_is_unknown_until_it_posts_its_status(api: Api) -> None:
    async with fleet(api) as nodes:
        await nodes.add("witness", spec={"unschedulable": True})
        name = await nodes.add("n")
        await nodes.run()
        await nodes.placed()
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        await api.patch(
            api.pods("p", "status"), ready, kind="application/strategic-merge-patch+json"
        )
        nodes.silence(name)
        await nodes.until_taints(name, has="unreachable")
        found = (await nodes.read(name))["status"]["conditions"]
        given = {item["type"]: (item["status"], item["reason"], item["message"]) for item in found}
        never = ("Unknown", "NodeStatusNeverUpdated", "Kubelet never posted node status.")
        assert given == {
            "Ready": ("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status."),
            "MemoryPressure": never,
            "DiskPressure": never,
            "PIDPressure": never,
        }

        async def lost() -> bool | None:  # one node after the other, with a pause between them
            both = [("unreachable", "NoExecute"), ("unreachable", "NoSchedule")]
            return sorted(await nodes.taints(name)) == both or None

        await api.eventually(lost, seconds=80)

        async def not_ready() -> bool | None:
            return (await nodes.condition("p", "Ready"))["status"] == "False" or None

        await api.eventually(not_ready)
        event = await nodes.event("p", "NodeNotReady")
        assert (event["type"], event["message"]) == ("Warning", "Node is not ready")
        await nodes.post_conditions(name, ("Ready", "True"))
        await nodes.until_taints(name, absent="unreachable")


@pytest.mark.slow
async def test_pods_of_a_deleted_node_are_removed(api: Api) -> None:
    async with fleet(api) as nodes:
        name = await nodes.add("n")
        await nodes.run("a")
        await nodes.run("held", meta={"finalizers": ["example.com/hold"]})
        for each in ("a", "held"):
            await nodes.placed(each)
        await api.ok("DELETE", f"{NODES}/{name}")
        await api.gone(api.pods("a"), seconds=90)
        result = await nodes.condition("held", "DisruptionTarget")
        assert (result["reason"], result["message"]) == (
            "DeletionByPodGC",
            "PodGC: node no longer exists",
        )
        left = await api.get(api.pods("held"))
        assert left["status"]["phase"] == "Failed"
        assert left["metadata"]["deletionGracePeriodSeconds"] == 0
        await api.patch(api.pods("held"), {"metadata": {"finalizers": None}})


# ---- evictions


def eviction(name: str = "p", **more: Any) -> Json:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, **more}


async def test_an_eviction_sets_a_condition_on_the_pod(api: Api) -> None:
    await api.create(api.pods(), pod(nodeName=api.own("no-such-node")))
    options = {"gracePeriodSeconds": 7}
    result = await api.ok("POST", api.pods("p", "eviction"), eviction(deleteOptions=options))
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "code": 201,
    }
    assert result == status
    left = await api.get(api.pods("p"))
    assert left["metadata"]["deletionGracePeriodSeconds"] == 7
    (condition,) = left["status"]["conditions"]
    assert condition["type"] == "DisruptionTarget" and condition["status"] == "True"
    assert (condition["reason"], condition["message"]) == (
        "EvictionByEvictionAPI",
        "Eviction API: evicting",
    )


async def test_an_eviction_of_an_unbound_pod_removes_it(api: Api) -> None:
    await api.create(api.pods(), pod())
    await api.ok("POST", api.pods("p", "eviction"), eviction())
    assert (await api.call("GET", api.pods("p"))).status == 404


@pytest.mark.parametrize("how", ["query", "body"])
async def test_an_eviction_can_be_a_dry_run(api: Api, how: str) -> None:
    made = await api.create(api.pods(), pod(nodeName=api.own("no-such-node")))
    query = {"dryRun": "All"} if how == "query" else {}
    body = eviction(deleteOptions={"dryRun": ["All"]}) if how == "body" else eviction()
    await api.ok("POST", api.pods("p", "eviction"), body, **query)
    assert await api.get(api.pods("p")) == made


REFUSED: dict[str, tuple[str, Json, tuple[int, str], str]] = {
    "another name": (
        "p",
        eviction("q"),
        (400, "BadRequest"),
        "name in URL does not match name in Eviction object",
    ),
    "no such Pod": ("none", eviction("none"), (404, "NotFound"), 'pods "none" not found'),
    "another kind": (
        "p",
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}},
        (400, "BadRequest"),
        'Pod in version "v1" cannot be handled as a Eviction',
    ),
    "another life": (
        "p",
        eviction(deleteOptions={"preconditions": {"uid": "x"}}),
        (409, "Conflict"),
        'Operation cannot be fulfilled on Pod "p": the UID in the precondition (x) does not match',
    ),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_an_eviction_is_refused(api: Api, case: str) -> None:
    name, body, code, message = REFUSED[case]
    await api.create(api.pods(), pod(nodeName=api.own("no-such-node")))
    result = await api.why("POST", api.pods(name, "eviction"), body)
    assert (result["code"], result["reason"]) == code
    assert result["message"].startswith(message)
    assert "deletionTimestamp" not in (await api.get(api.pods("p")))["metadata"]
