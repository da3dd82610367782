"""Closes a slot once its Pod is proven gone.

Watch events, stop reports and lists are hints that start the proof. Closing is idempotent: a second call does nothing.
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
        """Close the slot if the Pod is proven gone; None if it is not, or the slot was closed already."""
        reason = await self._prover.gone(pod_name=pod_name, pod_uid=pod_uid)
        if reason is None:
            return None

        async def close(tx: Tx) -> Closed | None:
            row = await tx.one(SQL.slot_all_columns, pod_uid=pod_uid)
            decision = await self._store.apply_slot_event(tx, pod_uid, PodGone(reason=reason))
            if row is None or decision.slot is None:
                return None
            return Closed(before=to_slot(row), after=decision.slot)

        return await self._store.transact(close, name="pod gone")
