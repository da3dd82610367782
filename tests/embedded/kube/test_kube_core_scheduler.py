"""The scheduler: where Pods are placed, and the message on a Pod that is not."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.embedded.kube.coresupport import NODES, PODS, Harness, node, play, pod

from runyard.embedded.kube.schema.quantity import milli


def place(harness: Harness, name: str) -> str:
    found = harness.core.find("pods", "default", name)
    assert found is not None
    return str(found["spec"].get("nodeName", ""))


def condition(harness: Harness, name: str) -> dict[str, Any]:
    found = harness.core.find("pods", "default", name)
    assert found is not None
    conditions = found["status"].get("conditions", [])
    return next((item for item in conditions if item["type"] == "PodScheduled"), {})


def affinity(key: str, weight: int = 1) -> dict[str, Any]:
    wanted_pod = {
        "weight": weight,
        "preference": {"matchExpressions": [{"key": key, "operator": "Exists"}]},
    }
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wanted_pod]}}


TAINTED = {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}
NEEDS_BIG = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "size", "operator": "In", "values": ["big"]}]}
            ]
        }
    }
}
TERM = {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "kubernetes.io/hostname"}
REQUIRED = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}
PREFERRED = {
    "podAntiAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": TERM}]
    }
}
FITS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "plain": (node(), pod(), ""),
    "not ready": (node(ready="False"), pod(), "had untolerated taint(s)"),
    "cordoned": (node(spec={"unschedulable": True}), pod(), "were unschedulable"),
    "selector": (node(labels={"a": "b"}), pod(nodeSelector={"a": "b"}), ""),
    "wrong selector": (
        node(),
        pod(nodeSelector={"a": "b"}),
        "didn't match Pod's node affinity/selector",
    ),
    "taint": (node(spec=TAINTED), pod(), "had untolerated taint(s)"),
    "taint tolerated by value": (
        node(spec=TAINTED),
        pod(tolerations=[{"key": "k", "value": "v"}]),
        "",
    ),
    "taint of another value": (
        node(spec=TAINTED),
        pod(tolerations=[{"key": "k", "value": "w"}]),
        "untolerated",
    ),
    "taint tolerated by key": (
        node(spec=TAINTED),
        pod(tolerations=[{"key": "k", "operator": "Exists"}]),
        "",
    ),
    "everything tolerated": (node(spec=TAINTED), pod(tolerations=[{"operator": "Exists"}]), ""),
    "another effect tolerated": (
        node(spec=TAINTED),
        pod(tolerations=[{"key": "k", "operator": "Exists", "effect": "NoExecute"}]),
        "untolerated",
    ),
    "prefer not": (node(spec={"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}), pod(), ""),
    "no slots": (node(pods="0"), pod(), "Too many pods"),
    "cpu": (node(), pod(limits={"cpu": "16001m"}), "Insufficient cpu"),
    "memory": (node(), pod(limits={"memory": "33Gi"}), "Insufficient memory"),
    "just enough": (node(), pod(limits={"cpu": "16", "memory": "32768Mi"}), ""),
    "unknown resource": (node(), pod(limits={"example.com/x": "1"}), "Insufficient example.com/x"),
    "required affinity": (node(), pod(affinity=NEEDS_BIG), "didn't match"),
    "required affinity holds": (node(labels={"size": "big"}), pod(affinity=NEEDS_BIG), ""),
    "required pod affinity": (
        node(),
        pod(affinity=REQUIRED),
        "required pod affinity is not supported",
    ),
    "preferred pod affinity": (node(), pod(affinity=PREFERRED), ""),
}


@pytest.mark.parametrize("case", FITS)
def test_a_pod_is_bound_where_it_fits_or_gets_the_reason(case: str) -> None:
    machine, wanted_pod, expected = FITS[case]

    async def scenario(harness: Harness) -> None:
        await harness.ok("POST", NODES, machine)
        await harness.ok("POST", PODS, wanted_pod)
        if not expected:
            assert place(harness, "p") == "n1"
            assert condition(harness, "p")["status"] == "True"
            return
        assert place(harness, "p") == ""
        found = condition(harness, "p")
        assert (found["status"], found["reason"]) == ("False", "Unschedulable")
        assert found["message"].startswith("0/1 nodes are available: 1 ")
        assert any(part in found["message"] for part in expected.split("|"))

    play(scenario)


def test_pods_waiting_for_a_node_get_the_first_that_becomes_fit() -> None:
    async def scenario(harness: Harness) -> None:
        for name in ("a", "b", "c"):
            await harness.ok("POST", PODS, pod(name))
            assert "no nodes" in condition(harness, name)["message"]
        await harness.ok("POST", NODES, node(ready="Unknown"))
        assert place(harness, "a") == ""
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        await harness.merge(f"{NODES}/n1/status", ready)
        assert [place(harness, name) for name in "abc"] == ["n1", "n1", ""]
        await harness.merge(f"{PODS}/a/status", {"status": {"phase": "Succeeded"}})
        assert place(harness, "c") == "n1"

    play(scenario)


@pytest.mark.parametrize("how", ["removed", "finished"])
def test_free_resources_are_used_in_order(how: str) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.ok("POST", NODES, node(pods="1"))
        for name in ("a", "z", "b"):
            await harness.ok("POST", PODS, pod(name))
        if how == "removed":
            await harness.ok("DELETE", f"{PODS}/a")
            assert place(harness, "z") == ""  # still terminating: its resources are still used
            await harness.ok("DELETE", f"{PODS}/a", {"gracePeriodSeconds": 0})
        else:
            await harness.merge(f"{PODS}/a/status", {"status": {"phase": "Failed"}})
        assert (place(harness, "z"), place(harness, "b")) == ("n1", "")
        assert harness.core.scheduler.used("n1")["pods"] == 1000

    play(scenario)


def test_preference_then_load_then_name_decide() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.ok("POST", NODES, node("n3", labels={"warm": "yes"}, pods="2"))
        await harness.ok("POST", NODES, node("n2", pods="2"))
        await harness.ok("POST", NODES, node("n1", pods="2"))
        for name in ("a", "b", "c"):
            await harness.ok("POST", PODS, pod(name, affinity=affinity("warm")))
        assert [place(harness, name) for name in "abc"] == ["n3", "n3", "n1"]
        await harness.ok("POST", PODS, pod("d"))
        assert place(harness, "d") == "n2"

    play(scenario)


def test_reasons_are_updated_without_a_new_transition_time() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.ok("POST", NODES, node("n1", spec={"unschedulable": True}))
        await harness.ok("POST", NODES, node("n2", pods="0"))
        await harness.ok("POST", PODS, pod("a"))
        first = condition(harness, "a")
        assert first["message"] == (
            "0/2 nodes are available: 1 Too many pods, 1 node(s) were unschedulable."
            " no new claims to deallocate, preemption: 0/2 nodes are available:"
            " 1 No preemption victims found for incoming pod,"
            " 1 Preemption is not helpful for scheduling."
        )
        await harness.clock.sleep(30)
        await harness.ok("DELETE", f"{NODES}/n2")
        harness.core.tick()
        second = condition(harness, "a")
        assert second["message"].startswith(
            "0/1 nodes are available: 1 node(s) were unschedulable. "
        )
        assert second["lastTransitionTime"] == first["lastTransitionTime"]
        before = harness.core.version
        harness.core.tick()
        assert harness.core.version == before

    play(scenario)


def test_a_heartbeat_that_changes_nothing_rewrites_nothing() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.ok("POST", NODES, node(pods="0"))
        for index in range(50):
            await harness.ok("POST", PODS, pod(f"p{index}"))
        before = harness.core.version
        for beat in range(10):
            ready = [{"type": "Ready", "status": "True", "message": str(beat)}]
            await harness.merge(f"{NODES}/n1/status", {"status": {"conditions": ready}})
        assert harness.core.version == before + 10

    play(scenario)


def test_pods_of_other_schedulers_are_not_bound() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.ok("POST", NODES, node())
        await harness.ok("POST", PODS, pod("a", schedulerName="mine"))
        await harness.ok("POST", PODS, pod("b", schedulingGates=[{"name": "x"}]))
        assert place(harness, "a") == "" and place(harness, "b") == ""
        body = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n1"}}
        await harness.ok("POST", f"{PODS}/a/binding", body)
        assert place(harness, "a") == "n1"

    play(scenario)


def test_a_pod_is_bound_once_and_only_by_its_name() -> None:
    async def scenario(harness: Harness) -> None:
        made = await harness.ok("POST", PODS, pod("a"))
        path = f"{PODS}/a/binding"
        to = {"metadata": {"name": "a"}, "target": {"name": "n1"}}
        for wrong in ({"target": {"name": "n1"}}, to | {"metadata": {}}):
            assert await harness.refused("POST", path, wrong) == (400, "BadRequest")
        assert await harness.refused("POST", path, to | {"target": {}}) == (500, "")
        other = to | {"metadata": {"name": "a", "uid": "x"}}
        assert await harness.refused("POST", path, other) == (409, "Conflict")
        mine = to | {"metadata": {"name": "a", "uid": made["metadata"]["uid"]}}
        await harness.ok("POST", path, mine)
        assert await harness.refused("POST", path, to) == (409, "Conflict")

    play(scenario, schedule=False)


STEP = st.tuples(
    st.sampled_from(["add", "finish", "kill", "cordon", "uncordon", "resize", "drop", "raise"]),
    st.integers(0, 5),
)


@given(st.lists(STEP, max_size=30))
@example(
    [("add", 0), ("add", 1), ("add", 2), ("raise", 0), ("resize", 0), ("drop", 0), ("raise", 0)]
)
def test_no_binding_overcommits_and_no_pod_waits_beside_free_resources(
    steps: list[tuple[str, int]],
) -> None:
    async def scenario(harness: Harness) -> None:
        sizes: dict[str, str] = {}  # a node that registers again with less may be overcommitted
        for what, index in steps:
            name, machine = f"p{index}", f"{NODES}/n{index % 2}"
            if what == "add":
                await harness.call("POST", PODS, pod(name, limits={"cpu": str(index + 3)}))
            elif what == "finish":
                body = {"status": {"phase": "Succeeded"}}
                kind = "application/merge-patch+json"
                await harness.call("PATCH", f"{PODS}/{name}/status", body, kind=kind)
            elif what == "kill":
                await harness.call("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})
            elif what == "raise":
                pods = sizes.get(machine, "2")
                await harness.call("POST", NODES, node(f"n{index % 2}", pods=pods))
            elif what == "drop":
                await harness.call("DELETE", machine)
            else:
                spec = {"unschedulable": what == "cordon"}
                body = (
                    {"spec": spec}
                    if what != "resize"
                    else {"status": {"allocatable": {"pods": "3"}}}
                )
                path = machine if what != "resize" else f"{machine}/status"
                kind = "application/merge-patch+json"
                answer = await harness.call("PATCH", path, body, kind=kind)
                if what == "resize" and answer.status == 200:
                    sizes[machine] = "3"
            _check_allocatable(harness)

    play(scenario)


def _check_allocatable(harness: Harness) -> None:
    alive = [
        item
        for item in harness.core.objects("pods")
        if item["status"]["phase"] not in ("Succeeded", "Failed")
    ]
    waiting = [item for item in alive if not item["spec"].get("nodeName")]
    for machine in harness.core.objects("nodes"):
        name = machine["metadata"]["name"]
        here = [item for item in alive if item["spec"].get("nodeName") == name]
        allocatable = machine["status"]["allocatable"]
        used = sum(_cpu(item) for item in here)
        assert used <= milli(allocatable["cpu"]) and len(here) <= int(allocatable["pods"])
        assert harness.core.scheduler.used(name).get("cpu", 0) == used
        if not machine["spec"].get("unschedulable") and len(here) < int(allocatable["pods"]):
            assert all(used + _cpu(item) > milli(allocatable["cpu"]) for item in waiting)


def _cpu(item: dict[str, Any]) -> int:
    return milli(item["spec"]["containers"][0]["resources"]["requests"]["cpu"])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1000),
        ("500m", 500),
        ("1.5", 1500),
        ("1Ki", 1024000),
        ("2G", 2 * 10**12),
        (3, 3000),
        ("1e3", 10**6),
    ],
)
def test_quantities_are_read(text: str | int, value: int) -> None:
    assert milli(text) == value


@pytest.mark.parametrize("text", ["", "x", "1Q", "m", "1e9999", "--1", "inf", "nan", "1 Gi"])
def test_an_invalid_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="quantity"):
        milli(text)
