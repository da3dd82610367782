"""Tests that each end of an attempt has one consequence, and that no run is retried forever."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from runyard.wire.reasons_results import LACKS_SPACE, Unprocessed
from runyard.xcresult.plans.attempts import (
    Decision,
    End,
    Outcome,
    Retrying,
    Verdict,
    decide,
    pause_after,
)

RULES = Retrying()
WHY = Unprocessed.DATABASE.because(message="away")
FULL = Unprocessed.NO_SPACE_FOR_UPLOAD.because(size=7, free=0)
ENDS: tuple[End, ...] = (
    "done",
    "refused",
    "exhausted",
    "failed",
    "late",
    "lost",
    "no_space",
    "released",
)


def ended(end: End, *, claims: int = 1, spent: int = 0) -> Decision:
    outcome = Outcome(end=end, reason=WHY)
    return decide(outcome, claims=claims, spent=spent, settings=RULES)


@pytest.mark.parametrize(
    ("end", "spent", "verdict", "delay", "used"),
    [
        ("done", 0, "processed", 0, 1),
        ("done", 4, "processed", 0, 5),
        ("refused", 0, "failed", 0, 1),
        ("exhausted", 0, "failed", 0, 1),
        ("failed", 0, "retry", 30, 1),
        ("failed", 1, "retry", 120, 2),
        ("failed", 2, "retry", 300, 3),
        ("failed", 3, "retry", 600, 4),
        ("failed", 4, "failed", 0, 5),
        ("late", 0, "retry", 30, 1),
        ("late", 4, "failed", 0, 5),
        ("lost", 0, "lost", 0, 1),
        ("lost", 4, "failed", 0, 5),
        ("no_space", 4, "released", 30, 4),
        ("released", 4, "released", 0, 4),
    ],
)
def test_each_end_has_its_consequence(
    end: End, spent: int, verdict: str, delay: float, used: int
) -> None:
    decision = ended(end, claims=spent + 1, spent=spent)
    assert (decision.verdict, decision.delay, decision.spent) == (verdict, delay, used)


def test_a_run_that_no_machine_has_space_for_is_given_up_in_the_end() -> None:
    assert not ended("no_space", claims=RULES.claims - 1).final
    last = ended("no_space", claims=RULES.claims)
    assert (last.verdict, last.code, last.reason) == ("failed", "database", WHY)


@given(some.lists(some.sampled_from(ENDS), min_size=RULES.claims))
def test_every_run_ends_after_any_sequence_of_outcomes(ends: list[End]) -> None:
    spent = 0
    for claims, end in enumerate(ends, start=1):
        decision = ended(end, claims=claims, spent=spent)
        assert decision.spent - spent in (0, 1)
        if decision.final:
            assert decision.delay == 0
            return
        spent = decision.spent
    pytest.fail("the run never ended")


def test_a_run_that_fits_nowhere_does_not_keep_workers_from_all_others() -> None:
    full = Decision(verdict="released", reason=FULL)
    pauses = [pause_after(full, claims=claims, settings=RULES) for claims in range(1, RULES.claims)]
    assert pauses[0] > RULES.elsewhere, "another worker may have space for it and gets it first"
    assert sum(pauses) == RULES.rests * pauses[0]


@pytest.mark.parametrize("verdict", ["released", "retry", "processed", "failed"])
def test_a_worker_pauses_only_for_lack_of_space(verdict: Verdict) -> None:
    assert pause_after(Decision(verdict=verdict, reason=WHY), claims=1, settings=RULES) == 0
    assert pause_after(Decision(verdict="failed", reason=FULL), claims=1, settings=RULES) == 0


@pytest.mark.parametrize("code", LACKS_SPACE)
def test_each_lack_of_space_makes_a_worker_pause(code: Unprocessed) -> None:
    detail = {"message": "full"} if "message" in code.types else {"size": 7, "free": 0}
    full = Decision(verdict="released", reason=code.because(**detail))
    assert pause_after(full, claims=1, settings=RULES) > 0
