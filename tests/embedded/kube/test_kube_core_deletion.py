"""Deletion: finalizers, grace, owners, namespaces, old Events."""

from typing import Any

from tests.embedded.kube.coresupport import (
    ACCOUNTS,
    MAPS,
    MERGE,
    NODES,
    PODS,
    POOLS,
    World,
    events,
    node,
    play,
    pod,
    pool,
    told,
)

from runyard.wire.instants import from_rfc3339

HOLD = {"finalizers": ["example.com/hold"]}


async def bound(world: World, name: str = "a", **spec: Any) -> dict[str, Any]:
    if world.core.find("nodes", "", "n1") is None:
        await world.ok("POST", NODES, node(pods="10"))
    made = await world.ok("POST", PODS, pod(name, **spec))
    found = world.core.find("pods", "default", name)
    assert found is not None and found["spec"]["nodeName"] == "n1"
    return made


def test_a_finalizer_holds_the_object_until_it_is_removed() -> None:
    async def scenario(world: World) -> None:
        await world.ok("POST", POOLS, pool() | {"metadata": {"name": "mac"} | HOLD})
        left = await world.ok("DELETE", f"{POOLS}/mac")
        meta = left["metadata"]
        assert meta["deletionGracePeriodSeconds"] == 0 and meta["generation"] == 2
        assert from_rfc3339(meta["deletionTimestamp"]) == int(world.clock.now())
        before = world.core.version
        await world.ok("DELETE", f"{POOLS}/mac")
        assert world.core.version == before
        more = {"metadata": {"finalizers": ["example.com/hold", "example.com/second"]}}
        assert await world.refused("PATCH", f"{POOLS}/mac", more, kind=MERGE) == (422, "Invalid")
        watch = await world.watch(POOLS, resourceVersion=world.core.version)
        await world.merge(f"{POOLS}/mac", {"metadata": {"finalizers": None}})
        assert await world.refused("GET", f"{POOLS}/mac") == (404, "NotFound")
        last = await events(watch, count=1)
        assert told(last) == [("DELETED", "mac")]
        assert last[0]["object"]["metadata"]["finalizers"] == ["example.com/hold"]
        await watch.aclose()

    play(scenario)


def test_an_unbound_pod_is_removed_at_once() -> None:
    async def scenario(world: World) -> None:
        await world.ok("POST", PODS, pod("a"))
        await world.ok("DELETE", f"{PODS}/a")
        assert world.core.find("pods", "default", "a") is None

    play(scenario)


def test_a_finished_pod_is_removed_at_once() -> None:
    async def scenario(world: World) -> None:
        await bound(world)
        await world.merge(f"{PODS}/a/status", {"status": {"phase": "Failed"}})
        await world.ok("DELETE", f"{PODS}/a")
        assert world.core.find("pods", "default", "a") is None

    play(scenario)


def test_a_bound_pod_waits_for_its_agent() -> None:
    async def scenario(world: World) -> None:
        made = await bound(world, terminationGracePeriodSeconds=60)
        marked = await world.ok("DELETE", f"{PODS}/a")
        meta = marked["metadata"]
        assert meta["deletionGracePeriodSeconds"] == 60
        assert from_rfc3339(meta["deletionTimestamp"]) == int(world.clock.now()) + 60
        await world.pass_time(600)
        assert world.core.find("pods", "default", "a") is not None
        shorter = await world.ok("DELETE", f"{PODS}/a", {"gracePeriodSeconds": 10})
        assert shorter["metadata"]["deletionGracePeriodSeconds"] == 10
        same = await world.ok("DELETE", f"{PODS}/a", {"gracePeriodSeconds": 500})
        assert same["metadata"]["resourceVersion"] == shorter["metadata"]["resourceVersion"]
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": made["metadata"]["uid"]}}
        await world.ok("DELETE", f"{PODS}/a", options)
        assert world.core.find("pods", "default", "a") is None

    play(scenario)


