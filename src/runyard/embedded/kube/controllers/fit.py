"""Decides whether a Pod fits a node, and scores it: pure, on small views of both.

The order of the checks and the messages are those of the stock scheduler: a node is counted under the first check
that it fails; only insufficient resources are listed in full.

Pod affinity is not supported. Preferred terms are ignored; a Pod with required terms is not scheduled at all, and its
Event says why, because any node might violate them.
"""

from collections.abc import Iterable, Mapping

import msgspec

from runyard.embedded.kube import shapes, taints
from runyard.embedded.kube.controllers.spread import Constraint, constraint
from runyard.embedded.kube.resources import Object
from runyard.embedded.kube.schema import quantity

Amounts = dict[str, int]  # resource: thousandths
Port = tuple[str, str, int]  # protocol, address, number

_ANY_ADDRESS = ("", "0.0.0.0")  # noqa: S104  an address to compare with, not to bind to
_NAME = "metadata.name"
_CORDON = shapes.Taint(key=taints.UNSCHEDULABLE, effect="NoSchedule")


class NodeView(msgspec.Struct, frozen=True):
    """The fields of a node that the scheduler reads."""

    name: str
    unschedulable: bool
    labels: dict[str, str]
    taints: tuple[shapes.Taint, ...]
    soft_taints: tuple[shapes.Taint, ...]  # taints with the effect PreferNoSchedule
    allocatable: Amounts


class PodView(msgspec.Struct, frozen=True):
    """What a Pod requires of a node."""

    requests: Amounts
    selector: dict[str, str]
    tolerations: tuple[shapes.Toleration, ...]
    affinity: shapes.NodeAffinity
    ports: tuple[Port, ...] = ()
    spread: tuple[Constraint, ...] = ()
    namespace: str = ""  # only where it matters: for counting Pods
    requires_pod_affinity: bool = False  # not supported


class Verdict(msgspec.Struct, frozen=True):
    """Why a Pod does not fit a node."""

    reasons: tuple[str, ...]
    unresolvable: bool = True  # preemption would not help


def node_view(node: Object) -> NodeView:
    """The view of a node, with the taints that its conditions will have set by the end of this step."""
    status = node.get("status") or {}
    given = taints.with_state_taints(node.get("spec") or {}, status.get("conditions") or [], now="")
    spec = msgspec.convert(given, shapes.NodeSpec)
    allocatable = status.get("allocatable") or status.get("capacity") or {}
    return NodeView(
        name=node["metadata"]["name"],
        unschedulable=spec.unschedulable,
        labels=node["metadata"].get("labels") or {},
        taints=tuple(item for item in spec.taints if item.effect != taints.PREFER),
        soft_taints=tuple(item for item in spec.taints if item.effect == taints.PREFER),
        allocatable={key: quantity.milli(value) for key, value in allocatable.items()},
    )


def pod_view(pod: Object) -> PodView:
    """The view of a Pod."""
    spec = msgspec.convert(pod["spec"], shapes.PodSpec)
    meta = pod["metadata"]
    labels = meta.get("labels") or {}
    constraints = tuple(constraint(item, labels) for item in spec.topology_spread_constraints)
    return PodView(
        requests=requests_of(spec),
        selector=spec.node_selector,
        tolerations=tuple(spec.tolerations),
        affinity=spec.affinity.node_affinity,
        ports=_ports(spec),
        spread=constraints,
        namespace=meta.get("namespace", "") if constraints else "",
        requires_pod_affinity=bool(
            spec.affinity.pod_affinity.required or spec.affinity.pod_anti_affinity.required
        ),
    )


def class_of(view: PodView) -> bytes:
    """Equal for Pods with the same requirements."""
    return msgspec.json.encode(view, order="sorted")


def requests_of(spec: shapes.PodSpec) -> Amounts:
    """The requests: containers and sidecars together, or the largest init container, plus overhead."""
    running: Amounts = {}
    starting: Amounts = {}
    for container in spec.init_containers:
        requested = _amounts(container.resources.requests)
        if container.restart_policy == "Always":
            add(running, requested)
            requested = running
        else:
            requested = _sum(running, requested)
        starting = {
            key: max(starting.get(key, 0), requested.get(key, 0)) for key in starting | requested
        }
    for container in spec.containers:
        add(running, _amounts(container.resources.requests))
    total = {key: max(running.get(key, 0), starting.get(key, 0)) for key in running | starting}
    add(total, _amounts(spec.overhead))
    total["pods"] = 1000
    return total


def _ports(spec: shapes.PodSpec) -> tuple[Port, ...]:
    """The host ports that a Pod needs while it runs."""
    sidecars = [item for item in spec.init_containers if item.restart_policy == "Always"]
    return tuple(
        (port.protocol or "TCP", port.host_ip, port.host_port)
        for container in [*spec.containers, *sidecars]
        for port in container.ports
        if port.host_port
    )


def _amounts(found: shapes.Quantities) -> Amounts:
    return {key: quantity.milli(value) for key, value in found.items()}


def _sum(one: Amounts, two: Amounts) -> Amounts:
    total = dict(one)
    add(total, two)
    return total


def add(total: Amounts, amounts: Amounts) -> None:
    """Adds in place."""
    for key, value in amounts.items():
        total[key] = total.get(key, 0) + value


def subtract(total: Amounts, amounts: Amounts) -> None:
    """Subtracts in place."""
    for key, value in amounts.items():
        total[key] = total.get(key, 0) - value


# ---- checks


