"""Whose turn a task is, where one replica at a time is enough.

What asks for much (the audit, the pull of deliveries, the look for ghosts at GitHub; the list of all Pods) would cost
N times as much with N replicas. So each such loop first asks for its turn: a row with an end, by the database's clock.
Who holds it keeps it while it comes back in time; when it does not, the next one to ask takes over.

This saves calls, and nothing more: a holder that hangs may still be at work when another one begins, so whatever is
done in a turn must be right when done twice.
"""

from runyard.db.contract import Database, Tx
from runyard.dispatch.store import SQL


class Turns:
    """Asks for turns under a replica's name."""

    def __init__(self, database: Database, *, holder: str) -> None:
        self._database = database
        self._holder = holder

    async def mine(self, what: str, *, every: float) -> bool:
        """Whether to do it now. No other replica is told so for `every` seconds. Raises `DatabaseError`."""

        async def take(tx: Tx) -> bool:
            row = await tx.one(SQL.turn_take, what=what, holder=self._holder, every=every)
            return row is not None

        return await self._database.transact(take, name=f"turn {what}")
