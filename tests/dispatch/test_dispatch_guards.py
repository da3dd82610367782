"""Guards by name: production has all of them, and a name that nobody knows takes nothing away in silence."""

import pytest

from runyard.dispatch.guards import NAMES, SHIPPED, Guards, without
from runyard.dispatch.machine.table import Rules
from runyard.dispatch.machine.values import SlotState


def test_nothing_is_switched_off_unless_it_is_named() -> None:
    assert without() == SHIPPED == Guards(rules=Rules())


@pytest.mark.parametrize("name", NAMES)
def test_each_name_takes_exactly_one_guard_away(name: str) -> None:
    assert without(name) not in (SHIPPED, *(without(each) for each in NAMES if each != name))


def test_a_deadline_is_named_after_its_state() -> None:
    assert without("deadline_armed").rules.no_deadline_for == (SlotState.ARMED,)


def test_a_name_that_nobody_knows_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ValueError, match=r"no such guard: fences .*deadline_offered"):
        without("fences")
