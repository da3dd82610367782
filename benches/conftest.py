"""Benches: each measures a limit and our code in the same run, and holds their ratio."""

import time
from collections.abc import Callable

import pytest
from tests.fixtures_postgres import database_url, postgres  # noqa: F401 - fixtures of this folder


def best_rate(work: Callable[[], int], *, rounds: int = 3) -> float:
    """Operations per second of CPU time and waiting together, the best of some rounds."""
    best = 0.0
    for _ in range(rounds):
        began = time.perf_counter()
        done = work()
        best = max(best, done / (time.perf_counter() - began))
    return best


class Ratios:
    """Prints a ratio and holds it above its floor."""

    def hold(self, name: str, ours: float, limit: float, *, floor: float) -> None:
        """`ours` must be at least `floor` of `limit`."""
        ratio = ours / limit
        print(f"\n{name:<58} {ours:>12,.0f}/s  limit {limit:>12,.0f}/s  ratio {ratio:.3f}", end="")
        assert ratio >= floor, f"{name}: {ratio:.3f} of the limit, should be at least {floor}"


@pytest.fixture
def ratios() -> Ratios:
    """The keeper of ratios."""
    return Ratios()
