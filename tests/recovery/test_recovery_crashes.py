"""After a kill of the real server process at any effect of a dispatch, the fleet settles and every job ran once.

Times are not asserted here, because the machine may be busy. `make recovery-table` compares them with their bounds.
"""

import asyncio
import random

import pytest
from benches.recovery.matrix import Case, Environment, Outcome, cases, crash, discover, run_cases
from benches.recovery.points import Point
from benches.recovery.rows import row_of

SERVED = "answer: 200 POST /api/internal/runners/dispatch"
SAMPLE = (
    Point("commit: claim", "before", 2),
    Point("commit: arm", "after", 1),
    Point(SERVED, "before", 2),
)
EFFECTS = 25  # a dispatch has more; fewer would mean that effects are missed


@pytest.mark.slow
def test_a_dispatch_survives_a_kill_at_its_main_effects(environment: Environment) -> None:
    async def scenario() -> list[Outcome]:
        async with environment.fleet("sample") as made:
            return [await crash(made, Case(point)) for point in SAMPLE]

    assert broken(asyncio.run(scenario())) == []


def broken(outcomes: list[Outcome]) -> list[str]:
    """The cases that failed or were not reached."""
    return [
        f"{each.case.point}: {each.failure or 'not reached'}"
        for each in outcomes
        if each.failure or each.seconds is None
    ]


def sampled(todo: list[Case], rng: random.Random) -> list[Case]:
    """Every point of the dispatch and of a repair; of the others every fourth, chosen by the seed."""
    path = [case for case in todo if row_of(case).key != "elsewhere"]
    rest = [case for case in todo if row_of(case).key == "elsewhere"]
    rng.shuffle(rest)
    return path + rest[::4]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_kill_at_any_effect_leaves_nothing_behind(environment: Environment) -> None:
    """A sample, for the sake of time: `make recovery-table` kills at all points, several times each."""
    rng = random.Random(1)

    async def scenario() -> list[Outcome]:
        async with environment.fleet("discovery") as made:
            usual, repair = await discover(made)
        assert len(usual) >= EFFECTS, f"the instrument sees less than a dispatch has: {usual}"
        todo = sampled(cases(usual, repair, rng=rng), rng)
        print(f"{len(usual)} effects and {len(repair)} of a repair; {len(todo)} kills")  # noqa: T201 a result
        return [outcome async for outcome in run_cases(environment, todo, side_by_side=4)]

    outcomes = asyncio.run(scenario())
    assert broken(outcomes) == []
    reached = {each.case.point.name for each in outcomes}
    assert {"commit: claim", "commit: arm", "commit: webhook", SERVED} <= reached
