"""Shared fixtures of the benches, which measure a limit and our code in the same run and check the ratio."""

import time
from collections.abc import Callable

import pytest
from tests.fixtures_postgres import database_url, postgres  # noqa: F401 - fixtures of this folder


def best_rate(work: Callable[[], int], *, rounds: int = 3) -> float:
    """Operations per second of wall-clock time, the best of some rounds."""
    best = 0.0
    for _ in range(rounds):
        began = time.perf_counter()
        done = work()
        best = max(best, done / (time.perf_counter() - began))
    return best


class Ratios:
    """Prints a ratio and asserts that it is above its floor."""

    def hold(self, name: str, ours: float, limit: float, *, floor: float) -> None:
        """Assert that `ours` is at least `floor` times `limit`."""
        ratio = ours / limit
        print(f"\n{name:<58} {ours:>12,.0f}/s  limit {limit:>12,.0f}/s  ratio {ratio:.3f}", end="")
        assert ratio >= floor, f"{name}: {ratio:.3f} of the limit, should be at least {floor}"


@pytest.fixture
def ratios() -> Ratios:
    """Return the recorder of ratios."""
    return Ratios()
