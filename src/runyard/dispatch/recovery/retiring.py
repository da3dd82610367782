"""Retiring a Pod that no claim speaks for: first the fence by name, then its slot leaves idle, then the sweeper reaps.

Nothing in our rows speaks for a runner in it, but rows can be lost: so GitHub is made to forget whatever runner has
that name, and if it is busy the Pod stays.

A fence is a deletion, and a judgement is old when it is carried out: a mint that failed may have taken its stamp off
between the list and the rows, and the Pod may have been offered anew since. So Pod and row are looked at once more
before anything is asked of GitHub: the same uid with the same stamp, then the same generation.
"""

from runyard.db.contract import Database, Row, Tx
from runyard.dispatch.machine.events import FenceAnswer
from runyard.dispatch.plans.stamped import Leak
from runyard.dispatch.recovery.fencing import Fencer
from runyard.dispatch.recovery.proofs import Prover
from runyard.dispatch.recovery.reconciling import WORLD, Desk, Finding
from runyard.dispatch.store import SQL, Store
from runyard.github.scope import parse
from runyard.wire.names import POOL_OWNER, runner_name

STRANGER = "nobody knows its owner, so nobody can be asked whether a runner is at work in it"


class Retirer:
    """Takes leaked Pods out of service."""

    def __init__(self, *, database: Database, store: Store, prover: Prover, fencer: Fencer) -> None:
        self._database = database
        self._store = store
        self._prover = prover
        self._fencer = fencer

    async def retire(self, leak: Leak, *, desk: Desk, kind: str, grace: float, era: str) -> str:
        """Retire one, or say why it was left; whatever fails is booked, and does not stop the batch."""
        finding = Finding(pod=leak.event.pod_name, reason=leak.event.why, age=leak.age, grace=grace)
        if desk.dry:
            desk.would(finding, "fence its runner and delete it")
            return ""
        try:
            if not await self._as_judged(leak, era):
                left = "it has moved on since it was judged"
            elif not (left := await self._unfenced(leak, era)):
                left = await self._take_out(leak, era)
        except WORLD as error:
            desk.failed(finding, error)
            return ""
        if left:
            desk.left(finding, left)
        else:
            desk.healed(finding, kind=kind)
        return left

    async def _take_out(self, leak: Leak, era: str) -> str:
        """Why its slot may not leave idle; it has left if there is none."""
        decision = await self._store.about_slot(
            leak.uid, leak.event, name="retire leaked Pod", asked_in=era
        )
        return decision.refused

    async def _as_judged(self, leak: Leak, era: str) -> bool:
        """The Pod first: a stamp that is there now, and no later offer after that, was left behind."""
        pod = await self._prover.look(leak.event.pod_name)
        if pod is None or pod.metadata.uid != leak.uid or pod.metadata.deletion_timestamp:
            return False
        if pod.metadata.labels.get(POOL_OWNER, "") != leak.owner:
            return False
        return await self._unmoved(leak, era)

    async def _unmoved(self, leak: Leak, era: str) -> bool:
        return await self._store.unmoved(leak.uid, leak.event.generation, asked_in=era)

    async def _unfenced(self, leak: Leak, era: str) -> str:
        """Why a runner may be at work in this Pod; empty if certainly none is."""
        if not leak.owner:
            return ""  # no stamp, so no JIT was ever delivered to it

        async def scopes(tx: Tx) -> list[Row]:
            return await tx.all(SQL.tenant_scopes, tenant=leak.owner)

        async def still() -> bool:
            return await self._unmoved(leak, era)

        found = await self._database.transact(scopes, name="scopes of a leak")
        for row in found:
            scope = parse(row["scope"], installation_id=row["installation_id"])
            name = runner_name(leak.event.pod_name)
            answer = await self._fencer.fence_name(scope, name, still=still)
            if answer is None or answer is FenceAnswer.BUSY:
                return "not fenced: its runner may be at work"
        # About an owner that we do not know nobody can be asked, so only the Pod itself can tell: one that asks
        # for work has none. One that does not may be at work for them, and then ends by itself.
        return "" if found or leak.asks else STRANGER
