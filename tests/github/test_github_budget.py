"""The rate budget keeps a share for urgent calls, and bounds every wait."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runyard.github.budget import Budget
from runyard.github.errors import BudgetExhausted
from runyard.http.messages import Pairs, Response


class Clock:
    def __init__(self) -> None:
        self.t = 1000.0

    def now(self) -> float:
        return 1_760_000_000.0 + self.t

    def monotonic(self) -> float:
        return self.t

    async def sleep(self, seconds: float) -> None:
        self.t += seconds

    def timeout(self, seconds: float) -> asyncio.Timeout:
        return asyncio.timeout(None)


def spend(budget: Budget, points: float, *, purpose: str = "mint", key: str = "") -> None:
    asyncio.run(budget.spend(points, purpose=purpose, key=key))


def update(budget: Budget, response: Response, *, key: str = "") -> float | None:
    """Update the budget from an answer; return how long it then waits, if it does."""
    asyncio.run(budget.record_response(response, key=key))
    return budget.wait_for(1, purpose="mint", key=key) or None


def test_an_empty_bucket_refuses_at_once_with_a_retry_after() -> None:
    clock = Clock()
    budget = Budget(clock, points_per_minute=60, patience=2)
    spend(budget, 60)
    with pytest.raises(BudgetExhausted) as refusal:
        spend(budget, 5)
    assert refusal.value.retry_after == pytest.approx(5)
    assert clock.t == 1000.0
    clock.t += 5
    spend(budget, 5)


def test_a_short_wait_is_waited_out() -> None:
    clock = Clock()
    budget = Budget(clock, points_per_minute=60, patience=2)
    spend(budget, 60)
    spend(budget, 1)
    assert clock.t == pytest.approx(1001, abs=0.1)


@pytest.mark.parametrize(("purpose", "most"), [("audit", 70), ("user", 95)])
def test_background_work_and_users_leave_enough_for_a_fence(purpose: str, most: int) -> None:
    budget = Budget(Clock(), points_per_minute=100, patience=0)
    taken = 0
    with pytest.raises(BudgetExhausted):
        while True:
            spend(budget, 1, purpose=purpose)
            taken += 1
    assert taken == most
    for _ in range((100 - most) // 5):
        spend(budget, 5, purpose="fence")
    with pytest.raises(BudgetExhausted):
        spend(budget, 5, purpose="fence")


def test_a_rate_limited_installation_does_not_delay_the_others() -> None:
    clock = Clock()
    budget = Budget(clock, patience=1)
    waits = update(budget, Response(status=403, headers=(("retry-after", "30"),)), key="7")
    assert waits == 30
    with pytest.raises(BudgetExhausted) as refusal:
        spend(budget, 1, key="7")
    assert refusal.value.retry_after == 30
    spend(budget, 1, key="8")
    clock.t += 30
    spend(budget, 1, key="7")


def test_an_exhausted_hour_blocks_until_its_reset() -> None:
    clock = Clock()
    budget = Budget(clock, patience=1)
    reset = str(int(clock.now()) + 90)
    headers = (("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", reset))
    update(budget, Response(status=200, headers=headers), key="7")
    with pytest.raises(BudgetExhausted) as refusal:
        spend(budget, 1, key="7")
    assert refusal.value.retry_after == pytest.approx(90, abs=1)


def test_the_limit_of_another_resource_does_not_change_the_hourly_limit() -> None:
    """Registrations have their own limit, which is independent of the limit of reads."""
    clock = Clock()
    budget = Budget(clock, patience=0)
    reset = str(int(clock.now()) + 90)

    def answer(resource: str, left: int, status: int = 200) -> Response:
        headers = (
            ("x-ratelimit-limit", "100"),
            ("x-ratelimit-remaining", str(left)),
            ("x-ratelimit-reset", reset),
            ("x-ratelimit-resource", resource),
        )
        return Response(status=status, headers=headers)

    update(budget, answer("actions_runner_registration", 0), key="7")
    spend(budget, 1, purpose="audit", key="7")
    update(budget, answer("core", 50), key="7")
    update(budget, answer("actions_runner_registration", 5), key="7")
    spend(budget, 1, purpose="audit", key="7")
    update(budget, answer("core", 0), key="7")
    assert budget.wait_for(1, purpose="mint", key="7") == pytest.approx(90, abs=1)
    update(budget, answer("actions_runner_registration", 0, status=403), key="8")
    assert budget.wait_for(1, purpose="mint", key="8") == 60, (
        "refused, it waits a little all the same"
    )


def test_a_shorter_block_never_shortens_a_longer_one() -> None:
    budget = Budget(Clock(), patience=1)
    budget.block("7", 100)
    budget.block("7", 10)
    assert budget.wait_for(1, purpose="mint", key="7") == 100


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param((("retry-after", "soon"),), id="words"),
        pytest.param((("retry-after", "-5"),), id="negative"),
        pytest.param((("retry-after", "9" * 400),), id="enormous"),
        pytest.param((("retry-after", "٣"),), id="other-digits"),
        pytest.param((("x-ratelimit-remaining", "0"),), id="no-reset"),
        pytest.param((("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "x")), id="bad-reset"),
        pytest.param((("x-ratelimit-remaining", "5"), ("x-ratelimit-reset", "9")), id="some-left"),
    ],
)
def test_invalid_rate_limit_headers_are_ignored(headers: Pairs) -> None:
    budget = Budget(Clock(), patience=0)
    assert update(budget, Response(status=200, headers=headers)) is None
    spend(budget, 1)


def test_a_huge_retry_after_is_bounded() -> None:
    budget = Budget(Clock(), patience=0)
    assert update(budget, Response(status=429, headers=(("retry-after", "999999999"),))) == 3600


def test_a_write_always_fits_even_for_an_audit_in_a_tiny_bucket() -> None:
    budget = Budget(Clock(), points_per_minute=5, patience=0)
    spend(budget, 5, purpose="audit")


def test_a_budget_that_could_never_write_is_refused() -> None:
    with pytest.raises(ValueError, match="write"):
        Budget(Clock(), points_per_minute=4)


@given(st.lists(st.tuples(st.sampled_from([1, 5]), st.floats(0, 30)), max_size=60))
def test_no_minute_exceeds_its_points_and_the_saved_ones(
    steps: list[tuple[int, float]],
) -> None:
    clock = Clock()
    budget = Budget(clock, points_per_minute=60, patience=0)
    spent = 0
    start = clock.t
    for points, pause in steps:
        clock.t += pause
        if budget.wait_for(points, purpose="mint") > 0:
            with pytest.raises(BudgetExhausted):
                spend(budget, points)
        else:
            spend(budget, points)
            spent += points
        assert spent <= 60 + (clock.t - start) + 1e-6


def test_each_installation_has_points_of_its_own() -> None:
    budget = Budget(Clock(), points_per_minute=60, patience=0)
    spend(budget, 60, key="7")
    spend(budget, 60, key="8")
    assert (budget.available("7"), budget.available("9")) == (0, 60)


def test_what_is_left_of_the_hour_is_not_spent_on_an_audit() -> None:
    clock = Clock()
    budget = Budget(clock, patience=0)
    reset = str(int(clock.now()) + 90)
    headers = (
        ("x-ratelimit-limit", "100"),
        ("x-ratelimit-remaining", "30"),
        ("x-ratelimit-reset", reset),
    )
    assert update(budget, Response(status=200, headers=headers), key="7") is None
    with pytest.raises(BudgetExhausted):
        spend(budget, 1, purpose="audit", key="7")
    for _ in range(30):
        spend(budget, 1, purpose="fence", key="7")
    with pytest.raises(BudgetExhausted) as refusal:
        spend(budget, 1, purpose="fence", key="7")
    assert refusal.value.retry_after == pytest.approx(90, abs=1)
