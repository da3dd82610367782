"""Production has all guards, and an unknown name is an error."""

import pytest

from runyard.dispatch.guards import NAMES, SHIPPED, Guards, without
from runyard.dispatch.machine.table import Rules
from runyard.dispatch.machine.values import SlotState


def test_all_guards_are_on_by_default() -> None:
    assert without() == SHIPPED == Guards(rules=Rules())


@pytest.mark.parametrize("name", NAMES)
def test_each_name_removes_exactly_one_guard(name: str) -> None:
    assert without(name) not in (SHIPPED, *(without(each) for each in NAMES if each != name))


def test_a_deadline_is_named_after_its_state() -> None:
    assert without("deadline_armed").rules.no_deadline_for == (SlotState.ARMED,)


def test_an_unknown_guard_is_refused_with_the_known_names() -> None:
    with pytest.raises(ValueError, match=r"no such guard: fences .*deadline_offered"):
        without("fences")
