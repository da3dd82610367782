"""Lists the public names of this release and adds new ones to the list of frozen names.

Dashboards, alerts, scripts and stored rows use these names: metrics with their labels and values, loops, health
conditions, components, reason codes, and states. The list (tests/wire/frozen_names.txt) has one line for each,
`KIND NAME`. The tool only adds lines: a name that the source no longer has stays listed, and a test fails.
"""

import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import runyard.hosts.doctor.plans.reasons as doctor
import runyard.node.plans.reasons as node
import runyard.pools.plans.reasons as pools
import runyard.web.explain.reasons as explain
import runyard.wire.reasons_dispatch as dispatch
import runyard.wire.reasons_results as results
from runyard.dispatch.machine.table import Question
from runyard.dispatch.machine.values import Fence, JobState, SlotState
from runyard.dispatch.matching.values import Hold
from runyard.dispatch.modes import Mode, Reconciler
from runyard.hosts.doctor.plans.ids import CheckId
from runyard.sim.proof.invariants import Broken
from runyard.sim.scenarios.expectations import Expectation
from runyard.sim.violations import Violated
from runyard.telemetry import catalogue
from runyard.telemetry.conditions import ALL as CONDITIONS
from runyard.telemetry.health import Severity
from runyard.telemetry.metric import Label, Metric
from runyard.telemetry.names import Component, Loop
from runyard.vm.contract import Fault
from runyard.vm.registry import Chosen
from runyard.web.explain.values import Constraint
from runyard.web.verdict import Headline
from runyard.wire.bodies import DrainReason
from runyard.wire.problem_codes import ProblemCode
from runyard.wire.reasons import Common
from runyard.wire.restarts import Ended

LIST = Path(__file__).resolve().parent.parent / "tests" / "wire" / "frozen_names.txt"
# The first word of a line, and the enum whose members it lists. The word stays when a class is renamed.
ENUMS: dict[str, type[StrEnum]] = {
    "component": Component,
    "constraint": Constraint,
    "doctor-check": CheckId,
    "drain-reason": DrainReason,
    "fence-state": Fence,
    "hold": Hold,
    "job-state": JobState,
    "loop": Loop,
    "reconciler": Reconciler,
    "reconciler-mode": Mode,
    "severity": Severity,
    "slot-state": SlotState,
    "reason/any": Common,
    "reason/agent-action": node.Why,
    "reason/driver-chosen": Chosen,
    "reason/vm-fault": Fault,
    "reason/deletion": dispatch.Deleting,
    "reason/delivery-outcome": dispatch.DeliveryOutcome,
    "reason/denied": dispatch.Denied,
    "reason/doctor": doctor.Found,
    "reason/doctor-next": doctor.Next,
    "reason/dry-run": dispatch.Would,
    "reason/event-objection": dispatch.Objection,
    "reason/event-refused": dispatch.Refused,
    "reason/component-ended": Ended,
    "reason/explain-ends": explain.Ends,
    "reason/explain-what": explain.What,
    "reason/finding": dispatch.Found,
    "reason/finding-left": dispatch.Left,
    "reason/headline": Headline,
    "reason/held": dispatch.Holding,
    "reason/pod-labels": dispatch.PodLabels,
    "reason/job-request": dispatch.Requested,
    "reason/job-trust": dispatch.Trust,
    "reason/node-condition": node.NodeReason,
    "reason/pod-status": node.PodReason,
    "reason/pool-action": pools.Why,
    "reason/pool-blocked": pools.Blocked,
    "reason/pool-condition": pools.PoolReason,
    "reason/pool-event": pools.EventReason,
    "reason/pool-waiting": pools.Waiting,
    "reason/problem": ProblemCode,
    "reason/proof-broken": Broken,
    "reason/proposed": dispatch.Proposed,
    "reason/sim-expectation": Expectation,
    "reason/sim-violation": Violated,
    "reason/slot-question": Question,
    "reason/transition": dispatch.Why,
    "reason/unprocessed": results.Unprocessed,
    "reason/upload-yielded": results.Yielded,
}
# Labels whose values are listed as a kind of their own.
_LISTED_ONCE = frozenset({"loop", "condition", "component"})


def public_names() -> frozenset[str]:
    """Every line that this release needs in the list."""
    lines = {f"{kind} {member.value}" for kind, enum in ENUMS.items() for member in enum}
    lines |= {f"condition {condition.code}" for condition in CONDITIONS}
    for metric in catalogue.ALL:
        lines |= set(_lines_of(metric))
    return frozenset(lines)


def _lines_of(metric: Metric) -> Iterator[str]:
    yield f"metric {metric.name}{{{','.join(metric.labels)}}} {metric.kind.value}"
    for label in metric.declared:
        yield from (f"value {metric.name} {label.name}={value}" for value in _own_values(label))


def _own_values(label: Label) -> tuple[str, ...]:
    return () if label.name in _LISTED_ONCE else tuple(str(value) for value in label.values)


def listed(text: str) -> frozenset[str]:
    """The lines of a list."""
    return frozenset(line for line in text.splitlines() if line and not line.startswith("#"))


def extended(text: str, names: frozenset[str]) -> str:
    """The list with its comments, all of its lines and the new names, sorted."""
    comments = [line for line in text.splitlines() if line.startswith("#")]
    return "\n".join([*comments, *sorted(listed(text) | names)]) + "\n"


def main() -> int:
    """Add the names that are not listed yet."""
    before = LIST.read_text(encoding="utf-8")
    LIST.write_text(extended(before, public_names()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
