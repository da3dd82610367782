"""Takes leases for loops that only one replica at a time needs to run.

Expensive loops (the audit, the pull of deliveries, the search for ghost registrations, the list of all Pods) would cost
N times as much with N replicas. Each first takes a lease: a row with an expiry, by the database's clock. The holder
renews it at its next step; if it does not, another replica takes it.

A lease saves calls but does not exclude others: a holder that hangs may still be working when another replica begins.
So work under a lease must be correct when done twice.
"""

from runyard.db.contract import Database, Tx
from runyard.dispatch.store import SQL


class TaskLease:
    """Takes leases for one replica."""

    def __init__(self, database: Database, *, holder: str) -> None:
        self._database = database
        self._holder = holder

    async def acquire(self, what: str, *, every: float) -> bool:
        """Take or renew the lease for `every` seconds; False if another replica holds it. Raises `DatabaseError`."""

        async def take(tx: Tx) -> bool:
            row = await tx.one(SQL.task_lease_take, what=what, holder=self._holder, every=every)
            return row is not None

        return await self._database.transact(take, name=f"task lease {what}")
