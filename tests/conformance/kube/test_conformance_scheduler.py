"""The scheduler: where Pods are placed, and the messages on Pods that are not."""

from typing import Any

import pytest
from tests.conformance.kube.kit import Api, Json
from tests.conformance.kube.nodekit import NODES, fleet

HOST = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def with_limits(**amounts: str) -> list[Json]:
    """A container with these limits; `_` in a keyword stands for `-`."""
    limits = {key.replace("_", "-"): value for key, value in amounts.items()}
    if "x" in limits:
        limits["example.com/x"] = limits.pop("x")
    return [{"name": "a", "image": "vm:1", "resources": {"limits": limits}}]


def port(number: int, **more: Any) -> list[Json]:
    return [
        {"name": "a", "image": "vm:1", "ports": [{"containerPort": 1, "hostPort": number, **more}]}
    ]


def required_affinity(*expressions: tuple[str, str, list[str]], fields: bool = False) -> Json:
    given = [
        {"key": key, "operator": operator} | ({"values": values} if values else {})
        for key, operator, values in expressions
    ]
    term = {"matchFields" if fields else "matchExpressions": given}
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}}}


def preferred_affinity(key: str, weight: int = 10) -> Json:
    term = {"matchExpressions": [{"key": key, "operator": "Exists"}]}
    return {"affinity": {"nodeAffinity": {PREFERRED: [{"weight": weight, "preference": term}]}}}


def spread_constraint(**more: Any) -> Json:
    given = {
        "maxSkew": 1,
        "topologyKey": HOST,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "a"}},
    }
    return {"topologySpreadConstraints": [given | more]}


TAINT = {"key": "example.com/mac", "value": "m1", "effect": "NoSchedule"}
TAINTED: Json = {"spec": {"taints": [TAINT]}}
STOP: Json = {"spec": {"taints": [{**TAINT, "effect": "NoExecute"}]}}

# the Node, the Pod, whether the Pod is placed there
FITS: dict[str, tuple[Json, Json, bool]] = {
    "no requirement": ({}, {}, True),
    "label": ({"labels": {"a": "b"}}, {"nodeSelector": {"a": "b"}}, True),
    "another label": ({"labels": {"a": "c"}}, {"nodeSelector": {"a": "b"}}, False),
    "in": ({"labels": {"a": "c"}}, required_affinity(("a", "In", ["b", "c"])), True),
    "not in": ({"labels": {"a": "c"}}, required_affinity(("a", "NotIn", ["c"])), False),
    "not in without": ({}, required_affinity(("a", "NotIn", ["c"])), True),
    "exists": ({"labels": {"a": ""}}, required_affinity(("a", "Exists", [])), True),
    "exists not": ({}, required_affinity(("a", "Exists", [])), False),
    "does not exist": ({}, required_affinity(("a", "DoesNotExist", [])), True),
    "greater": ({"labels": {"a": "10"}}, required_affinity(("a", "Gt", ["9"])), True),
    "not greater": ({"labels": {"a": "9"}}, required_affinity(("a", "Gt", ["9"])), False),
    "less": ({"labels": {"a": "8"}}, required_affinity(("a", "Lt", ["9"])), True),
    "no number": ({"labels": {"a": "x"}}, required_affinity(("a", "Lt", ["9"])), False),
    "both": (
        {"labels": {"a": "1"}},
        required_affinity(("a", "Exists", []), ("b", "Exists", [])),
        False,
    ),
    "another node": (
        {},
        required_affinity(("metadata.name", "In", ["nobody"]), fields=True),
        False,
    ),
    "not that node": (
        {},
        required_affinity(("metadata.name", "NotIn", ["nobody"]), fields=True),
        True,
    ),
    "taint": (TAINTED, {}, False),
    "equal": (TAINTED, {"tolerations": [{"key": TAINT["key"], "value": "m1"}]}, True),
    "not equal": (TAINTED, {"tolerations": [{"key": TAINT["key"], "value": "m2"}]}, False),
    "any value": (TAINTED, {"tolerations": [{"key": TAINT["key"], "operator": "Exists"}]}, True),
    "anything": (TAINTED, {"tolerations": [{"operator": "Exists"}]}, True),
    "another effect": (
        TAINTED,
        {"tolerations": [{"key": TAINT["key"], "operator": "Exists", "effect": "NoExecute"}]},
        False,
    ),
    "no execute": (STOP, {}, False),
    "prefers not": ({"spec": {"taints": [{**TAINT, "effect": "PreferNoSchedule"}]}}, {}, True),
    "cordon": ({"spec": {"unschedulable": True}}, {}, False),
    "cordon tolerated": (
        {"spec": {"unschedulable": True}},
        {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]},
        True,
    ),
    "just enough": ({}, {"containers": with_limits(cpu="16", memory="32768Mi")}, True),
    "too much cpu": ({}, {"containers": with_limits(cpu="16001m")}, False),
    "too much memory": ({}, {"containers": with_limits(memory="33Gi")}, False),
    "nothing of that": ({}, {"containers": with_limits(x="1")}, False),
    "no capacity for Pods": ({"pods": "0"}, {}, False),
    "port": ({}, {"containers": port(8080)}, True),
    "spread without the label": ({}, spread_constraint(topologyKey="zone"), False),
    "spread anyway": (
        {},
        spread_constraint(topologyKey="zone", whenUnsatisfiable="ScheduleAnyway"),
        True,
    ),
}


