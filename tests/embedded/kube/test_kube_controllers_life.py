"""Controllers over time and restarts: when nodes lose their Pods, and that interrupted work is finished."""

from pathlib import Path
from typing import Any

import pytest
from tests.embedded.kube.coresupport import MAPS, NODES, PODS, World, node, play, pod
from tests.embedded.kube.journalsupport import Home, lives

from runyard.wire.instants import to_rfc3339

SPACES = "/api/v1/namespaces"
READY = [{"type": "Ready", "status": "True"}]
LOST = ("unreachable", "NoExecute")
STOP = {"spec": {"taints": [{"key": "example.com/stop", "effect": "NoExecute"}]}}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def find(world: World, plural: str, name: str, space: str = "default") -> dict[str, Any] | None:
    return world.core.find(plural, space, name)


def going(world: World, name: str, plural: str = "pods") -> bool:
    found = find(world, plural, name)
    return found is not None and "deletionTimestamp" in found["metadata"]


def taints(world: World, name: str) -> list[tuple[str, str]]:
    found = world.core.find("nodes", "", name)
    assert found is not None
    held = found["spec"].get("taints", [])
    return [(item["key"].removeprefix("node.kubernetes.io/"), item["effect"]) for item in held]


def with_lost_taint(world: World) -> list[str]:
    names = [item["metadata"]["name"] for item in world.core.objects("nodes")]
    return [name for name in names if LOST in taints(world, name)]


async def join(world: World, *names: str) -> None:
    for name in names:
        await world.ok("POST", NODES, node(name, pods="10"))


async def beat(world: World, seconds: int, *names: str) -> None:
    """Advances time while these nodes send heartbeats and the others do not."""
    for _ in range(seconds // 5):
        for name in names:
            told = [{**READY[0], "lastHeartbeatTime": to_rfc3339(world.clock.now())}]
            await world.merge(f"{NODES}/{name}/status", {"status": {"conditions": told}})
        await world.pass_time(5)


def events(world: World, reason: str) -> list[dict[str, Any]]:
    return [item for item in world.core.objects("events") if item["reason"] == reason]


# ---- pace


def test_pods_of_lost_nodes_are_evicted_one_node_at_a_time() -> None:
    async def scenario(world: World) -> None:
        await join(world, "a", "b", "c", "d", "e")
        await beat(world, 50, "c", "d", "e")
        assert with_lost_taint(world) == ["a"]
        await beat(world, 5, "c", "d", "e")
        assert with_lost_taint(world) == ["a"]
        await beat(world, 5, "c", "d", "e")
        assert with_lost_taint(world) == ["a", "b"]

    play(scenario)


def test_no_pod_is_evicted_when_most_of_a_small_fleet_is_silent() -> None:
    async def scenario(world: World) -> None:
        await join(world, "a", "b", "c", "d", "e")
        await beat(world, 300, "d", "e")
        assert [taints(world, name)[0][0] for name in "abc"] == ["unreachable"] * 3
        assert with_lost_taint(world) == []

    play(scenario)


def test_no_pod_is_evicted_when_all_nodes_are_silent_and_grace_starts_again() -> None:
    async def scenario(world: World) -> None:
        await join(world, "a", "b", "c")
        await world.ok("POST", PODS, pod("p", nodeSelector={"kubernetes.io/hostname": "a"}))
        await world.ok(
            "POST", f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": {"name": "a"}}
        )
        await beat(world, 60, "b", "c")
        assert with_lost_taint(world) == ["a"]
        await beat(world, 7200)
        assert with_lost_taint(world) == [] and not going(world, "p")
        await beat(world, 300, "b", "c")
        assert with_lost_taint(world) == ["a"] and not going(world, "p")
        await beat(world, 10, "b", "c")
        assert going(world, "p")

    play(scenario)


def test_a_node_that_never_posted_its_status_gets_a_longer_grace() -> None:
    async def scenario(world: World) -> None:
        await world.ok("POST", NODES, {"metadata": {"name": "bare"}})
        assert taints(world, "bare") == []
        await world.pass_time(55)
        assert taints(world, "bare") == []
        await world.pass_time(10)
        assert taints(world, "bare") == [("unreachable", "NoSchedule")]

    play(scenario)


def test_pods_of_a_silent_node_are_no_longer_ready() -> None:
    async def scenario(world: World) -> None:
        await join(world, "a", "b")
        await world.ok("POST", PODS, pod("p", nodeName="a"))
        await world.merge(f"{PODS}/p/status", {"status": {"conditions": READY}})
        await beat(world, 45, "b")
        found = find(world, "pods", "p")
        assert found is not None
        assert found["status"]["conditions"][0]["status"] == "False"
        (event,) = [item for item in events(world, "NodeNotReady") if item["type"] == "Warning"]
        assert event["involvedObject"]["name"] == "p"

    play(scenario)


# ---- restarts


def test_toleration_time_starts_again_after_a_restart(home: Home) -> None:
    bears = {"key": "example.com/stop", "operator": "Exists", "effect": "NoExecute"}

    async def before(world: World) -> None:
        await join(world, "a")
        told = {"nodeName": "a", "tolerations": [bears | {"tolerationSeconds": 60}]}
        await world.ok("POST", PODS, pod("p", **told))
        await world.merge(f"{NODES}/a", STOP)
        await world.pass_time(50)
        assert not going(world, "p")

    async def after(world: World) -> None:
        await world.pass_time(50)
        assert not going(world, "p")
        await world.pass_time(15)
        assert going(world, "p")

    lives(home, before, after)


def test_a_foreground_deletion_finishes_after_a_restart(home: Home) -> None:
    async def before(world: World) -> None:
        owner = await world.ok("POST", MAPS, {"metadata": {"name": "owner"}})
        reference = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "owner",
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": True,
        }
        meta = {"name": "owned", "ownerReferences": [reference], "finalizers": ["example.com/hold"]}
        await world.ok("POST", MAPS, {"metadata": meta})
        await world.ok("DELETE", f"{MAPS}/owner", {"propagationPolicy": "Foreground"})
        assert going(world, "owner", "configmaps") and going(world, "owned", "configmaps")

    async def after(world: World) -> None:
        await world.merge(f"{MAPS}/owned", {"metadata": {"finalizers": None}})
        assert find(world, "configmaps", "owned") is None
        assert find(world, "configmaps", "owner") is None

    lives(home, before, after)


