"""The pure decisions of the controllers, as tables: taints, tolerations, silent nodes, fit, spread, messages."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runyard.embedded.kube import shapes, taints
from runyard.embedded.kube.controllers import fit, lifecycle, namespaces, spread
from runyard.embedded.kube.resources import CONFIG_MAPS, LEASES, PODS

NOW, EARLIER = "2026-01-01T00:00:10Z", "2026-01-01T00:00:00Z"


def taint(key: str, effect: str = "NoSchedule", **more: Any) -> dict[str, Any]:
    return {"key": f"node.kubernetes.io/{key}" if "/" not in key else key, "effect": effect, **more}


def conditions_of(**conditions: str) -> list[dict[str, Any]]:
    return [{"type": kind, "status": status} for kind, status in conditions.items()]


OWN = taint("example.com/own", "NoExecute")

# taints before, conditions, cordoned, taints after
SETTLED: dict[str, tuple[list[Any], list[Any], bool, list[tuple[str, str]]]] = {
    "well": ([], conditions_of(Ready="True"), False, []),
    "says nothing": ([taint("not-ready")], [], False, []),
    "not ready": ([], conditions_of(Ready="False"), False, [("not-ready", "NoSchedule")]),
    "silent": ([], conditions_of(Ready="Unknown"), False, [("unreachable", "NoSchedule")]),
    "well again": (
        [taint("not-ready"), taint("not-ready", "NoExecute")],
        conditions_of(Ready="True"),
        False,
        [],
    ),
    "from not ready to silent": (
        [taint("not-ready"), taint("not-ready", "NoExecute")],
        conditions_of(Ready="Unknown"),
        False,
        [("unreachable", "NoSchedule"), ("unreachable", "NoExecute")],
    ),
    "pressures": (
        [],
        conditions_of(Ready="True", DiskPressure="True", MemoryPressure="True", PIDPressure="True"),
        False,
        [(f"{kind}-pressure", "NoSchedule") for kind in ("disk", "memory", "pid")],
    ),
    "pressure unknown": ([], conditions_of(Ready="True", DiskPressure="Unknown"), False, []),
    "cordon": ([], conditions_of(Ready="True"), True, [("unschedulable", "NoSchedule")]),
    "uncordoned": ([taint("unschedulable")], conditions_of(Ready="True"), False, []),
    "others stay": (
        [OWN],
        conditions_of(Ready="False"),
        False,
        [("example.com/own", "NoExecute"), ("not-ready", "NoSchedule")],
    ),
    "another effect of ours stays": (
        [taint("disk-pressure", "NoExecute")],
        conditions_of(Ready="True"),
        False,
        [("disk-pressure", "NoExecute")],
    ),
}


@pytest.mark.parametrize("case", SETTLED)
def test_the_state_of_a_node_becomes_taints(case: str) -> None:
    held, conditions, cordoned, expected = SETTLED[case]
    spec: dict[str, Any] = {"taints": held} if held else {}
    spec |= {"unschedulable": True} if cordoned else {}
    after = taints.with_state_taints(spec, conditions, now=NOW)
    found = after.get("taints", [])
    short = [(item["key"].removeprefix("node.kubernetes.io/"), item["effect"]) for item in found]
    assert short == expected
    assert taints.with_state_taints(after, conditions, now="later") is after, (
        "a second call changes nothing"
    )
    assert all("timeAdded" in item for item in found if item not in held)


def toleration(key: str = "k", **more: Any) -> shapes.Toleration:
    return shapes.Toleration(key=key, operator="Exists", **more)


K, L = (shapes.Taint(key=key, effect="NoExecute") for key in "kl")
TOLERATED: dict[str, tuple[list[shapes.Taint], list[shapes.Toleration], float]] = {
    "no taint": ([], [], math.inf),
    "not borne": ([K], [], 0),
    "tolerated without limit": ([K], [toleration()], math.inf),
    "tolerated for some seconds": ([K], [toleration(toleration_seconds=5)], 5),
    "not tolerated": ([K], [toleration(toleration_seconds=-5)], 0),
    "one of two": ([K, L], [toleration()], 0),
    "the shorter of two": (
        [K, L],
        [toleration(toleration_seconds=9), toleration("l", toleration_seconds=5)],
        5,
    ),
    "the first that fits": (
        [K],
        [toleration(toleration_seconds=9), toleration(toleration_seconds=5)],
        9,
    ),
    "another effect": ([K], [toleration(effect="NoSchedule")], 0),
    "everything": ([K, L], [toleration("")], math.inf),
}


@pytest.mark.parametrize("case", TOLERATED)
def test_a_pod_stays_as_long_as_it_tolerates_every_taint(case: str) -> None:
    found, given, expected = TOLERATED[case]
    assert taints.seconds_tolerated(found, given) == expected


def test_silence_sets_reported_and_missing_conditions_to_unknown() -> None:
    before = [
        {"type": "Ready", "status": "True", "reason": "R", "lastTransitionTime": EARLIER},
        {"type": "DiskPressure", "status": "Unknown", "reason": "D", "lastTransitionTime": EARLIER},
        {"type": "NetworkUnavailable", "status": "False"},
    ]
    after = {item["type"]: item for item in lifecycle.silenced(before, created=EARLIER, now=NOW)}
    assert after["Ready"]["status"] == "Unknown" and after["Ready"]["lastTransitionTime"] == NOW
    assert after["Ready"]["reason"] == "NodeStatusUnknown"
    assert after["DiskPressure"] == before[1] and after["NetworkUnavailable"] == before[2]
    assert after["MemoryPressure"]["reason"] == "NodeStatusNeverUpdated"
    assert after["PIDPressure"]["lastHeartbeatTime"] == EARLIER
    again = lifecycle.silenced(list(after.values()), created=EARLIER, now="later")
    assert again == list(after.values())


@pytest.mark.parametrize(
    ("ready", "total", "disruption", "pause"),
    [
        pytest.param(3, 3, "normal", 10.0, id="all well"),
        pytest.param(1, 3, "normal", 10.0, id="two lost are no disruption"),
        pytest.param(0, 1, "full", None, id="the only one"),
        pytest.param(0, 500, "full", None, id="everybody"),
        pytest.param(2, 5, "partial", None, id="most of a small fleet"),
        pytest.param(3, 5, "normal", 10.0, id="less than most"),
        pytest.param(40, 100, "partial", 100.0, id="most of a large fleet"),
        pytest.param(0, 0, "normal", 10.0, id="no nodes"),
    ],
)
def test_evictions_slow_down_when_more_nodes_are_silent(
    ready: int, total: int, disruption: lifecycle.Disruption, pause: float | None
) -> None:
    assert lifecycle.disruption(ready, total) == disruption
    assert lifecycle.pause(disruption, total) == pause


# ---- fit


def view(**more: Any) -> fit.NodeView:
    base: dict[str, Any] = {
        "metadata": {"name": "n", "labels": more.pop("labels", {})},
        "spec": more.pop("spec", {}),
    }
    allocatable = {"pods": "10", "cpu": "4", "memory": "8Gi"} | more.pop("allocatable", {})
    conditions = more.pop("conditions", conditions_of(Ready="True"))
    return fit.node_view({**base, "status": {"allocatable": allocatable, "conditions": conditions}})


def requirements(labels: dict[str, str] | None = None, **spec: Any) -> fit.PodView:
    container = {
        "name": "c",
        "resources": {"requests": spec.pop("requests", {})},
        "ports": spec.pop("ports", []),
    }
    meta = {"name": "p", "namespace": "s", "labels": labels or {}}
    return fit.pod_view({"metadata": meta, "spec": {"containers": [container], **spec}})


def names(*values: str, operator: str = "In") -> dict[str, Any]:
    field = {"key": "metadata.name", "operator": operator, "values": list(values)}
    terms = [{"matchFields": [field]}]
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
        }
    }


VERDICTS: dict[str, tuple[fit.NodeView, fit.PodView, tuple[str, ...], bool]] = {
    "fits": (view(), requirements(), (), False),
    "by name first of all": (
        view(spec={"unschedulable": True}),
        requirements(affinity=names("m")),
        ("node(s) didn't satisfy plugin(s) [NodeAffinity]",),
        True,
    ),
    "by name": (view(), requirements(affinity=names("n", "m")), (), False),
    "by another name's absence": (
        view(),
        requirements(affinity=names("m", operator="NotIn")),
        (),
        False,
    ),
    "cordon before taint": (
        view(spec={"unschedulable": True, "taints": [taint("k/k")]}),
        requirements(),
        ("node(s) were unschedulable",),
        True,
    ),
    "a condition counts as a taint before the taint is written": (
        view(conditions=conditions_of(Ready="False")),
        requirements(),
        ("node(s) had untolerated taint(s)",),
        True,
    ),
    "a taint without its condition does not count": (
        view(spec={"taints": [taint("unreachable")]}),
        requirements(),
        (),
        False,
    ),
    "taint before selector": (
        view(spec={"taints": [taint("k/k", "NoExecute")]}),
        requirements(nodeSelector={"a": "b"}),
        ("node(s) had untolerated taint(s)",),
        True,
    ),
    "selector before resources": (
        view(),
        requirements(nodeSelector={"a": "b"}, requests={"cpu": "9"}),
        ("node(s) didn't match Pod's node affinity/selector",),
        True,
    ),
    "all insufficient resources": (
        view(allocatable={"pods": "0"}),
        requirements(requests={"memory": "9Gi", "cpu": "5", "x/b": "1", "x/a": "1"}),
        (
            "Too many pods",
            "Insufficient cpu",
            "Insufficient memory",
            "Insufficient x/a",
            "Insufficient x/b",
        ),
        True,
    ),
    "pods alone": (view(allocatable={"pods": "0"}), requirements(), ("Too many pods",), False),
    "zero requested of an unknown resource": (
        view(),
        requirements(requests={"x/a": "0"}),
        (),
        False,
    ),
}


@pytest.mark.parametrize("case", VERDICTS)
def test_a_node_is_counted_under_its_first_reason(case: str) -> None:
    node, pod, reasons, unresolvable = VERDICTS[case]
    verdict = fit.refusal(pod, node, {})
    assert (verdict.reasons if verdict else ()) == reasons
    assert verdict is None or verdict.unresolvable is unresolvable


@pytest.mark.parametrize(
    ("one", "other", "conflict"),
    [
        pytest.param({}, {}, True, id="the same"),
        pytest.param({}, {"protocol": "UDP"}, False, id="another protocol"),
        pytest.param({}, {"hostPort": 81}, False, id="another number"),
        pytest.param({"hostIP": "10.0.0.1"}, {"hostIP": "10.0.0.2"}, False, id="another address"),
        pytest.param({"hostIP": "10.0.0.1"}, {}, True, id="everywhere"),
        pytest.param({"hostIP": "0.0.0.0"}, {"hostIP": "10.0.0.2"}, True, id="everywhere by name"),
        pytest.param({"hostPort": 0}, {"hostPort": 0}, False, id="none of the host"),
    ],
)
def test_a_host_port_is_used_once(one: Any, other: Any, conflict: bool) -> None:
    ports = [[{"containerPort": 1, "hostPort": 80} | item] for item in (one, other)]
    first, second = (requirements(ports=item) for item in ports)
    verdict = fit.refusal(first, view(), {}, second.ports)
    assert (verdict is not None) is conflict


def test_insufficient_free_resources_are_resolvable() -> None:
    pod = requirements(requests={"cpu": "2"})
    verdict = fit.refusal(pod, view(), {"cpu": 3000})
    assert verdict == fit.Verdict(("Insufficient cpu",), unresolvable=False)


def test_reasons_are_sorted_with_their_counts() -> None:
    found = [
        fit.Verdict(("b",), unresolvable=False),
        *[fit.Verdict(("a",))] * 10,
        fit.Verdict(("c", "b")),
    ]
    none = "0/12 nodes are available:"
    assert fit.message(found) == (
        f"{none} 1 c, 10 a, 2 b. no new claims to deallocate, preemption: {none}"
        " 1 No preemption victims found for incoming pod, 11 Preemption is not helpful for scheduling."
    )
    assert fit.message([]) == "no nodes available to schedule pods"


def test_pods_with_the_same_requirements_are_one_class() -> None:
    one, two = requirements({"a": "b"}), requirements({"a": "c"})
    assert fit.class_of(one) == fit.class_of(two)
    constraint = {"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}
    constraint |= {"labelSelector": {"matchLabels": {"a": "b"}}}
    one, two = (
        requirements({"a": label}, topologySpreadConstraints=[constraint]) for label in "bc"
    )
    assert fit.class_of(one) != fit.class_of(two)


# ---- spread


def evenly(labels: dict[str, str] | None = None, **more: Any) -> spread.Constraint:
    given = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    given |= {"labelSelector": {"matchLabels": {"app": "a"}}} | more
    return spread.constraint(msgspec.convert(given, shapes.Spread), labels or {"app": "a"})


@pytest.mark.parametrize(
    ("constraint", "counts", "labels", "fits"),
    [
        pytest.param(evenly(), {"x": 0, "y": 0}, {"zone": "x"}, True, id="empty"),
        pytest.param(evenly(), {"x": 1, "y": 0}, {"zone": "x"}, False, id="one too many"),
        pytest.param(evenly(), {"x": 1, "y": 0}, {"zone": "y"}, True, id="the emptier"),
        pytest.param(evenly(maxSkew=2), {"x": 1, "y": 0}, {"zone": "x"}, True, id="skew allowed"),
        pytest.param(
            evenly({"app": "b"}), {"x": 1, "y": 0}, {"zone": "x"}, True, id="not counted itself"
        ),
        pytest.param(
            evenly({"app": "b"}), {"x": 2, "y": 0}, {"zone": "x"}, False, id="already uneven"
        ),
        pytest.param(
            evenly(minDomains=3), {"x": 1, "y": 1}, {"zone": "x"}, False, id="too few domains"
        ),
        pytest.param(evenly(), {"x": 0}, {}, False, id="no label"),
        pytest.param(
            evenly(labelSelector=None), {"x": 0, "y": 0}, {"zone": "x"}, True, id="no selector"
        ),
    ],
)
def test_spread_constraints_are_enforced(
    constraint: spread.Constraint, counts: dict[str, int], labels: dict[str, str], fits: bool
) -> None:
    assert (not spread.refusal([(constraint, counts)], labels)) is fits


def test_only_matching_pods_on_eligible_nodes_are_counted() -> None:
    nodes: dict[str, dict[str, str]] = {
        "a": {"zone": "x"},
        "b": {"zone": "x"},
        "c": {"zone": "y"},
        "d": {},
    }
    pods = {"a": [{"app": "a"}, {"app": "b"}], "b": [{"app": "a"}], "c": [], "d": [{"app": "a"}]}
    counts = spread.spread_over(
        evenly(), nodes.items(), keys=["zone"], pods_on=lambda name: pods[name]
    )
    assert counts == {"x": 2, "y": 0}
    keyed = evenly({"app": "a", "rev": "1"}, matchLabelKeys=["rev", "none"])
    assert keyed.matches({"app": "a", "rev": "1"}) and not keyed.matches({"app": "a", "rev": "2"})
    listed = evenly(
        labelSelector={"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]}
    )
    assert listed.matches({}) and not listed.matches({"app": "a"})


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 5), min_size=1), st.integers(1, 3))
def test_the_emptiest_domain_always_takes_one_more(counts: dict[str, int], skew: int) -> None:
    emptiest = min(counts, key=lambda key: counts[key])
    assert spread.refusal([(evenly(maxSkew=skew), counts)], {"zone": emptiest}) is None


# ---- namespaces


def test_remaining_contents_are_counted_and_only_a_change_is_a_transition() -> None:
    left = [
        (PODS, {"metadata": {}}),
        (CONFIG_MAPS, {"metadata": {"finalizers": ["x/a", "x/b"]}}),
        (CONFIG_MAPS, {"metadata": {"finalizers": ["x/a"]}}),
        (LEASES, {"metadata": {}}),
    ]
    first = namespaces.remaining(left, [], now=EARLIER)
    given = {item["type"]: item for item in first}
    assert given["NamespaceContentRemaining"]["message"] == (
        "Some resources are remaining: configmaps. has 2 resource instances,"
        " leases.coordination.k8s.io has 1 resource instances, pods. has 1 resource instances"
    )
    assert given["NamespaceFinalizersRemaining"]["message"].endswith(
        "x/a in 2 resource instances, x/b in 1 resource instances"
    )
    second = {item["type"]: item for item in namespaces.remaining(left[:1], first, now=NOW)}
    assert second["NamespaceContentRemaining"]["lastTransitionTime"] == EARLIER
    assert second["NamespaceFinalizersRemaining"]["lastTransitionTime"] == NOW
    assert second["NamespaceFinalizersRemaining"]["status"] == "False"
