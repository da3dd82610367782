"""Exports what is left of GitHub's rate limit, as metrics and as a health condition that fails before jobs wait."""

from collections.abc import Callable

from runyard.dispatch.budget import SharedBudget
from runyard.github.budget import RateBudget
from runyard.telemetry.catalogue import (
    RUNYARD_GITHUB_RATE_BUDGET_RATIO,
    RUNYARD_GITHUB_RATE_LIMITED_INSTALLATIONS,
)
from runyard.telemetry.meter import Meter

LOW = 0.1


class BudgetMetrics:
    """Publishes the rate budgets; `report` gets a message about low ones, or an empty string."""

    def __init__(
        self, budget: SharedBudget, *, meter: Meter, report: Callable[[str], None]
    ) -> None:
        self._budget = budget
        self._meter = meter
        self._report = report

    async def step(self) -> None:
        """Read the rows once and publish."""
        rate_budgets = await self._budget.rate_budgets()
        shares = [rate_budget.share for rate_budget in rate_budgets]
        self._meter.set(RUNYARD_GITHUB_RATE_BUDGET_RATIO, min(shares, default=1.0))
        self._meter.set(
            RUNYARD_GITHUB_RATE_LIMITED_INSTALLATIONS,
            sum(rate_budget.closed > 0 for rate_budget in rate_budgets),
        )
        self._report(
            "; ".join(message for rate_budget in rate_budgets if (message := shortage(rate_budget)))
        )


def shortage(rate_budget: RateBudget) -> str:
    """Describe one budget that is low or blocked; empty if it is neither."""
    owner = "the App" if rate_budget.key == "app" else f"installation {rate_budget.key}"
    if rate_budget.closed > 0:
        return f"{owner}: rate limited by GitHub, retry in {rate_budget.closed:.0f} s"
    if rate_budget.share >= LOW:
        return ""
    if (
        rate_budget.hour_left is not None
        and rate_budget.hour_limit
        and rate_budget.hour_ends_in > 0
    ):
        hour = (
            f", {rate_budget.hour_left} of {rate_budget.hour_limit} requests"
            f" until the hour ends in {rate_budget.hour_ends_in:.0f} s"
        )
    else:
        hour = ""
    return f"{owner}: {rate_budget.points:.0f} of {rate_budget.capacity:.0f} points of the minute are left{hour}"