def test_a_pod_needs_both_its_finalizer_and_its_grace_to_end() -> None:
    async def finalizer_first(world: World) -> None:
        await bound(world, meta=HOLD)
        await world.ok("DELETE", f"{PODS}/a")
        await world.merge(f"{PODS}/a", {"metadata": {"finalizers": []}})
        assert world.core.find("pods", "default", "a") is not None
        await world.ok("DELETE", f"{PODS}/a", gracePeriodSeconds=0)
        assert world.core.find("pods", "default", "a") is None

    async def grace_first(world: World) -> None:
        await bound(world, meta=HOLD)
        await world.ok("DELETE", f"{PODS}/a", {"gracePeriodSeconds": 0})
        found = world.core.find("pods", "default", "a")
        assert found is not None and found["metadata"]["deletionGracePeriodSeconds"] == 0
        await world.merge(f"{PODS}/a", {"metadata": {"finalizers": []}})
        assert world.core.find("pods", "default", "a") is None

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
    async def scenario(world: World) -> None:
        one = await world.ok("POST", MAPS, {"metadata": {"name": "one"}})
        two = await world.ok("POST", MAPS, {"metadata": {"name": "two"}})
        child = await world.ok("POST", ACCOUNTS, owned("child", one, two))
        await world.ok("POST", MAPS, owned("grandchild", child))
        await world.ok("DELETE", f"{MAPS}/one")
        assert world.core.find("serviceaccounts", "default", "child") is not None
        await world.ok("DELETE", f"{MAPS}/two")
        assert world.core.find("serviceaccounts", "default", "child") is None
        assert world.core.find("configmaps", "default", "grandchild") is None

    play(scenario)


def test_an_owner_of_the_same_name_but_another_uid_is_no_owner() -> None:
    async def scenario(world: World) -> None:
        owner = await world.ok("POST", MAPS, {"metadata": {"name": "owner"}})
        await world.ok("DELETE", f"{MAPS}/owner")
        await world.ok("POST", MAPS, {"metadata": {"name": "owner"}})
        await world.ok("POST", MAPS, owned("orphan", owner))
        assert world.core.find("configmaps", "default", "orphan") is None
        stranger = owner | {"apiVersion": "apps/v1", "kind": "Deployment"}
        await world.ok("POST", MAPS, owned("kept", stranger))
        assert world.core.find("configmaps", "default", "kept") is not None

    play(scenario)


def test_owned_pods_on_a_node_are_marked_and_wait_for_their_agent() -> None:
    async def scenario(world: World) -> None:
        owner = await world.ok("POST", MAPS, {"metadata": {"name": "owner"}})
        await bound(
            world, meta={"ownerReferences": owned("x", owner)["metadata"]["ownerReferences"]}
        )
        await world.ok("DELETE", f"{MAPS}/owner")
        found = world.core.find("pods", "default", "a")
        assert found is not None and "deletionTimestamp" in found["metadata"]

    play(scenario)


def test_a_namespace_is_removed_with_its_last_object() -> None:
    async def scenario(world: World) -> None:
        await world.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "team"}})
        path = "/api/v1/namespaces/team/configmaps"
        assert world.core.find("serviceaccounts", "team", "default") is not None
        await world.ok("POST", path, {"metadata": {"name": "free"}})
        await world.ok("POST", path, {"metadata": {"name": "held"} | HOLD})
        left = await world.ok("DELETE", "/api/v1/namespaces/team")
        assert left["status"]["phase"] == "Terminating"
        assert world.core.find("configmaps", "team", "free") is None
        assert await world.refused("POST", path, {"metadata": {"name": "new"}}) == (
            403,
            "Forbidden",
        )
        await world.merge("/api/v1/namespaces/team", {"metadata": {"labels": {"a": "b"}}})
        assert world.core.find("namespaces", "", "team") is not None
        await world.merge(f"{path}/held", {"metadata": {"finalizers": None}})
        assert world.core.find("namespaces", "", "team") is None

    play(scenario)


def test_old_events_are_deleted() -> None:
    async def scenario(world: World) -> None:
        path = "/api/v1/namespaces/default/events"
        for name in ("old", "touched"):
            body = {"metadata": {"name": name}, "involvedObject": {"kind": "Pod", "name": "a"}}
            await world.ok("POST", path, body)
        await world.pass_time(3000, step=1000)
        await world.merge(f"{path}/touched", {"count": 2})
        await world.pass_time(1000, step=1000)
        assert [item["metadata"]["name"] for item in world.core.objects("events")] == ["touched"]
        about = await world.ok("GET", path, fieldSelector="involvedObject.name=a")
        assert len(about["items"]) == 1

    play(scenario)


def test_a_namespace_with_dangling_owner_references_is_removed() -> None:
    async def scenario(world: World) -> None:
        owner = {"apiVersion": "v1", "kind": "Node", "name": "gone", "uid": "x"}
        body = {"metadata": {"name": "two", "ownerReferences": [owner]}}
        await world.ok("POST", "/api/v1/namespaces", body)
        assert world.core.find("namespaces", "", "two") is None
        assert world.core.find("serviceaccounts", "two", "default") is None

    play(scenario)
