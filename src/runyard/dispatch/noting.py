"""What a transaction did to jobs, told after it was committed, and only then.

A transaction may be run again or rolled back, so nobody may be told of its changes while it runs. `Noting` carries the
changes along with the transaction itself; the store hands them on when the commit is known. If it is not known, nobody
is told: a counter that missed one is better than one that counted what never was.
"""

from collections.abc import Callable

import msgspec

from runyard.db.contract import Row, Tx
from runyard.dispatch.machine.values import JobChange


class JobMoved(msgspec.Struct, frozen=True, kw_only=True):
    """One job's row was written. Times are in seconds until now; None: it has not come that far."""

    change: JobChange
    pool: str  # of the slot that the job is, or was, with; empty if there is none
    labels: tuple[str, ...]
    queued: float
    claimed: float | None = None
    started: float | None = None


Observer = Callable[[JobMoved], None]


class Noting:
    """A transaction that remembers what it did to jobs."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self.moved: list[JobMoved] = []

    async def all(self, sql: str, /, **params: object) -> list[Row]:
        """Run a statement and return all of its rows."""
        return await self._tx.all(sql, **params)

    async def one(self, sql: str, /, **params: object) -> Row | None:
        """Run a statement and return its first row, or None."""
        return await self._tx.one(sql, **params)

    async def run(self, sql: str, /, **params: object) -> int:
        """Run a statement and return how many rows it touched."""
        return await self._tx.run(sql, **params)
