"""Deletion: finalizers, grace, owners, namespaces, old Events."""

from typing import Any

from tests.embedded.kube.coresupport import (
    ACCOUNTS,
    MAPS,
    MERGE,
    NODES,
    PODS,
    POOLS,
    Harness,
    events,
    node,
    play,
    pod,
    pool,
    types_and_names,
)

from runyard.wire.instants import from_rfc3339

HOLD = {"finalizers": ["example.com/hold"]}


async def bound(harness: Harness, name: str = "a", **spec: Any) -> dict[str, Any]:
    if harness.core.find("nodes", "", "n1") is None:
        await harness.ok("POST", NODES, node(pods="10"))
    made = await harness.ok("POST", PODS, pod(name, **spec))
    found = harness.core.find("pods", "default", name)
    assert found is not None and found["spec"]["nodeName"] == "n1"
    return made


def test_a_finalizer_holds_the_object_until_it_is_removed() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.ok("POST", POOLS, pool() | {"metadata": {"name": "mac"} | HOLD})
        left = await harness.ok("DELETE", f"{POOLS}/mac")
        meta = left["metadata"]
        assert meta["deletionGracePeriodSeconds"] == 0 and meta["generation"] == 2
        assert from_rfc3339(meta["deletionTimestamp"]) == int(harness.clock.now())
        before = harness.core.version
        await harness.ok("DELETE", f"{POOLS}/mac")
        assert harness.core.version == before
        more = {"metadata": {"finalizers": ["example.com/hold", "example.com/second"]}}
        assert await harness.refused("PATCH", f"{POOLS}/mac", more, kind=MERGE) == (422, "Invalid")
        watch = await harness.watch(POOLS, resourceVersion=harness.core.version)
        await harness.merge(f"{POOLS}/mac", {"metadata": {"finalizers": None}})
        assert await harness.refused("GET", f"{POOLS}/mac") == (404, "NotFound")
        last = await events(watch, count=1)
        assert types_and_names(last) == [("DELETED", "mac")]
        assert last[0]["object"]["metadata"]["finalizers"] == ["example.com/hold"]
        await watch.aclose()

    play(scenario)


def test_an_unbound_pod_is_removed_at_once() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.ok("POST", PODS, pod("a"))
        await harness.ok("DELETE", f"{PODS}/a")
        assert harness.core.find("pods", "default", "a") is None

    play(scenario)


def test_a_finished_pod_is_removed_at_once() -> None:
    async def scenario(harness: Harness) -> None:
        await bound(harness)
        await harness.merge(f"{PODS}/a/status", {"status": {"phase": "Failed"}})
        await harness.ok("DELETE", f"{PODS}/a")
        assert harness.core.find("pods", "default", "a") is None

    play(scenario)


def test_a_bound_pod_waits_for_its_agent() -> None:
    async def scenario(harness: Harness) -> None:
        made = await bound(harness, terminationGracePeriodSeconds=60)
        marked = await harness.ok("DELETE", f"{PODS}/a")
        meta = marked["metadata"]
        assert meta["deletionGracePeriodSeconds"] == 60
        assert from_rfc3339(meta["deletionTimestamp"]) == int(harness.clock.now()) + 60
        await harness.pass_time(600)
        assert harness.core.find("pods", "default", "a") is not None
        shorter = await harness.ok("DELETE", f"{PODS}/a", {"gracePeriodSeconds": 10})
        assert shorter["metadata"]["deletionGracePeriodSeconds"] == 10
        same = await harness.ok("DELETE", f"{PODS}/a", {"gracePeriodSeconds": 500})
        assert same["metadata"]["resourceVersion"] == shorter["metadata"]["resourceVersion"]
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": made["metadata"]["uid"]}}
        await harness.ok("DELETE", f"{PODS}/a", options)
        assert harness.core.find("pods", "default", "a") is None

    play(scenario)


def test_a_pod_needs_both_its_finalizer_and_its_grace_to_end() -> None:
    async def finalizer_first(harness: Harness) -> None:
        await bound(harness, meta=HOLD)
        await harness.ok("DELETE", f"{PODS}/a")
        await harness.merge(f"{PODS}/a", {"metadata": {"finalizers": []}})
        assert harness.core.find("pods", "default", "a") is not None
        await harness.ok("DELETE", f"{PODS}/a", gracePeriodSeconds=0)
        assert harness.core.find("pods", "default", "a") is None

    async def grace_first(harness: Harness) -> None:
        await bound(harness, meta=HOLD)
        await harness.ok("DELETE", f"{PODS}/a", {"gracePeriodSeconds": 0})
        found = harness.core.find("pods", "default", "a")
        assert found is not None and found["metadata"]["deletionGracePeriodSeconds"] == 0
        await harness.merge(f"{PODS}/a", {"metadata": {"finalizers": []}})
        assert harness.core.find("pods", "default", "a") is None

    play(finalizer_first)
    play(grace_first)


