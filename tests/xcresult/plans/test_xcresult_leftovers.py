"""Only what is provably left behind is removed."""

import pytest

from runyard.xcresult.plans.leftovers import Entry, name_of, ours, removable

RUN = "0190a1b2-0000-7000-8000-0000000000aa"
NAME = name_of(run_id=RUN, shard=3, attempt=12, token="deadbeef")


@pytest.mark.parametrize(
    ("entry", "goes"),
    [
        (Entry(NAME, free=True), True),
        (Entry(NAME, free=False), False),
        (Entry(NAME, free=None), False),
        (Entry("photos", free=True), False),
        (Entry(f"{NAME}.old", free=True), False),
        (Entry("..", free=True), False),
    ],
)
def test_a_directory_goes_only_if_it_is_ours_and_nobody_is_in_it(entry: Entry, goes: bool) -> None:
    assert removable((entry,)) == ((entry.name,) if goes else ())


def test_what_we_name_we_know_again() -> None:
    assert ours(NAME)
    assert not ours(NAME + "/..")