@pytest.mark.parametrize("case", FITS)
async def test_a_pod_is_bound_where_it_fits(api: Api, case: str) -> None:
    machine, wanted_pod, fits = FITS[case]
    async with fleet(api) as nodes:
        name = await nodes.add("n", **machine)
        await nodes.run(**wanted_pod)
        answer = await nodes.condition()
        if fits:
            assert await nodes.placed() == name
            assert (await nodes.condition())["status"] == "True"
        else:
            assert (answer["status"], answer["reason"]) == ("False", "Unschedulable")
            assert answer["message"].startswith("0/1 nodes are available: 1 ")


NEVER = "Preemption is not helpful for scheduling"
NOBODY = "No preemption victims found for incoming pod"
WORDS: dict[str, tuple[Json, str, str]] = {
    "selector": (
        {"nodeSelector": {"a": "b"}},
        "3 node(s) didn't match Pod's node affinity/selector",
        f"3 {NEVER}",
    ),
    "cpu": ({"containers": with_limits(cpu="20")}, "3 Insufficient cpu", f"3 {NEVER}"),
    "all it lacks": (
        {"containers": with_limits(cpu="20", memory="40Gi", x="1")},
        "3 Insufficient cpu, 3 Insufficient example.com/x, 3 Insufficient memory",
        f"3 {NEVER}",
    ),
    "for now": ({"containers": with_limits(cpu="12")}, "3 Insufficient cpu", f"3 {NOBODY}"),
    "port": (
        {"containers": port(8080)},
        "3 node(s) didn't have free ports for the requested pod ports",
        f"3 {NOBODY}",
    ),
    "by name": (
        required_affinity(("metadata.name", "In", ["nobody"]), fields=True),
        "3 node(s) didn't satisfy plugin(s) [NodeAffinity]",
        f"3 {NEVER}",
    ),
    "no such domain": (
        spread_constraint(topologyKey="zone"),
        "3 node(s) didn't match pod topology spread constraints (missing required label)",
        f"3 {NEVER}",
    ),
}


@pytest.mark.since(1, 36)
@pytest.mark.parametrize("case", WORDS)
async def test_reasons_are_counted_with_the_same_messages(api: Api, case: str) -> None:
    wanted_pod, reasons, helped = WORDS[case]
    async with fleet(api) as nodes:
        for name in ("a", "b", "c"):
            full = await nodes.add(name)
            await nodes.run(
                f"on-{name}",
                nodeSelector={HOST: full},
                containers=[with_limits(cpu="8")[0] | {"ports": port(8080)[0]["ports"]}],
            )
            await nodes.placed(f"on-{name}")
        await nodes.run(**wanted_pod)
        none = "0/3 nodes are available:"
        assert (await nodes.condition())["message"] == (
            f"{none} {reasons}. no new claims to deallocate, preemption: {none} {helped}."
        )