def owned(name: str, *owners: dict[str, Any]) -> dict[str, Any]:
    references = [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
        }
        for owner in owners
    ]
    return {"metadata": {"name": name, "ownerReferences": references}}


def test_dependents_follow_their_last_owner() -> None:
    async def scenario(harness: Harness) -> None:
        one = await harness.ok("POST", MAPS, {"metadata": {"name": "one"}})
        two = await harness.ok("POST", MAPS, {"metadata": {"name": "two"}})
        child = await harness.ok("POST", ACCOUNTS, owned("child", one, two))
        await harness.ok("POST", MAPS, owned("grandchild", child))
        await harness.ok("DELETE", f"{MAPS}/one")
        assert harness.core.find("serviceaccounts", "default", "child") is not None
        await harness.ok("DELETE", f"{MAPS}/two")
        assert harness.core.find("serviceaccounts", "default", "child") is None
        assert harness.core.find("configmaps", "default", "grandchild") is None

    play(scenario)


def test_an_owner_of_the_same_name_but_another_uid_is_no_owner() -> None:
    async def scenario(harness: Harness) -> None:
        owner = await harness.ok("POST", MAPS, {"metadata": {"name": "owner"}})
        await harness.ok("DELETE", f"{MAPS}/owner")
        await harness.ok("POST", MAPS, {"metadata": {"name": "owner"}})
        await harness.ok("POST", MAPS, owned("orphan", owner))
        assert harness.core.find("configmaps", "default", "orphan") is None
        unknown_kind = owner | {"apiVersion": "apps/v1", "kind": "Deployment"}
        await harness.ok("POST", MAPS, owned("kept", unknown_kind))
        assert harness.core.find("configmaps", "default", "kept") is not None

    play(scenario)


def test_owned_pods_on_a_node_are_marked_and_wait_for_their_agent() -> None:
    async def scenario(harness: Harness) -> None:
        owner = await harness.ok("POST", MAPS, {"metadata": {"name": "owner"}})
        await bound(
            harness, meta={"ownerReferences": owned("x", owner)["metadata"]["ownerReferences"]}
        )
        await harness.ok("DELETE", f"{MAPS}/owner")
        found = harness.core.find("pods", "default", "a")
        assert found is not None and "deletionTimestamp" in found["metadata"]

    play(scenario)


def test_a_namespace_is_removed_with_its_last_object() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "team"}})
        path = "/api/v1/namespaces/team/configmaps"
        assert harness.core.find("serviceaccounts", "team", "default") is not None
        await harness.ok("POST", path, {"metadata": {"name": "free"}})
        await harness.ok("POST", path, {"metadata": {"name": "held"} | HOLD})
        left = await harness.ok("DELETE", "/api/v1/namespaces/team")
        assert left["status"]["phase"] == "Terminating"
        assert harness.core.find("configmaps", "team", "free") is None
        assert await harness.refused("POST", path, {"metadata": {"name": "new"}}) == (
            403,
            "Forbidden",
        )
        await harness.merge("/api/v1/namespaces/team", {"metadata": {"labels": {"a": "b"}}})
        assert harness.core.find("namespaces", "", "team") is not None
        await harness.merge(f"{path}/held", {"metadata": {"finalizers": None}})
        assert harness.core.find("namespaces", "", "team") is None

    play(scenario)


def test_old_events_are_deleted() -> None:
    async def scenario(harness: Harness) -> None:
        path = "/api/v1/namespaces/default/events"
        for name in ("old", "touched"):
            body = {"metadata": {"name": name}, "involvedObject": {"kind": "Pod", "name": "a"}}
            await harness.ok("POST", path, body)
        await harness.pass_time(3000, step=1000)
        await harness.merge(f"{path}/touched", {"count": 2})
        await harness.pass_time(1000, step=1000)
        assert [item["metadata"]["name"] for item in harness.core.objects("events")] == ["touched"]
        about = await harness.ok("GET", path, fieldSelector="involvedObject.name=a")
        assert len(about["items"]) == 1

    play(scenario)


def test_a_namespace_with_dangling_owner_references_is_removed() -> None:
    async def scenario(harness: Harness) -> None:
        owner = {"apiVersion": "v1", "kind": "Node", "name": "gone", "uid": "x"}
        body = {"metadata": {"name": "two", "ownerReferences": [owner]}}
        await harness.ok("POST", "/api/v1/namespaces", body)
        assert harness.core.find("namespaces", "", "two") is None
        assert harness.core.find("serviceaccounts", "two", "default") is None

    play(scenario)
