"""Evaluates topology spread constraints: how evenly Pods are spread over the values of a Node label. Pure.

A constraint counts the Pods that its selector matches, in the Pod's own namespace, by the value of one Node label.
Nodes that the Pod's selector or affinity excludes are not counted, and neither are Nodes without the label, which
refuse a Pod with a hard constraint. Pods that are being deleted are not counted.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Literal

import msgspec

from runyard.embedded.kube import shapes
from runyard.embedded.kube.selectors import Requirement

Labels = Mapping[str, str]

_OPERATORS: dict[str, Literal["in", "notin", "exists", "absent"]] = {
    "In": "in",
    "NotIn": "notin",
    "Exists": "exists",
    "DoesNotExist": "absent",
}


class Constraint(msgspec.Struct, frozen=True):
    """One constraint of one class of Pods."""

    key: str
    skew: int
    hard: bool
    domains: int = 1  # with fewer domains the minimum counts as zero
    selects: bool = False  # without a selector no Pod is counted
    selector: tuple[Requirement, ...] = ()
    counts_itself: bool = False
    honours_affinity: bool = True
    honours_taints: bool = False

    def matches(self, labels: Labels) -> bool:
        """Whether a Pod with those labels is counted."""
        return self.selects and all(item.holds(labels.get(item.key)) for item in self.selector)


class Refusal(msgspec.Struct, frozen=True):
    """Why a Node would violate a constraint, in the words of the stock scheduler."""

    message: str
    unresolvable: bool  # preemption would not help


_NO_LABEL = Refusal(
    "node(s) didn't match pod topology spread constraints (missing required label)",
    unresolvable=True,
)
_SKEWED = Refusal("node(s) didn't match pod topology spread constraints", unresolvable=False)


def constraint(given: shapes.Spread, labels: Labels) -> Constraint:
    """The constraint of a Pod with those labels."""
    selector = given.label_selector
    found: list[Requirement] = []
    if selector is not None:
        found += [Requirement(key, "in", (value,)) for key, value in selector.match_labels.items()]
        found += [
            Requirement(item.key, _OPERATORS[item.operator], tuple(item.values))
            for item in selector.match_expressions
        ]
    found += [
        Requirement(key, "in", (labels[key],)) for key in given.match_label_keys if key in labels
    ]
    built = Constraint(
        key=given.topology_key,
        skew=given.max_skew,
        hard=given.when_unsatisfiable == "DoNotSchedule",
        domains=given.min_domains or 1,
        selects=selector is not None,
        selector=tuple(found),
        honours_affinity=given.node_affinity_policy != "Ignore",
        honours_taints=given.node_taints_policy == "Honor",
    )
    return msgspec.structs.replace(built, counts_itself=built.matches(labels))


def spread_over(
    one: Constraint,
    nodes: Iterable[tuple[str, Labels]],
    *,
    keys: Iterable[str],
    pods_on: Callable[[str], Iterable[Labels]],
) -> dict[str, int]:
    """How many of the selected Pods are in each domain, over the eligible Nodes."""
    needed = tuple(keys)
    counts: dict[str, int] = {}
    for name, labels in nodes:
        if any(key not in labels for key in needed):
            continue
        matching = sum(1 for pod in pods_on(name) if one.matches(pod))
        counts[labels[one.key]] = counts.get(labels[one.key], 0) + matching
    return counts


def refusal(
    constraints: Iterable[tuple[Constraint, dict[str, int]]], labels: Labels
) -> Refusal | None:
    """Why a Node with those labels would violate the constraints; None if it would not."""
    for one, counts in constraints:
        if one.key not in labels:
            return _NO_LABEL
        least = min(counts.values(), default=0) if len(counts) >= one.domains else 0
        if counts.get(labels[one.key], 0) + one.counts_itself - least > one.skew:
            return _SKEWED
    return None


def domain_count(constraints: Iterable[tuple[Constraint, dict[str, int]]], labels: Labels) -> int:
    """Returns the number of Pods in a Node's domains; fewer is better."""
    return sum(counts.get(labels.get(one.key, ""), 0) for one, counts in constraints)
