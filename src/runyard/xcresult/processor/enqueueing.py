"""A run whose upload is complete is put to work, in the transaction of whoever says so.

The row and its delivery are committed together: there is no run that waits for ever because the queue was not told,
and no delivery of a run that was never completed.
"""

from runyard.db.contract import Tx
from runyard.xcresult.processor.queue import delivery
from runyard.xcresult.store import SQL


async def enqueue(tx: Tx, *, run_id: str, shard: int = 0) -> bool:
    """Have a run processed, or processed again; False if it waits or is being processed already, or is not there."""
    row = await tx.one(SQL.run_enqueue, run_id=run_id, shard=shard)
    if row is None:
        return False
    await delivery.deliver(tx, run_id=run_id, shard=shard)
    return True
