"""Tests that only directories that are provably unused are deleted."""

import pytest

from runyard.xcresult.plans.scratch_sweep import Entry, name_of, ours, removable

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
def test_a_directory_is_deleted_only_if_it_is_ours_and_unused(entry: Entry, goes: bool) -> None:
    assert removable((entry,)) == ((entry.name,) if goes else ())


def test_our_names_are_recognised() -> None:
    assert ours(NAME)
    assert not ours(NAME + "/..")
