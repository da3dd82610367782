"""Counts Pods by topology domain, for Pods with spread constraints.

Few Pods have them, so no index is kept: everything is counted when such a Pod is scheduled.
"""

from collections.abc import Iterable, Mapping

from runyard.embedded.kube import taints
from runyard.embedded.kube.controllers import fit, spread
from runyard.embedded.kube.controllers.placed import Placed

_FINISHED = ("Succeeded", "Failed")


class Balance:
    """Counts Pods by domain."""

    def __init__(self, nodes: Mapping[str, fit.NodeView], placed: Placed) -> None:
        self._nodes = nodes
        self._placed = placed

    def counts(self, pod: fit.PodView, fitting: Iterable[str]) -> dict[str, int]:
        """Returns the nodes that satisfy the constraints, each with the number of Pods in its domains."""
        hard, soft = self._counts(pod, hard=True), self._counts(pod, hard=False)
        return {
            name: spread.domain_count(soft, self._nodes[name].labels)
            for name in fitting
            if not spread.refusal(hard, self._nodes[name].labels)
        }

    def verdicts(
        self, pod: fit.PodView, verdicts: Mapping[str, fit.Verdict | None]
    ) -> dict[str, fit.Verdict]:
        """Returns all verdicts; a node that fits otherwise gets that of its spread constraints."""
        hard = self._counts(pod, hard=True)
        found: dict[str, fit.Verdict] = {}
        for name, verdict in verdicts.items():
            if verdict is not None:
                found[name] = verdict
            elif refused := spread.refusal(hard, self._nodes[name].labels):
                found[name] = fit.Verdict((refused.message,), unresolvable=refused.unresolvable)
        return found

    def _counts(
        self, pod: fit.PodView, *, hard: bool
    ) -> list[tuple[spread.Constraint, dict[str, int]]]:
        given = [item for item in pod.spread if item.hard == hard]
        keys = [item.key for item in given]
        return [
            (
                constraint,
                spread.spread_over(
                    constraint,
                    self._eligible_nodes(pod, constraint),
                    keys=keys,
                    pods_on=lambda name: self._labels(name, pod.namespace),
                ),
            )
            for constraint in given
        ]

    def _eligible_nodes(
        self, pod: fit.PodView, constraint: spread.Constraint
    ) -> Iterable[tuple[str, spread.Labels]]:
        for name, view in self._nodes.items():
            if constraint.honours_affinity and not fit.selected(pod, view):
                continue
            if constraint.honours_taints and not all(
                taints.tolerated(taint, pod.tolerations) for taint in view.taints
            ):
                continue
            yield name, view.labels

    def _labels(self, node: str, namespace: str) -> Iterable[spread.Labels]:
        for pod in self._placed.on(node):
            deleting = "deletionTimestamp" in pod.meta
            ended = pod.obj.get("status", {}).get("phase") in _FINISHED
            if pod.namespace == namespace and not deleting and not ended:
                yield pod.meta.get("labels") or {}
