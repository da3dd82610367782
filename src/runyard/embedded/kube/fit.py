"""Whether a Pod fits a node, and how much it likes it: pure, on small views of both."""

import msgspec

from runyard.embedded.kube import quantity, shapes

Amounts = dict[str, int]  # resource: thousandths

_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


class NodeView(msgspec.Struct, frozen=True):
    """What the scheduler looks at on a node."""

    name: str
    ready: bool
    unschedulable: bool
    labels: dict[str, str]
    taints: tuple[shapes.Taint, ...]
    room: Amounts


class PodView(msgspec.Struct, frozen=True):
    """What a Pod wants of a node."""

    requests: Amounts
    selector: dict[str, str]
    tolerations: tuple[shapes.Toleration, ...]
    affinity: shapes.NodeAffinity


def node_view(node: shapes.Node) -> NodeView:
    """The view of a node."""
    room = node.status.allocatable or node.status.capacity
    return NodeView(
        name=node.metadata.name,
        ready=any(
            item.type == "Ready" and item.status == "True" for item in node.status.conditions
        ),
        unschedulable=node.spec.unschedulable,
        labels=node.metadata.labels,
        taints=tuple(taint for taint in node.spec.taints if taint.effect != "PreferNoSchedule"),
        room={key: quantity.milli(value) for key, value in room.items()},
    )


def pod_view(spec: shapes.PodSpec) -> PodView:
    """The view of a Pod."""
    return PodView(
        requests=requests_of(spec),
        selector=spec.node_selector,
        tolerations=tuple(spec.tolerations),
        affinity=spec.affinity.node_affinity,
    )


def class_of(spec: shapes.PodSpec) -> bytes:
    """Equal for Pods that want the same things."""
    return msgspec.json.encode(pod_view(spec), order="sorted")


def requests_of(spec: shapes.PodSpec) -> Amounts:
    """Containers and sidecars together, or the largest initialisation, plus overhead."""
    running: Amounts = {}
    starting: Amounts = {}
    for container in spec.init_containers:
        asked = _amounts(container.resources.requests)
        if container.restart_policy == "Always":
            add(running, asked)
            asked = running
        else:
            asked = _sum(running, asked)
        starting = {key: max(starting.get(key, 0), asked.get(key, 0)) for key in starting | asked}
    for container in spec.containers:
        add(running, _amounts(container.resources.requests))
    total = {key: max(running.get(key, 0), starting.get(key, 0)) for key in running | starting}
    add(total, _amounts(spec.overhead))
    total["pods"] = 1000
    return total


def _amounts(found: shapes.Quantities) -> Amounts:
    return {key: quantity.milli(value) for key, value in found.items()}


def _sum(one: Amounts, two: Amounts) -> Amounts:
    total = dict(one)
    add(total, two)
    return total


def add(total: Amounts, amounts: Amounts) -> None:
    """Add in place."""
    for key, value in amounts.items():
        total[key] = total.get(key, 0) + value


def subtract(total: Amounts, amounts: Amounts) -> None:
    """Subtract in place."""
    for key, value in amounts.items():
        total[key] = total.get(key, 0) - value


def refusal(pod: PodView, node: NodeView, used: Amounts) -> str:
    """Why the node does not take the Pod; empty if it does."""
    if not node.ready:
        return "node(s) were not ready"
    if node.unschedulable and not _tolerates_cordon(pod):
        return "node(s) were unschedulable"
    for taint in node.taints:
        if not tolerated(taint, pod.tolerations):
            return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
    if not _selected(pod, node):
        return "node(s) didn't match Pod's node affinity/selector"
    for key, value in pod.requests.items():
        if value and used.get(key, 0) + value > node.room.get(key, 0):
            return "Too many pods" if key == "pods" else f"Insufficient {key}"
    return ""


def _tolerates_cordon(pod: PodView) -> bool:
    cordon = shapes.Taint(key=_UNSCHEDULABLE, effect="NoSchedule")
    return tolerated(cordon, pod.tolerations)


def tolerated(taint: shapes.Taint, tolerations: tuple[shapes.Toleration, ...]) -> bool:
    """Whether any toleration covers the taint."""
    return any(covers(item, taint) for item in tolerations)


def covers(toleration: shapes.Toleration, taint: shapes.Taint) -> bool:
    """Whether this toleration covers the taint."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.value == taint.value


def _selected(pod: PodView, node: NodeView) -> bool:
    if any(node.labels.get(key) != value for key, value in pod.selector.items()):
        return False
    required = pod.affinity.required
    return required is None or any(_holds(term, node) for term in required.node_selector_terms)


def _holds(term: shapes.Term, node: NodeView) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    by_name = {"metadata.name": node.name}
    return all(_expression(item, node.labels) for item in term.match_expressions) and all(
        _expression(item, by_name) for item in term.match_fields
    )


def _expression(item: shapes.Expression, labels: dict[str, str]) -> bool:
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


def liking(pod: PodView, node: NodeView) -> int:
    """The weight of all wishes that the node fulfils."""
    return sum(wish.weight for wish in pod.affinity.preferred if _holds(wish.preference, node))


def load(node: NodeView, used: Amounts) -> float:
    """The fullest resource of the node, from 0 to 1."""
    shares = [used.get(key, 0) / room for key, room in sorted(node.room.items()) if room > 0]
    return max(shares, default=0.0)
