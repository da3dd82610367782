"""The guards of the dispatch server by name, so that each can be taken away to see what it is for.

Production always runs with all of them. Only the proof and its tests ever switch one off: an incident that is
played again must end well with its guard, and must go wrong without it. Otherwise either the guard does nothing or
nobody would notice its loss.

There is no flag, no setting and no variable that reaches this: a server gets its guards as a value from whoever
puts it together, and only the simulator gives it another one than `SHIPPED`.
"""

import msgspec

from runyard.dispatch.machine.table import Rules
from runyard.dispatch.machine.values import SlotState

_DEADLINE = "deadline_"
_LOOP = "loop_"
LOOPS = ("audit", "gauges", "pull")  # the server works without, for a while


class Guards(msgspec.Struct, frozen=True, kw_only=True):
    """What holds beyond the machine's own rules."""

    rules: Rules = Rules()
    fair_turns: bool = True  # the tenant that is furthest behind in virtual time is next
    step_aside: bool = True  # a job that fits nowhere lets the next one of its tenant pass
    exclude_failing: bool = True  # whom GitHub makes no runner for is passed over for a while
    dispatchable_only: bool = True  # what waits for its tenant's budget is no demand for runners
    drain_first: bool = True  # a runner that is to leave is told so before it is given a job
    without_loops: tuple[str, ...] = ()


SHIPPED = Guards()
_OWN = tuple(name for name in Guards.__struct_fields__ if name not in ("rules", "without_loops"))
_RULES = tuple(name for name in Rules.__struct_fields__ if name != "no_deadline_for")
NAMES = (
    *_RULES,
    *(f"{_DEADLINE}{state}" for state in SlotState),
    *_OWN,
    *(f"{_LOOP}{name}" for name in LOOPS),
)


def without(*names: str) -> Guards:
    """All guards but these; raises `ValueError` that names what it does not know."""
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise ValueError(f"no such guard: {', '.join(unknown)} (known: {', '.join(NAMES)})")
    rules = msgspec.structs.replace(
        Rules(),
        **{name: False for name in names if name in _RULES},
        no_deadline_for=tuple(state for state in SlotState if f"{_DEADLINE}{state}" in names),
    )
    return Guards(
        rules=rules,
        without_loops=tuple(name for name in LOOPS if f"{_LOOP}{name}" in names),
        **{name: False for name in names if name in _OWN},
    )