@pytest.mark.since(1, 36)
async def test_each_node_is_counted_under_its_first_reason(api: Api) -> None:
    async with fleet(api) as nodes:
        await nodes.add("a", spec={"unschedulable": True, "taints": [TAINT]})
        await nodes.add("b", spec={"taints": [TAINT]})
        await nodes.add("c", pods="0")
        await nodes.add("d", labels={"run": "elsewhere"})
        await nodes.run(containers=with_limits(cpu="20"))
        assert (await nodes.condition())["message"] == (
            "0/4 nodes are available: 1 Insufficient cpu, 1 Too many pods,"
            " 1 node(s) didn't match Pod's node affinity/selector,"
            " 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable."
            " no new claims to deallocate, preemption: 0/4 nodes are available:"
            f" 4 {NEVER}."
        )


async def test_without_nodes_there_is_one_reason(api: Api) -> None:
    async with fleet(api) as nodes:
        await nodes.run()
        assert (await nodes.condition())["message"] == "no nodes available to schedule pods"


async def test_a_waiting_pod_gets_a_condition_and_an_event(api: Api) -> None:
    async with fleet(api) as nodes:
        await nodes.add("n", pods="0")
        made = await nodes.run()
        answer = await nodes.condition()
        assert {key: answer.get(key, "") for key in ("type", "status", "reason")} == {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
        }
        assert answer["lastTransitionTime"] and answer["lastProbeTime"] is None
        event = await nodes.event("p", "FailedScheduling")
        assert event["message"] == answer["message"]
        assert event["involvedObject"]["uid"] == made["metadata"]["uid"]
        facts = ("type", "action", "reportingComponent", "firstTimestamp", "lastTimestamp")
        assert {key: event[key] for key in facts} == {
            "type": "Warning",
            "action": "Scheduling",
            "reportingComponent": "default-scheduler",
            "firstTimestamp": None,
            "lastTimestamp": None,
        }
        assert event["eventTime"]


