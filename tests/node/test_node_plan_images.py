"""Tests what is computed from the reports of a pull: the rate above all, from which the time left follows."""

import pytest

from runyard.node.plans.images import PullState, advanced, describe
from runyard.vm.contract import PullProgress

GB = 10**9


def after(*reports: tuple[float, float], total: int = 100 * GB) -> PullState:
    """The state after these reports: seconds, percent."""
    state = None
    for now, percent in reports:
        done = int(total * percent / 100)
        found = PullProgress(percent=percent, bytes_done=done, bytes_total=total)
        state = advanced(state, found, at=now, now=now)
    assert state is not None
    return state


RATES = {
    "one report": (((5.0, 10.0),), 0.0),
    "two": (((0.0, 0.0), (10.0, 1.0)), GB / 10),
    "what an interrupted pull has left is not counted": (((0.0, 60.0), (10.0, 61.0)), GB / 10),
    "it began again": (((0.0, 60.0), (10.0, 1.0), (20.0, 2.0)), GB / 10),
    "the last minutes only": (((0.0, 0.0), (10.0, 50.0), (400.0, 50.0), (700.0, 51.0)), GB / 300),
    "it waits": (((0.0, 10.0), (30.0, 10.0), (60.0, 10.0)), 0.0),
}


@pytest.mark.parametrize(("reports", "rate"), RATES.values(), ids=list(RATES))
def test_the_rate_is_that_of_the_last_minutes(
    reports: tuple[tuple[float, float], ...], rate: float
) -> None:
    assert after(*reports).rate == pytest.approx(rate)


def test_a_report_without_a_new_percentage_is_progress_too() -> None:
    assert after((0.0, 3.0), (900.0, 3.0)).at == 900.0


def test_the_memory_of_a_pull_that_reports_all_the_time_is_bounded() -> None:
    state = after(*((number / 10, number / 1000) for number in range(20_000)))
    assert len(state.samples) < 70


def test_percent_size_rate_and_time_left_are_shown() -> None:
    assert describe(after((0.0, 0.0), (100.0, 10.0))) == (
        "10 % of 100.0 GB, 100 MB/s, about 15 min left"
    )
