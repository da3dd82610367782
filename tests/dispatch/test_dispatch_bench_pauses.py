"""The bench leaves out what a pause of the machine delayed, and nothing else."""

import pytest
from benches.dispatch.pauses import Pause, Pauses


@pytest.mark.parametrize(
    ("begin", "end", "delayed"),
    [
        (8.0, 9.9, False),  # over before it
        (9.0, 10.5, True),
        (10.5, 10.6, True),  # within it
        (11.5, 11.6, True),  # behind the work that had waited
        (12.1, 12.2, False),
        (9.0, 13.0, True),
    ],
)
def test_a_pause_delays_what_overlaps_it_or_follows_within_its_length(
    begin: float, end: float, delayed: bool
) -> None:
    assert Pause(10.0, 11.0).delays(begin, end) is delayed


def test_pauses_are_unknown_where_no_core_is_watched() -> None:
    assert not Pauses(()).known
    assert Pauses(()).undelayed([(1.0, 3.5)]) == [2.5]
