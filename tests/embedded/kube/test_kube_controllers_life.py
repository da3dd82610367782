"""Controllers over time and restarts: when nodes lose their Pods, and that interrupted work is finished."""

from pathlib import Path
from typing import Any

import pytest
from tests.embedded.kube.coresupport import MAPS, NODES, PODS, Harness, node, play, pod
from tests.embedded.kube.journalsupport import DataDir, run_restarts

from runyard.wire.instants import to_rfc3339

SPACES = "/api/v1/namespaces"
READY = [{"type": "Ready", "status": "True"}]
LOST = ("unreachable", "NoExecute")
STOP = {"spec": {"taints": [{"key": "example.com/stop", "effect": "NoExecute"}]}}


@pytest.fixture
def data_dir(tmp_path: Path) -> DataDir:
    return DataDir(tmp_path)


def find(harness: Harness, plural: str, name: str, space: str = "default") -> dict[str, Any] | None:
    return harness.core.find(plural, space, name)


def deleting(harness: Harness, name: str, plural: str = "pods") -> bool:
    found = find(harness, plural, name)
    return found is not None and "deletionTimestamp" in found["metadata"]


def taints(harness: Harness, name: str) -> list[tuple[str, str]]:
    found = harness.core.find("nodes", "", name)
    assert found is not None
    held = found["spec"].get("taints", [])
    return [(item["key"].removeprefix("node.kubernetes.io/"), item["effect"]) for item in held]


def with_lost_taint(harness: Harness) -> list[str]:
    names = [item["metadata"]["name"] for item in harness.core.objects("nodes")]
    return [name for name in names if LOST in taints(harness, name)]


async def join(harness: Harness, *names: str) -> None:
    for name in names:
        await harness.ok("POST", NODES, node(name, pods="10"))


async def beat(harness: Harness, seconds: int, *names: str) -> None:
    """Advances time while these nodes send heartbeats and the others do not."""
    for _ in range(seconds // 5):
        for name in names:
            given = [{**READY[0], "lastHeartbeatTime": to_rfc3339(harness.clock.now())}]
            await harness.merge(f"{NODES}/{name}/status", {"status": {"conditions": given}})
        await harness.pass_time(5)


def events(harness: Harness, reason: str) -> list[dict[str, Any]]:
    return [item for item in harness.core.objects("events") if item["reason"] == reason]


# ---- pace


def test_pods_of_lost_nodes_are_evicted_one_node_at_a_time() -> None:
    async def scenario(harness: Harness) -> None:
        await join(harness, "a", "b", "c", "d", "e")
        await beat(harness, 50, "c", "d", "e")
        assert with_lost_taint(harness) == ["a"]
        await beat(harness, 5, "c", "d", "e")
        assert with_lost_taint(harness) == ["a"]
        await beat(harness, 5, "c", "d", "e")
        assert with_lost_taint(harness) == ["a", "b"]

    play(scenario)


def test_no_pod_is_evicted_when_most_of_a_small_fleet_is_silent() -> None:
    async def scenario(harness: Harness) -> None:
        await join(harness, "a", "b", "c", "d", "e")
        await beat(harness, 300, "d", "e")
        assert [taints(harness, name)[0][0] for name in "abc"] == ["unreachable"] * 3
        assert with_lost_taint(harness) == []

    play(scenario)


def test_no_pod_is_evicted_when_all_nodes_are_silent_and_grace_starts_again() -> None:
    async def scenario(harness: Harness) -> None:
        await join(harness, "a", "b", "c")
        await harness.ok("POST", PODS, pod("p", nodeSelector={"kubernetes.io/hostname": "a"}))
        await harness.ok(
            "POST", f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": {"name": "a"}}
        )
        await beat(harness, 60, "b", "c")
        assert with_lost_taint(harness) == ["a"]
        await beat(harness, 7200)
        assert with_lost_taint(harness) == [] and not deleting(harness, "p")
        await beat(harness, 300, "b", "c")
        assert with_lost_taint(harness) == ["a"] and not deleting(harness, "p")
        await beat(harness, 10, "b", "c")
        assert deleting(harness, "p")

    play(scenario)


def test_a_node_that_never_posted_its_status_gets_a_longer_grace() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.ok("POST", NODES, {"metadata": {"name": "bare"}})
        assert taints(harness, "bare") == []
        await harness.pass_time(55)
        assert taints(harness, "bare") == []
        await harness.pass_time(10)
        assert taints(harness, "bare") == [("unreachable", "NoSchedule")]

    play(scenario)


def test_pods_of_a_silent_node_are_no_longer_ready() -> None:
    async def scenario(harness: Harness) -> None:
        await join(harness, "a", "b")
        await harness.ok("POST", PODS, pod("p", nodeName="a"))
        await harness.merge(f"{PODS}/p/status", {"status": {"conditions": READY}})
        await beat(harness, 45, "b")
        found = find(harness, "pods", "p")
        assert found is not None
        assert found["status"]["conditions"][0]["status"] == "False"
        (event,) = [item for item in events(harness, "NodeNotReady") if item["type"] == "Warning"]
        assert event["involvedObject"]["name"] == "p"

    play(scenario)


# ---- restarts


def test_toleration_time_starts_again_after_a_restart(data_dir: DataDir) -> None:
    toleration = {"key": "example.com/stop", "operator": "Exists", "effect": "NoExecute"}

    async def before(harness: Harness) -> None:
        await join(harness, "a")
        given = {"nodeName": "a", "tolerations": [toleration | {"tolerationSeconds": 60}]}
        await harness.ok("POST", PODS, pod("p", **given))
        await harness.merge(f"{NODES}/a", STOP)
        await harness.pass_time(50)
        assert not deleting(harness, "p")

    async def after(harness: Harness) -> None:
        await harness.pass_time(50)
        assert not deleting(harness, "p")
        await harness.pass_time(15)
        assert deleting(harness, "p")

    run_restarts(data_dir, before, after)


def test_a_foreground_deletion_finishes_after_a_restart(data_dir: DataDir) -> None:
    async def before(harness: Harness) -> None:
        owner = await harness.ok("POST", MAPS, {"metadata": {"name": "owner"}})
        reference = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "owner",
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": True,
        }
        meta = {"name": "owned", "ownerReferences": [reference], "finalizers": ["example.com/hold"]}
        await harness.ok("POST", MAPS, {"metadata": meta})
        await harness.ok("DELETE", f"{MAPS}/owner", {"propagationPolicy": "Foreground"})
        assert deleting(harness, "owner", "configmaps") and deleting(harness, "owned", "configmaps")

    async def after(harness: Harness) -> None:
        await harness.merge(f"{MAPS}/owned", {"metadata": {"finalizers": None}})
        assert find(harness, "configmaps", "owned") is None
        assert find(harness, "configmaps", "owner") is None

    run_restarts(data_dir, before, after)


