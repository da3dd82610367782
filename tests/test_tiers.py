"""Tests the test tiers: samples are small, successive commits cover all cases, the long tier runs everything."""

import pytest
from tests import tiers

CASES = list(range(17))


@pytest.mark.parametrize("tier", ["fast", "ci"])
def test_successive_rotations_cover_every_case(tier: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "TIER", tier)
    seen: list[int] = []
    for rotation in range(40, 45):
        monkeypatch.setattr(tiers, "ROTATION", rotation)
        part = tiers.sample(CASES, of=5)
        assert 0 < len(part) <= 4
        seen += part
    assert sorted(seen) == CASES


def test_the_long_tier_runs_every_case_and_every_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "TIER", "long")
    assert tiers.sample(CASES, of=5) == CASES
    assert tiers.examples(400) == 400
    assert tiers.pick(fast=1, ci=2, long=3) == 3


def test_the_fast_tier_may_take_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "ROTATION", 2)
    monkeypatch.setattr(tiers, "TIER", "ci")
    assert tiers.sample(CASES, of=1, fast=8) == CASES
    monkeypatch.setattr(tiers, "TIER", "fast")
    assert tiers.sample(CASES, of=1, fast=8) == [2, 10]


@pytest.mark.parametrize(("whole", "expected"), [(400, 50), (60, 10), (10, 10), (3, 3)])
def test_no_tier_runs_so_few_examples_that_they_prove_nothing(
    whole: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers, "TIER", "fast")
    assert tiers.examples(whole) == expected