async def test_a_bound_pod_gets_a_condition_and_an_event(api: Api) -> None:
    async with fleet(api) as nodes:
        name = await nodes.add("n")
        await nodes.run()
        await nodes.placed()
        answer = await nodes.condition()
        assert answer.pop("lastTransitionTime")
        answer.pop("observedGeneration", None)
        assert answer == {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
        event = await nodes.event("p", "Scheduled")
        assert event["message"] == f"Successfully assigned {api.space}/p to {name}"
        assert (event["type"], event["action"]) == ("Normal", "Binding")


CHANGES: dict[str, tuple[Json, Json]] = {
    "uncordoned": ({"unschedulable": True}, {"spec": {"unschedulable": None}}),
    "untainted": ({"taints": [TAINT]}, {"spec": {"taints": None}}),
    "labelled": ({}, {"metadata": {"labels": {"wanted": "yes"}}}),
}


@pytest.mark.parametrize("case", CHANGES)
async def test_a_waiting_pod_is_bound_when_a_node_changes(api: Api, case: str) -> None:
    spec, change = CHANGES[case]
    async with fleet(api) as nodes:
        name = await nodes.add("n", spec=spec)
        wanted_pod = {"nodeSelector": {"wanted": "yes"}} if case == "labelled" else {}
        await nodes.run(**wanted_pod)
        assert (await nodes.condition())["status"] == "False"
        await api.patch(f"{NODES}/{name}", change)
        assert await nodes.placed() == name


async def test_a_waiting_pod_is_bound_when_a_node_is_added(api: Api) -> None:
    async with fleet(api) as nodes:
        await nodes.run()
        assert (await nodes.condition())["status"] == "False"
        name = await nodes.add("n")
        assert await nodes.placed() == name


async def test_a_waiting_pod_is_bound_when_a_port_becomes_free(api: Api) -> None:
    async with fleet(api) as nodes:
        name = await nodes.add("n")
        await nodes.run("a", containers=port(8080))
        assert await nodes.placed("a") == name
        await nodes.run("b", containers=port(8080, hostIP="127.0.0.1"))
        assert (await nodes.condition("b"))["status"] == "False"
        await nodes.run("udp", containers=port(8080, protocol="UDP"))
        assert await nodes.placed("udp") == name
        await api.ok("DELETE", api.pods("a"), {"gracePeriodSeconds": 0})
        assert await nodes.placed("b") == name


async def test_a_preference_decides_between_nodes(api: Api) -> None:
    async with fleet(api) as nodes:
        await nodes.add("a")
        liked = await nodes.add("b", labels={"warm": "yes"})
        await nodes.run(**preferred_affinity("warm", weight=100))
        assert await nodes.placed() == liked


async def test_a_prefer_no_schedule_taint_counts(api: Api) -> None:
    async with fleet(api) as nodes:
        await nodes.add("a", spec={"taints": [{**TAINT, "effect": "PreferNoSchedule"}]})
        free = await nodes.add("b")
        for name in ("p", "q", "r"):
            await nodes.run(name)
            assert await nodes.placed(name) == free


async def test_pods_are_spread_evenly(api: Api) -> None:
    async with fleet(api) as nodes:
        names = [await nodes.add(name) for name in ("a", "b", "c")]
        placed = []
        for index in range(6):
            await nodes.run(f"p{index}", meta={"labels": {"app": "a"}}, **spread_constraint())
            placed.append(await nodes.placed(f"p{index}"))
        assert [placed.count(name) for name in names] == [2, 2, 2]


@pytest.mark.since(1, 36)
async def test_a_pod_with_a_hard_spread_constraint_waits(api: Api) -> None:
    async with fleet(api) as nodes:
        name = await nodes.add("a")
        other = await nodes.add("b", spec={"unschedulable": True})
        await nodes.run("first", meta={"labels": {"app": "a"}}, **spread_constraint())
        assert await nodes.placed("first") == name
        await nodes.run("second", meta={"labels": {"app": "a"}}, **spread_constraint())
        none = "0/2 nodes are available:"
        assert (await nodes.condition("second"))["message"] == (
            f"{none} 1 node(s) didn't match pod topology spread constraints,"
            " 1 node(s) were unschedulable. no new claims to deallocate,"
            f" preemption: {none} 1 {NOBODY}, 1 {NEVER}."
        )
        await nodes.run("third", meta={"labels": {"app": "a"}}, **spread_constraint(maxSkew=2))
        assert await nodes.placed("third") == name
        await api.patch(f"{NODES}/{other}", {"spec": {"unschedulable": None}})
        assert await nodes.placed("second") == other


async def test_pods_of_other_schedulers_are_not_bound(api: Api) -> None:
    async with fleet(api) as nodes:
        name = await nodes.add("n")
        await nodes.run("theirs", schedulerName="somebody-else")
        await nodes.run("preset", nodeName=name, containers=with_limits(cpu="100"))
        await nodes.run("ours")
        assert await nodes.placed("ours") == name
        theirs = await api.get(api.pods("theirs"))
        assert "nodeName" not in theirs["spec"] and "conditions" not in theirs["status"]
        preset = await api.get(api.pods("preset"))
        assert "conditions" not in preset["status"]


async def test_a_gated_pod_waits_until_its_gate_is_removed(api: Api) -> None:
    async with fleet(api) as nodes:
        name = await nodes.add("n")
        await nodes.run(schedulingGates=[{"name": "example.com/gate"}])
        answer = await nodes.condition()
        assert (answer["status"], answer["reason"]) == ("False", "SchedulingGated")
        assert answer["message"] == "Scheduling is blocked due to non-empty scheduling gates"
        await api.patch(api.pods("p"), {"spec": {"schedulingGates": []}})
        assert await nodes.placed() == name
