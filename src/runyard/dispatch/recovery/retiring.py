"""Retiring a Pod that no claim speaks for: first the fence by name, then its slot leaves idle, then the sweeper reaps.

Nothing in our rows speaks for a runner in it, but rows can be lost: so GitHub is made to forget whatever runner has
that name, and if it is busy the Pod stays.
"""

from runyard.db.contract import Database, Row, Tx
from runyard.dispatch.machine.events import FenceAnswer
from runyard.dispatch.plans.stamped import Leak
from runyard.dispatch.recovery.fencing import Fencer
from runyard.dispatch.recovery.reconciling import WORLD, Desk, Finding
from runyard.dispatch.store import SQL, Store
from runyard.github.scope import parse
from runyard.wire.names import runner_name


class Retirer:
    """Takes leaked Pods out of service."""

    def __init__(self, *, database: Database, store: Store, fencer: Fencer) -> None:
        self._database = database
        self._store = store
        self._fencer = fencer

    async def retire(self, leak: Leak, *, desk: Desk, kind: str, grace: float, era: str) -> None:
        """Retire one; whatever fails is booked, and does not stop the batch."""
        finding = Finding(pod=leak.event.pod_name, reason=leak.event.why, age=leak.age, grace=grace)
        if desk.dry:
            desk.would(finding, "fence its runner and delete it")
            return
        try:
            if not await self._fenced(leak):
                desk.left(finding, "not fenced: its runner may be at work")
                return
            decision = await self._store.about_slot(
                leak.uid, leak.event, name="retire leaked Pod", asked_in=era
            )
        except WORLD as error:
            desk.failed(finding, error)
            return
        if decision.refused:
            desk.left(finding, decision.refused)
        else:
            desk.healed(finding, kind=kind)

    async def _fenced(self, leak: Leak) -> bool:
        """Is certainly no runner at work in this Pod?"""
        if not leak.owner:
            return True  # no stamp, so no JIT was ever delivered to it

        async def scopes(tx: Tx) -> list[Row]:
            return await tx.all(SQL.tenant_scopes, tenant=leak.owner)

        found = await self._database.transact(scopes, name="scopes of a leak")
        for row in found:
            scope = parse(row["scope"], installation_id=row["installation_id"])
            answer = await self._fencer.fence_name(scope, runner_name(leak.event.pod_name))
            if answer is None or answer is FenceAnswer.BUSY:
                return False
        # About an owner that we do not know nobody can be asked, so only the Pod itself can tell: one that asks
        # for work has none. One that does not may be at work for them, and then ends by itself.
        return bool(found) or leak.asks