def refusal(
    pod: PodView, node: NodeView, used: Amounts, taken: Iterable[Port] = ()
) -> Verdict | None:
    """Why the node does not fit the Pod; None if it does. Spread constraints are checked last, elsewhere."""
    if pod.requires_pod_affinity:
        return _POD_AFFINITY
    named = named_nodes(pod.affinity)
    if named is not None and node.name not in named:
        return _OTHER_NODE
    if node.unschedulable and not taints.tolerated(_CORDON, pod.tolerations):
        return _CORDONED
    for taint in node.taints:
        if not taints.tolerated(taint, pod.tolerations):
            return _TAINTED
    if not selected(pod, node):
        return _UNSELECTED
    if pod.ports and any(_conflicts(one, two) for one in pod.ports for two in taken):
        return _PORTS
    return _resources(pod, node, used)


_UNSUPPORTED = "required pod affinity is not supported by the embedded scheduler, use topologySpreadConstraints"
_POD_AFFINITY = Verdict((f"node(s) cannot be evaluated: {_UNSUPPORTED}",))
_OTHER_NODE = Verdict(("node(s) didn't satisfy plugin(s) [NodeAffinity]",))
_CORDONED = Verdict(("node(s) were unschedulable",))
_TAINTED = Verdict(("node(s) had untolerated taint(s)",))
_UNSELECTED = Verdict(("node(s) didn't match Pod's node affinity/selector",))
_PORTS = Verdict(
    ("node(s) didn't have free ports for the requested pod ports",), unresolvable=False
)


def _resources(pod: PodView, node: NodeView, used: Amounts) -> Verdict | None:
    allocatable = node.allocatable
    lacking = [
        key
        for key, value in pod.requests.items()
        if value and used.get(key, 0) + value > allocatable.get(key, 0)
    ]
    if not lacking:
        return None
    lacking.sort(key=_rank)
    words = tuple("Too many pods" if key == "pods" else f"Insufficient {key}" for key in lacking)
    too_large = any(
        key != "pods" and pod.requests[key] > allocatable.get(key, 0) for key in lacking
    )
    return Verdict(words, unresolvable=too_large)


def _rank(key: str) -> tuple[int, str]:
    known = ("pods", "cpu", "memory", "ephemeral-storage")
    return (known.index(key) if key in known else len(known), key)


def _conflicts(one: Port, two: Port) -> bool:
    if (one[0], one[2]) != (two[0], two[2]):
        return False
    return one[1] == two[1] or one[1] in _ANY_ADDRESS or two[1] in _ANY_ADDRESS


def named_nodes(affinity: shapes.NodeAffinity) -> tuple[str, ...] | None:
    """The only nodes that can match, where every alternative of an affinity names some; else None."""
    if affinity.required is None:
        return None
    named: list[str] = []
    for term in affinity.required.node_selector_terms:
        given = [item for item in term.match_fields if item.key == _NAME and item.operator == "In"]
        if not given:
            return None
        named += [
            value for value in given[0].values if all(value in item.values for item in given[1:])
        ]
    return tuple(named)


def selected(pod: PodView, node: NodeView) -> bool:
    """Whether the Pod's selector and its required affinity hold on that node."""
    if any(node.labels.get(key) != value for key, value in pod.selector.items()):
        return False
    required = pod.affinity.required
    return required is None or any(_holds(term, node) for term in required.node_selector_terms)


def _holds(term: shapes.Term, node: NodeView) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    by_name = {_NAME: node.name}
    return all(_expression(item, node.labels) for item in term.match_expressions) and all(
        _expression(item, by_name) for item in term.match_fields
    )


def _expression(item: shapes.Expression, labels: Mapping[str, str]) -> bool:
    value = labels.get(item.key)
    match item.operator:
        case "In":
            return value is not None and value in item.values
        case "NotIn":
            return value not in item.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return _compares(item, value)


def _compares(item: shapes.Expression, value: str | None) -> bool:
    try:
        have, bound = int(value or "x"), int(item.values[0] if item.values else "x")
    except ValueError:
        return False
    return have > bound if item.operator == "Gt" else have < bound


# ---- scores


def preference(pod: PodView, node: NodeView) -> int:
    """The weight of all preferences that the node satisfies."""
    return sum(term.weight for term in pod.affinity.preferred if _holds(term.preference, node))


def untolerated(pod: PodView, node: NodeView) -> int:
    """How many PreferNoSchedule taints the Pod does not tolerate."""
    return sum(not taints.tolerated(taint, pod.tolerations) for taint in node.soft_taints)


def load(node: NodeView, used: Amounts) -> float:
    """The fullest resource of the node, from 0 to 1."""
    shares = [
        used.get(key, 0) / allocatable
        for key, allocatable in sorted(node.allocatable.items())
        if allocatable > 0
    ]
    return max(shares, default=0.0)


# ---- messages


def message(verdicts: Iterable[Verdict]) -> str:
    """Why no node fits a Pod, counted by reason, with the stock scheduler's messages."""
    found = tuple(verdicts)
    if not found:
        return "no nodes available to schedule pods"
    reasons = _counted(reason for item in found for reason in item.reasons)
    preemption = _counted(
        "Preemption is not helpful for scheduling"
        if item.unresolvable
        else "No preemption victims found for incoming pod"
        for item in found
    )
    none = f"0/{len(found)} nodes are available:"
    return f"{none} {reasons}. no new claims to deallocate, preemption: {none} {preemption}."


def _counted(words: Iterable[str]) -> str:
    counts: dict[str, int] = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    return ", ".join(sorted(f"{count} {word}" for word, count in counts.items()))
