"""How much of GitHub's patience is left, as figures and as a condition that people see before jobs wait for it."""

from collections.abc import Callable

from runyard.dispatch.budget import SharedBudget
from runyard.github.budget import Purse
from runyard.telemetry.catalogue import RUNYARD_GITHUB_BUDGET_RATIO, RUNYARD_GITHUB_CLOSED
from runyard.telemetry.meter import Meter

LOW = 0.1


class BudgetWatch:
    """Publishes the budget now and then; `report` is told what is wrong, or nothing."""

    def __init__(
        self, budget: SharedBudget, *, meter: Meter, report: Callable[[str], None]
    ) -> None:
        self._budget = budget
        self._meter = meter
        self._report = report

    async def step(self) -> None:
        """Read the rows once and publish."""
        purses = await self._budget.purses()
        shares = [purse.share for purse in purses]
        self._meter.set(RUNYARD_GITHUB_BUDGET_RATIO, min(shares, default=1.0))
        self._meter.set(RUNYARD_GITHUB_CLOSED, sum(purse.closed > 0 for purse in purses))
        self._report("; ".join(told for purse in purses if (told := shortage(purse))))


def shortage(purse: Purse) -> str:
    """What a person should know of one budget; nothing if it is well."""
    who = "the App" if purse.key == "app" else f"installation {purse.key}"
    if purse.closed > 0:
        return f"{who}: GitHub wants to hear nothing for {purse.closed:.0f} s more"
    if purse.share >= LOW:
        return ""
    if purse.hour_left is not None and purse.hour_limit and purse.hour_ends_in > 0:
        hour = f", {purse.hour_left} of {purse.hour_limit} requests until the hour ends in {purse.hour_ends_in:.0f} s"
    else:
        hour = ""
    return f"{who}: {purse.points:.0f} of {purse.capacity:.0f} points of the minute are left{hour}"
