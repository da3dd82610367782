"""All replicas together never exceed GitHub's rate limit, and a dead replica keeps no points."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.dispatch.dispatchharness import Harness, play
from tests.tiers import examples

from runyard.clock import RealClock
from runyard.components import server
from runyard.db.inline import InlineDatabase
from runyard.db.pooled import open_pool
from runyard.dispatch.budget import SharedBudget
from runyard.embedded.github.identity import KeyPair
from runyard.github.budget import Budget, retry_after
from runyard.github.errors import BudgetExhausted, BudgetUnknown, Definite
from runyard.github.scope import repository
from runyard.http.messages import Pairs, Response
from runyard.sim.clock import VirtualClock
from runyard.sim.loop import run_virtual
from runyard.telemetry import conditions
from runyard.telemetry.catalogue import (
    RUNYARD_GITHUB_RATE_BUDGET_RATIO,
    RUNYARD_GITHUB_RATE_LIMITED_INSTALLATIONS,
)
from runyard.telemetry.health import Health

PURPOSES = ("mint", "fence", "read", "audit")


def shared(url: str, **more: Any) -> tuple[SharedBudget, InlineDatabase, VirtualClock]:
    clock = VirtualClock()
    database = InlineDatabase(url, clock=clock)
    return SharedBudget(database, clock=clock, **more), database, clock


def run(url: str, scenario: Callable[..., Awaitable[None]], **more: Any) -> None:
    async def main() -> None:
        budget, database, clock = shared(url, **more)
        with database:
            await scenario(budget, database, clock)

    run_virtual(main(), seed=1)


async def outcome(budget: Budget | SharedBudget, points: int, purpose: str, key: str) -> float:
    """How long to wait; None if the points were taken."""
    try:
        await budget.spend(points, purpose=purpose, key=key)
    except BudgetExhausted as refused:
        return refused.retry_after or 0.0
    return 0.0


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("spend"),
            st.sampled_from([1, 5, 20]),
            st.sampled_from(PURPOSES),
            st.sampled_from(["app", "7"]),
        ),
        st.tuples(st.just("pass"), st.floats(0, 90)),
        st.tuples(st.just("wait"), st.integers(0, 100), st.sampled_from(["app", "7"])),
        st.tuples(st.just("hour"), st.integers(0, 60), st.integers(0, 200), st.just("7")),
    ),
    max_size=25,
)


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
@example([("wait", 1, "7"), ("hour", 1, 2, "7"), ("spend", 1, "read", "7")])
def test_the_shared_budget_counts_exactly_as_the_local_one(
    database_url: str, steps: list[tuple[Any, ...]]
) -> None:
    """With one exception: while GitHub rate limits a key, the hour is not considered."""
    with psycopg.connect(database_url, autocommit=True) as link:
        link.execute("DELETE FROM github_budgets")

    async def scenario(ours: SharedBudget, _: InlineDatabase, clock: VirtualClock) -> None:
        model = Budget(clock, points_per_minute=60, patience=0)
        silent = {"app": 0.0, "7": 0.0}
        for kind, *what in steps:
            if kind == "pass":
                await clock.sleep(what[0])
            elif kind == "spend":
                points, purpose, key = what
                expected = await outcome(model, points, purpose, key)
                silence = silent[key] - clock.monotonic()
                if silence > 0:
                    assert expected >= silence
                    expected = silence
                assert await outcome(ours, points, purpose, key) == pytest.approx(
                    expected, abs=1e-3
                )
            else:
                headers: Pairs = (("retry-after", str(what[0])),)
                if kind == "hour":
                    ends = str(int(clock.now()) + what[1])
                    headers = (
                        ("x-ratelimit-limit", "100"),
                        ("x-ratelimit-remaining", str(what[0])),
                        ("x-ratelimit-reset", ends),
                    )
                answer, key = Response(status=200, headers=headers), what[-1]
                wait = retry_after(answer, now=clock.now()) or 0.0
                silent[key] = max(silent[key], clock.monotonic() + wait)
                for each in (model, ours):
                    await each.record_response(answer, key=key)

    run(database_url, scenario, points_per_minute=60, patience=0)


def test_three_replicas_together_never_exceed_it(database_url: str) -> None:
    """Real Postgres, real connections: they spend as fast as they can."""

    async def replica(budget: SharedBudget, granted: list[int], rng: random.Random) -> None:
        for _ in range(60):
            points = rng.choice((1, 5))
            try:
                await budget.spend(points, purpose="mint", key="7")
            except BudgetExhausted:
                continue
            granted.append(points)

    async def main() -> None:
        clock, granted = RealClock(), list[int]()
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
            began = clock.monotonic()
            for number in range(3):
                rng = random.Random(number)
                pool = await stack.enter_async_context(
                    open_pool(database_url, clock=clock, rng=rng, max_size=4)
                )
                budget = SharedBudget(pool, clock=clock, points_per_minute=120, patience=0.0)
                tasks = [
                    group.create_task(replica(budget, granted, random.Random(number * 10 + each)))
                    for each in range(3)
                ]
            await asyncio.wait(tasks)
            # The others end with the task group; the bound below is for all of them.
        elapsed = clock.monotonic() - began
        assert 116 <= sum(granted) <= 120 + elapsed * 2.0 + 1e-6

    asyncio.run(main())


def test_a_dead_replica_loses_the_points_of_one_call_only(database_url: str) -> None:
    async def scenario(first: SharedBudget, database: InlineDatabase, clock: VirtualClock) -> None:
        await first.spend(5, purpose="mint", key="7")  # and is killed before it calls
        second = SharedBudget(database, clock=clock, points_per_minute=60, patience=0)
        (rate_budget,) = await second.rate_budgets()
        assert (rate_budget.key, rate_budget.points) == ("7", pytest.approx(55))
        await second.spend(55, purpose="mint", key="7")
        with pytest.raises(BudgetExhausted):
            await second.spend(1, purpose="mint", key="7")

    run(database_url, scenario, points_per_minute=60, patience=0)


def test_a_rate_limit_of_one_replica_blocks_all(database_url: str) -> None:
    async def scenario(first: SharedBudget, database: InlineDatabase, clock: VirtualClock) -> None:
        second = SharedBudget(database, clock=clock, patience=0)
        await first.record_response(Response(status=403, headers=(("retry-after", "30"),)), key="7")
        with pytest.raises(BudgetExhausted) as refused:
            await second.spend(1, purpose="mint", key="7")
        assert refused.value.retry_after == pytest.approx(30)
        await second.spend(1, purpose="mint", key="8")
        await clock.sleep(30)
        await second.spend(1, purpose="mint", key="7")

    run(database_url, scenario, patience=0)


def test_a_rate_limit_without_retry_after_blocks_too(database_url: str) -> None:
    async def scenario(budget: SharedBudget, _: InlineDatabase, clock: VirtualClock) -> None:
        body = b'{"message": "You have exceeded a secondary rate limit."}'
        await budget.record_response(Response(status=403, body=body), key="7")
        assert (await budget.rate_budgets())[0].closed == pytest.approx(60)

    run(database_url, scenario, patience=0)


def test_the_rest_of_the_hour_is_reserved_for_urgent_calls(database_url: str) -> None:
    async def scenario(first: SharedBudget, database: InlineDatabase, clock: VirtualClock) -> None:
        second = SharedBudget(database, clock=clock, patience=0)
        headers = (
            ("x-ratelimit-limit", "5000"),
            ("x-ratelimit-remaining", "1000"),
            ("x-ratelimit-reset", str(int(clock.now()) + 1200)),
        )
        await first.record_response(Response(status=200, headers=headers), key="7")
        await first.spend(5, purpose="mint", key="7")  # also stores the hour
        with pytest.raises(BudgetExhausted) as refused:
            await second.spend(1, purpose="audit", key="7")
        assert refused.value.retry_after == pytest.approx(1200, abs=1)
        await second.spend(1, purpose="fence", key="7")
        (rate_budget,) = await second.rate_budgets()
        assert (rate_budget.hour_limit, rate_budget.hour_left) == (5000, 998)
        assert rate_budget.share == pytest.approx(998 / 5000)
        await clock.sleep(1201)
        await second.spend(1, purpose="audit", key="7")

    run(database_url, scenario, patience=0)


def test_no_call_is_allowed_while_the_budget_is_unavailable(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        scope = repository("acme/app", installation_id=harness.acme)
        asked = SharedBudget(harness.database, clock=harness.clock)
        harness.database.down = True
        with pytest.raises(BudgetUnknown) as refused:
            await asked.spend(1, purpose="mint", key="7")
        assert isinstance(refused.value, Definite) and refused.value.retry_after
        github = harness.server.recovery.reader._github
        with pytest.raises(BudgetUnknown):
            await github.get_job(scope, 1)
        assert harness.github_wire.requests == []
        harness.database.down = False

    play(scenario, database_url, app_keys)


def test_a_wait_that_cannot_be_stored_is_kept_in_memory(
    database_url: str,
) -> None:
    async def scenario(budget: SharedBudget, database: InlineDatabase, clock: VirtualClock) -> None:
        database.down = True
        await budget.record_response(Response(status=429, headers=(("retry-after", "9"),)), key="7")
        database.down = False
        with pytest.raises(BudgetExhausted):
            await budget.spend(1, purpose="mint", key="7")
        await clock.sleep(9)
        await budget.spend(1, purpose="mint", key="7")

    run(database_url, scenario, patience=0)


def test_a_low_budget_is_a_health_condition_before_jobs_wait(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        health = Health(harness.clock, conditions.ALL)
        wired = server.wire(harness.deps(health=health))
        await wired.budget_metrics.step()
        assert harness.meter.get(RUNYARD_GITHUB_RATE_BUDGET_RATIO) == 1.0
        await wired.shared.budget.spend(820, purpose="mint", key="7")
        await wired.shared.budget.record_response(
            Response(status=429, headers=(("retry-after", "90"),)), key="8"
        )
        await wired.budget_metrics.step()
        assert harness.meter.get(RUNYARD_GITHUB_RATE_BUDGET_RATIO) == pytest.approx(80 / 900)
        assert harness.meter.get(RUNYARD_GITHUB_RATE_LIMITED_INSTALLATIONS) == 1
        await harness.clock.sleep(31)
        await wired.shared.budget.spend(460, purpose="mint", key="7")
        await wired.budget_metrics.step()
        (report,) = health.report()
        assert report.code == conditions.GITHUB_BUDGET_LOW.code
        assert "installation 7: 85 of 900 points" in report.message
        assert "installation 8: rate limited by GitHub, retry in 59 s" in report.message
        await harness.clock.sleep(60)
        await wired.budget_metrics.step()
        assert (
            health.report() == ()
            and harness.meter.get(RUNYARD_GITHUB_RATE_LIMITED_INSTALLATIONS) == 0
        )

    play(scenario, database_url, app_keys)