def test_a_namespace_deletion_finishes_after_a_restart(data_dir: DataDir) -> None:
    async def before(harness: Harness) -> None:
        await harness.ok("POST", SPACES, {"metadata": {"name": "team"}})
        await harness.ok("POST", f"{SPACES}/team/pods", pod("p", nodeName="a"))
        await harness.ok("POST", f"{SPACES}/team/configmaps", {"metadata": {"name": "c"}})
        await harness.ok("DELETE", f"{SPACES}/team")

    async def after(harness: Harness) -> None:
        assert find(harness, "configmaps", "c", "team") is not None
        await harness.ok("DELETE", f"{SPACES}/team/pods/p", {"gracePeriodSeconds": 0})
        assert harness.core.find("namespaces", "", "team") is None
        assert find(harness, "configmaps", "c", "team") is None

    run_restarts(data_dir, before, after)


def test_a_pod_that_waits_for_its_spread_still_waits_after_a_restart(data_dir: DataDir) -> None:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "host",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "a"}},
    }

    async def before(harness: Harness) -> None:
        await harness.ok("POST", NODES, node("a", labels={"host": "a"}))
        cordoned = node("b", labels={"host": "b"}, spec={"unschedulable": True})
        await harness.ok("POST", NODES, cordoned)
        for name in ("p", "q"):
            given = pod(name, meta={"labels": {"app": "a"}}, topologySpreadConstraints=[constraint])
            await harness.ok("POST", PODS, given)
        placed = find(harness, "pods", "p")
        assert placed is not None and placed["spec"]["nodeName"] == "a"

    async def after(harness: Harness) -> None:
        waiting = find(harness, "pods", "q")
        assert waiting is not None and "nodeName" not in waiting["spec"]
        await harness.ok("DELETE", f"{PODS}/p")  # a terminating Pod no longer counts
        placed = find(harness, "pods", "q")
        assert placed is not None and placed["spec"]["nodeName"] == "a"

    run_restarts(data_dir, before, after)


# ---- cost


def test_waiting_costs_nothing_while_nothing_changes() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.ok("POST", NODES, node("a", pods="0"))
        for index in range(20):
            await harness.ok("POST", PODS, pod(f"p{index}"))
        await harness.ok("DELETE", f"{NODES}/a")
        await harness.pass_time(5)
        before = harness.core.version
        await harness.pass_time(600)
        assert harness.core.version == before

    play(scenario)


def test_a_flapping_reason_does_not_flood_events() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.ok("POST", NODES, node("a", pods="0"))
        await harness.ok("POST", PODS, pod("p"))
        for count in range(60):
            cordon = {"spec": {"unschedulable": count % 2 == 0}}
            await harness.merge(f"{NODES}/a", cordon)
            await harness.pass_time(5)
        assert 2 <= len(events(harness, "FailedScheduling")) <= 6

    play(scenario)


def test_an_event_that_cannot_be_written_is_not_a_failure() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.ok("POST", SPACES, {"metadata": {"name": "team"}})
        await harness.ok("POST", f"{SPACES}/team/pods", pod("p", nodeName="a"))
        await harness.ok("DELETE", f"{SPACES}/team")
        await join(harness, "a")
        await harness.merge(
            f"{NODES}/a", STOP
        )  # its Pod is being deleted already, and its namespace too
        left = await harness.ok("GET", f"{SPACES}/team/events")
        assert left["items"] == []

    play(scenario)