def test_a_namespace_deletion_finishes_after_a_restart(home: Home) -> None:
    async def before(world: World) -> None:
        await world.ok("POST", SPACES, {"metadata": {"name": "team"}})
        await world.ok("POST", f"{SPACES}/team/pods", pod("p", nodeName="a"))
        await world.ok("POST", f"{SPACES}/team/configmaps", {"metadata": {"name": "c"}})
        await world.ok("DELETE", f"{SPACES}/team")

    async def after(world: World) -> None:
        assert find(world, "configmaps", "c", "team") is not None
        await world.ok("DELETE", f"{SPACES}/team/pods/p", {"gracePeriodSeconds": 0})
        assert world.core.find("namespaces", "", "team") is None
        assert find(world, "configmaps", "c", "team") is None

    lives(home, before, after)


def test_a_pod_that_waits_for_its_spread_still_waits_after_a_restart(home: Home) -> None:
    wish = {
        "maxSkew": 1,
        "topologyKey": "host",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "a"}},
    }

    async def before(world: World) -> None:
        await world.ok("POST", NODES, node("a", labels={"host": "a"}))
        cordoned = node("b", labels={"host": "b"}, spec={"unschedulable": True})
        await world.ok("POST", NODES, cordoned)
        for name in ("p", "q"):
            told = pod(name, meta={"labels": {"app": "a"}}, topologySpreadConstraints=[wish])
            await world.ok("POST", PODS, told)
        placed = find(world, "pods", "p")
        assert placed is not None and placed["spec"]["nodeName"] == "a"

    async def after(world: World) -> None:
        waiting = find(world, "pods", "q")
        assert waiting is not None and "nodeName" not in waiting["spec"]
        await world.ok("DELETE", f"{PODS}/p")  # a terminating Pod no longer counts
        placed = find(world, "pods", "q")
        assert placed is not None and placed["spec"]["nodeName"] == "a"

    lives(home, before, after)


# ---- cost


def test_waiting_costs_nothing_while_nothing_changes() -> None:
    async def scenario(world: World) -> None:
        await world.ok("POST", NODES, node("a", pods="0"))
        for index in range(20):
            await world.ok("POST", PODS, pod(f"p{index}"))
        await world.ok("DELETE", f"{NODES}/a")
        await world.pass_time(5)
        before = world.core.version
        await world.pass_time(600)
        assert world.core.version == before

    play(scenario)


def test_a_flapping_reason_does_not_flood_events() -> None:
    async def scenario(world: World) -> None:
        await world.ok("POST", NODES, node("a", pods="0"))
        await world.ok("POST", PODS, pod("p"))
        for count in range(60):
            cordon = {"spec": {"unschedulable": count % 2 == 0}}
            await world.merge(f"{NODES}/a", cordon)
            await world.pass_time(5)
        assert 2 <= len(events(world, "FailedScheduling")) <= 6

    play(scenario)


def test_an_event_that_cannot_be_written_is_not_a_failure() -> None:
    async def scenario(world: World) -> None:
        await world.ok("POST", SPACES, {"metadata": {"name": "team"}})
        await world.ok("POST", f"{SPACES}/team/pods", pod("p", nodeName="a"))
        await world.ok("DELETE", f"{SPACES}/team")
        await join(world, "a")
        await world.merge(f"{NODES}/a", STOP)  # its Pod is going already, and its namespace too
        left = await world.ok("GET", f"{SPACES}/team/events")
        assert left["items"] == []

    play(scenario)
