"""All roads to the end of a slot lead here: a hint says that its Pod is gone, the proof is asked for, it is closed.

Watch events, stop reports and lists are hints. Closing is idempotent: whoever comes second learns that it is done.
"""

import msgspec

from runyard.db.contract import Tx
from runyard.dispatch.machine.events import PodGone
from runyard.dispatch.machine.values import Slot
from runyard.dispatch.recovery.proofs import Prover
from runyard.dispatch.store import SQL, Store, to_slot


class Closed(msgspec.Struct, frozen=True, kw_only=True):
    """A slot that was closed just now."""

    before: Slot
    after: Slot


class Closer:
    """Closes slots on proof."""

    def __init__(self, *, store: Store, prover: Prover) -> None:
        self._store = store
        self._prover = prover

    async def close_if_gone(self, *, pod_name: str, pod_uid: str) -> Closed | None:
        """Ask for the proof and close the slot on it; None if there is none, or it was closed already."""
        why = await self._prover.gone(pod_name=pod_name, pod_uid=pod_uid)
        if not why:
            return None

        async def close(tx: Tx) -> Closed | None:
            row = await tx.one(SQL.slot_whole, pod_uid=pod_uid)
            decision = await self._store.slot_event(tx, pod_uid, PodGone(why=why))
            if row is None or decision.slot is None:
                return None
            return Closed(before=to_slot(row), after=decision.slot)

        return await self._store.transact(close, name="pod gone")
