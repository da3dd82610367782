"""Defines the guards of the dispatch server by name, as data, so that each can be removed to show what it prevents.

Production always runs with all of them. Only the proof, the simulator and their tests remove one: an incident must end
well with its guard and must fail without it. Otherwise the guard has no effect, or no test would notice its loss.

No flag, setting or environment variable changes guards: the function that wires a server passes them as a value, and
only the simulator passes anything but `SHIPPED`. A guard is a condition or a value that production code reads; no code
runs only where a guard is missing.
"""

from collections.abc import Mapping

import msgspec

from runyard.dispatch.machine.table import Found, Rules
from runyard.dispatch.machine.values import JobState, SlotState

_DEADLINE = "deadline_"
_LOOP = "loop_"
# The server can work without these loops for a while.
LOOPS = ("delivery-audit", "queue-gauges", "delivery-pull")


def _guard_of(loop: str) -> str:
    return _LOOP + loop.replace("-", "_")


class Guards(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of the state machine, and the guards of the code around it."""

    rules: Rules = Rules()
    turn_order: str = (
        "order"  # an attribute of `TenantTurn`: the tenant that is furthest behind comes first
    )
    demand: str = "dispatchable"  # the field of `Figures` that pools scale by: jobs that wait for a budget do not count
    step_aside: bool = True  # a job that fits nowhere lets the next one of its tenant pass
    exclude_failing: bool = (
        True  # a tenant or repository that GitHub refuses runners for is skipped for a while
    )
    drain_first: bool = True  # a runner that is to be drained gets that response instead of a job
    without_loops: tuple[str, ...] = ()


SHIPPED = Guards()
# What a missing guard changes, by its name. A deadline or a loop adds to a tuple; see `without`.
_RULES: Mapping[str, Mapping[str, object]] = {
    "stamp_before_delivery": {"stamp_before_delivery": False},
    "requeue_at_fence": {"requeue_at_fence": False},
    "read_before_second_offer": {"read_before_second_offer": False},
    "outage_grace": {"outage_grace": False},
    "absent_needs_a_read": {"absent_needs_a_read": False},
    "generation_fences_writes": {"generation_fences_writes": False},
    "warm_if_abandoned": {"warm_if_abandoned": False},
    "requeue_displaced": {"requeue_displaced": False},
    "done_stays_done": {"done_stays_done": False},
    "waiting_is_not_queued": {"job_on_hold": JobState.QUEUED},
    "one_job_a_pod": {
        "idle_by_poll": (SlotState.IDLE, SlotState.EXECUTING, SlotState.DRAINING),
    },
    "end_by_runner": {"end_spends": (Found.BY_INTENT, Found.BY_RUNNER)},
}
_OWN: Mapping[str, Mapping[str, object]] = {
    "fair_turns": {"turn_order": "queue.tenant"},
    "step_aside": {"step_aside": False},
    "exclude_failing": {"exclude_failing": False},
    "dispatchable_only": {"demand": "length"},
    "drain_first": {"drain_first": False},
}
NAMES = (
    *_RULES,
    *(f"{_DEADLINE}{state}" for state in SlotState),
    *_OWN,
    *map(_guard_of, LOOPS),
)


def without(*names: str) -> Guards:
    """All guards but these; raises `ValueError` that lists unknown names and the known ones."""
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise ValueError(f"no such guard: {', '.join(unknown)} (known: {', '.join(NAMES)})")
    rules = msgspec.structs.replace(
        Rules(),
        **_changes(_RULES, names),
        no_deadline_for=tuple(state for state in SlotState if f"{_DEADLINE}{state}" in names),
    )
    return msgspec.structs.replace(
        Guards(),
        **_changes(_OWN, names),
        rules=rules,
        without_loops=tuple(name for name in LOOPS if _guard_of(name) in names),
    )


def _changes(
    table: Mapping[str, Mapping[str, object]], names: tuple[str, ...]
) -> dict[str, object]:
    return {field: value for name in names for field, value in table.get(name, {}).items()}
