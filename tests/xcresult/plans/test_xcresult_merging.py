"""Tests the state and status of a run that is merged from shards."""

import itertools

import pytest

from runyard.xcresult.plans.merging import State, Status, state_of, status_of

OPEN: tuple[State, ...] = ("processing", "queued", "awaiting_upload")
OVER: tuple[State, ...] = ("failed_processing", "processed")


def test_a_run_is_not_over_before_its_last_shard_is() -> None:
    for states in itertools.product((*OPEN, *OVER), repeat=3):
        assert (state_of(states) in OVER) == all(state in OVER for state in states)
        assert state_of(states) == state_of(states[::-1])


def test_a_run_of_which_one_shard_could_not_be_read_says_so() -> None:
    assert state_of(("processed", "failed_processing")) == "failed_processing"
    assert state_of(("processed", "processed")) == "processed"


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        (("success", "failure", "skipped"), "failure"),
        (("success", "skipped"), "success"),
        (("skipped", "skipped"), "skipped"),
        (("", "success"), "success"),
        (("", ""), ""),
    ],
)
def test_how_a_run_went(statuses: tuple[Status, ...], expected: Status) -> None:
    assert status_of(statuses) == expected
