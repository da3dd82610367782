"""Shares one GitHub rate budget among all replicas, in the database.

Each spend is one short statement on the row of its installation: refill, compare, take. The points of a mint are taken
by the transaction that claims its job (`mint_statements`), which saves a transaction. Replicas hold no points in
reserve: GitHub allows an installation three writes a second, so a row is rarely contended, and reserved points would be
unavailable to other replicas and lost when their replica dies. A replica that is killed between a spend and its call
loses the points of that one call; so does a mint for which the App gets no token.

The arithmetic is that of `github.budget.Budget`; a test compares the two.

Invariants:
- A call is sent only after its points were taken: while the database is unavailable, `spend` raises `BudgetUnknown`.
- When GitHub rate limits one replica, all wait. If the wait cannot be written to the database, this replica still
  keeps it, and GitHub's response is used all the same.
"""

from collections.abc import Mapping, Sequence

import msgspec

from runyard.clock import Clock
from runyard.db.contract import Database, DatabaseError, Row, Statement, Tx
from runyard.dispatch.store import SQL
from runyard.github.budget import (
    KEEP_FREE,
    LONGEST_BLOCK,
    POINTS_PER_MINUTE,
    ROUNDING_MARGIN,
    WRITE_POINTS,
    Hour,
    RateBudget,
    checked_capacity,
    hour_of,
    later_of,
    reach_of,
    retry_after,
)
from runyard.github.errors import BudgetExhausted, BudgetUnknown
from runyard.http.messages import Response


class SharedBudget:
    """Implements `Spending` with rows that all replicas share."""

    def __init__(
        self,
        database: Database,
        *,
        clock: Clock,
        points_per_minute: float = POINTS_PER_MINUTE,
        patience: float = 2.0,
        keep_free: Mapping[str, float] = KEEP_FREE,
    ) -> None:
        self._database = database
        self._clock = clock
        self._capacity = float(checked_capacity(points_per_minute))
        self._patience = patience
        self._keep_free = keep_free
        self._closed_until: dict[str, float] = {}
        self._hours: dict[str, Hour] = {}  # reported by GitHub and not written to the database yet

    def mint_statements(self, installations: Sequence[int]) -> list[Statement]:
        """The statements that take the points of one mint for each of these installations, in this order.

        They lock the rows, so `installations` must be sorted, and no other lock may be taken after them. The answer of
        each goes to `is_taken`. They must be committed before the mint is sent.
        """
        return [
            (SQL.budget_spend, self._values(WRITE_POINTS, "mint", str(installation)))
            for installation in installations
        ]

    def is_taken(self, rows: list[Row]) -> bool:
        """Whether a statement of `mint_statements` took the points; otherwise the mint has to `spend` them itself."""
        return bool(rows) and float(rows[0]["wait"]) <= 0

    async def spend(self, points: float, *, purpose: str, key: str, taken: bool = False) -> None:
        """Take points, waiting at most `patience`; otherwise a `Definite` error, and nothing is taken."""
        if taken and self._closed_until.get(key, 0.0) <= self._clock.monotonic():
            return
        deadline = self._clock.monotonic() + self._patience
        while True:
            wait = self._closed_until.get(key, 0.0) - self._clock.monotonic()
            if wait <= 0:
                wait = await self._take(points, purpose, key)
            if wait <= 0:
                return
            if self._clock.monotonic() + wait > deadline:
                raise BudgetExhausted(purpose, retry_after=wait, scope=reach_of(key))
            await self._clock.sleep(wait + ROUNDING_MARGIN)

    async def record_response(self, response: Response, *, key: str) -> None:
        """Record the limits in a response: the hourly limit with the next spend, a `retry-after` at once."""
        now = self._clock.now()
        hour = hour_of(response, now=now)
        if hour is not None:
            self._hours[key] = later_of(self._hours.get(key), hour)
        wait = retry_after(response, now=now)
        if wait is None:
            return
        seconds = min(max(0.0, wait), LONGEST_BLOCK)
        until = self._clock.monotonic() + seconds
        self._closed_until[key] = max(until, self._closed_until.get(key, until))

        async def close(tx: Tx) -> int:
            return await tx.run(SQL.budget_close, key=key, capacity=self._capacity, seconds=seconds)

        try:
            await self._database.transact(close, name="budget closed")
        except DatabaseError:
            return  # this replica waits all the same; GitHub will rate limit the others itself

    async def rate_budgets(self) -> tuple[RateBudget, ...]:
        """Return what is left of every budget. Raises `DatabaseError`."""

        async def read(tx: Tx) -> list[Row]:
            return await tx.all(SQL.budget_figures, capacity=self._capacity)

        rows = await self._database.transact(read, name="budget figures")
        return tuple(
            msgspec.convert({**row, "capacity": self._capacity}, RateBudget) for row in rows
        )

    def _values(self, points: float, purpose: str, key: str) -> dict[str, object]:
        hour = self._hours.get(key)
        return {
            "key": key,
            "capacity": self._capacity,
            "points": points,
            "keep": self._keep_free.get(purpose, 0.0),
            "limit": None if hour is None else hour.limit,
            "left": None if hour is None else hour.left,
            "ends": None if hour is None else hour.ends,
        }

    async def _take(self, points: float, purpose: str, key: str) -> float:
        hour, values = self._hours.get(key), self._values(points, purpose, key)

        async def take(tx: Tx) -> float:
            row = await tx.one(SQL.budget_spend, **values)
            if row is None:
                await tx.run(SQL.budget_open, key=key, capacity=self._capacity)
                row = await tx.one(SQL.budget_spend, **values)
            return 0.0 if row is None else float(row["wait"])

        try:
            wait = await self._database.transact(take, name="budget")
        except DatabaseError as error:
            raise BudgetUnknown(purpose, cause=str(error)) from error
        if self._hours.get(key) is hour:
            self._hours.pop(key, None)
        return wait
