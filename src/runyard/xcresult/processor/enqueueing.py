"""Queues a run whose upload is complete, in the caller's transaction.

The row and its delivery are committed together: no run waits without a delivery, and no delivery exists for a run that
was not completed.
"""

from runyard.db.contract import Tx
from runyard.xcresult.processor.queue import delivery
from runyard.xcresult.store import SQL


async def enqueue(tx: Tx, *, run_id: str, shard: int = 0) -> bool:
    """Queue a run to be processed (again); False if it is queued, being processed, or does not exist."""
    row = await tx.one(SQL.run_enqueue, run_id=run_id, shard=shard)
    if row is None:
        return False
    await delivery.deliver(tx, run_id=run_id, shard=shard)
    return True
