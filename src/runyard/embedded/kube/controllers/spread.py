"""Topology spread constraints: how evenly Pods are spread over the Nodes, by a label of these. Pure.

A constraint counts the Pods that its selector means, in the Pod's own namespace, over the values of one Node
label. Nodes that the Pod may not use by selector or affinity are not counted; a Node without the label takes
no part, and no Pod that insists. Pods on their way out no longer count.
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
    domains: int = 1  # fewer values than that: the emptiest counts as empty
    selects: bool = False  # no selector at all means no Pod
    selector: tuple[Requirement, ...] = ()
    counts_itself: bool = False
    honours_affinity: bool = True
    honours_taints: bool = False

    def means(self, labels: Labels) -> bool:
        """Whether a Pod with those labels is counted."""
        return self.selects and all(item.holds(labels.get(item.key)) for item in self.selector)


def constraint(wish: shapes.Spread, labels: Labels) -> Constraint:
    """The constraint of a Pod with those labels."""
    given = wish.label_selector
    found: list[Requirement] = []
    if given is not None:
        found += [Requirement(key, "in", (value,)) for key, value in given.match_labels.items()]
        found += [
            Requirement(item.key, _OPERATORS[item.operator], tuple(item.values))
            for item in given.match_expressions
        ]
    found += [
        Requirement(key, "in", (labels[key],)) for key in wish.match_label_keys if key in labels
    ]
    made = Constraint(
        key=wish.topology_key,
        skew=wish.max_skew,
        hard=wish.when_unsatisfiable == "DoNotSchedule",
        domains=wish.min_domains or 1,
        selects=given is not None,
        selector=tuple(found),
        honours_affinity=wish.node_affinity_policy != "Ignore",
        honours_taints=wish.node_taints_policy == "Honor",
    )
    return msgspec.structs.replace(made, counts_itself=made.means(labels))


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
        meant = sum(1 for pod in pods_on(name) if one.means(pod))
        counts[labels[one.key]] = counts.get(labels[one.key], 0) + meant
    return counts


def refusal(constraints: Iterable[tuple[Constraint, dict[str, int]]], labels: Labels) -> str:
    """Why a Node with those labels would violate the constraint; empty if it would not."""
    for one, counts in constraints:
        if one.key not in labels:
            return "node(s) didn't match pod topology spread constraints (missing required label)"
        least = min(counts.values(), default=0) if len(counts) >= one.domains else 0
        if counts.get(labels[one.key], 0) + one.counts_itself - least > one.skew:
            return "node(s) didn't match pod topology spread constraints"
    return ""


def domain_count(constraints: Iterable[tuple[Constraint, dict[str, int]]], labels: Labels) -> int:
    """How full the domains of a Node are already: the fewer, the better."""
    return sum(counts.get(labels.get(one.key, ""), 0) for one, counts in constraints)
