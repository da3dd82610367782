"""The real server process is killed at the effects of a dispatch; everything comes to rest, and every job ran once."""

import asyncio
import random

import pytest
from benches.recovery.matrix import Case, Ground, Outcome, cases, crash, discover, run_cases
from benches.recovery.points import Point

SERVED = "answer: 200 POST /api/internal/runners/dispatch"
SAMPLE = (
    Point("commit: claim", "before", 2),
    Point("commit: arm", "after", 1),
    Point(SERVED, "before", 2),
)


def test_a_dispatch_survives_a_kill_at_its_turning_points(place: Ground) -> None:
    async def scenario() -> list[Outcome]:
        async with place.fleet("sample") as made:
            return [await crash(made, Case(point)) for point in SAMPLE]

    for outcome in asyncio.run(scenario()):
        assert outcome.failure == ""
        assert outcome.seconds is not None, f"never reached: {outcome.case.point}"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_kill_at_any_effect_leaves_nothing_behind(place: Ground) -> None:
    async def scenario() -> list[Outcome]:
        async with place.fleet("discovery") as made:
            usual, repair = await discover(made)
        todo = cases(usual, repair, rng=random.Random(1))
        print(f"{len(usual)} effects of a dispatch, {len(repair)} more of a repair")  # noqa: T201 a result
        return [outcome async for outcome in run_cases(place, todo, side_by_side=8)]

    outcomes = asyncio.run(scenario())
    assert [f"{each.case.point}: {each.failure}" for each in outcomes if each.failure] == []
    reached = {each.case.point.name for each in outcomes if each.seconds is not None}
    assert len(reached) >= 25, "the instrument sees less than a dispatch has"
    path = {"commit: claim", "commit: arm", "commit: webhook", SERVED}
    assert path <= reached
