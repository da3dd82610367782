"""Retires a Pod without a claim: its runner is fenced by name, its slot leaves idle, and the sweeper deletes the Pod.

No row assigns a runner to it, but rows can be lost. So the runner with the Pod's name is deleted at GitHub first, and
if it is busy the Pod stays. If nobody knows the owner of its stamp, there is no scope to fence it in: `lookup` searches
them all.

The snapshot may be outdated: a failed mint may have cleared its stamp between the list and the read of the rows, and
the Pod may have been offered again since. So Pod and row are read once more before GitHub is called: the same uid with
the same stamp, then the same generation.
"""

from runyard.db.contract import Database, Row, Tx
from runyard.dispatch.plans.stamped import Leak
from runyard.dispatch.recovery.fencing import Fencer
from runyard.dispatch.recovery.proofs import Prover
from runyard.dispatch.recovery.report import DEPENDENCY_ERRORS, Finding, ReconcilerReport
from runyard.dispatch.store import SQL, Store
from runyard.github.scope import parse
from runyard.wire.names import POOL_OWNER, runner_name
from runyard.wire.reasons import Reason
from runyard.wire.reasons_dispatch import Left, Would


class Retirer:
    """Retires leaked Pods."""

    def __init__(self, *, database: Database, store: Store, prover: Prover, fencer: Fencer) -> None:
        self._database = database
        self._store = store
        self._prover = prover
        self._fencer = fencer

    async def retire(
        self,
        leak: Leak,
        *,
        report: ReconcilerReport,
        kind: str,
        grace: float,
        era: str,
        looked_up: bool = False,
    ) -> Reason | None:
        """Retire one, or return why it was left; a failure is counted, returned, and does not stop the batch.

        That its owner is unknown is for the caller to report, who may look its runner up.

        `looked_up`: it was proven that GitHub has no runner of its name in any scope.
        """
        finding = finding_of(leak, grace=grace)
        if report.dry:
            report.would(finding, Would.FENCE_AND_DELETE)
            return None
        try:
            if not await self._unchanged(leak, era):
                left: Reason | None = Left.MOVED_ON.because()
            elif looked_up or (left := await self._fence(leak, era)) is None:
                left = await self._apply_retirement(leak, era)
        except DEPENDENCY_ERRORS as error:
            report.failed(finding, error)
            return Left.DEPENDENCY_FAILED.because(message=str(error) or repr(error))
        if left is None:
            report.healed(finding, kind=kind)
        elif left.code is not Left.OWNER_UNKNOWN:
            report.left(finding, left)
        return left

    async def _apply_retirement(self, leak: Leak, era: str) -> Reason | None:
        """Drain the slot; returns why it was refused, or None."""
        decision = await self._store.apply_to_slot(
            leak.uid, leak.event, name="retire leaked Pod", in_era=era
        )
        return decision.refused

    async def _unchanged(self, leak: Leak, era: str) -> bool:
        """Whether Pod and slot are as in the snapshot; the Pod is read first."""
        pod = await self._prover.pod(leak.event.pod_name)
        if pod is None or pod.metadata.uid != leak.uid or pod.metadata.deletion_timestamp:
            return False
        if pod.metadata.labels.get(POOL_OWNER, "") != leak.owner:
            return False
        return await self._slot_unchanged(leak, era)

    async def _slot_unchanged(self, leak: Leak, era: str) -> bool:
        return await self._store.has_generation(leak.uid, leak.event.generation, in_era=era)

    async def _fence(self, leak: Leak, era: str) -> Reason | None:
        """Delete the Pod's runner at GitHub; returns why a runner may be busy in it, or None if certainly none is."""
        if not leak.owner:
            return None  # no stamp, so no JIT was ever delivered to it

        async def scopes(tx: Tx) -> list[Row]:
            return await tx.all(SQL.tenant_scopes, tenant=leak.owner)

        async def still_valid() -> bool:
            return await self._slot_unchanged(leak, era)

        found = await self._database.transact(scopes, name="scopes of a leak")
        for row in found:
            scope = parse(row["scope"], installation_id=row["installation_id"])
            name = runner_name(leak.event.pod_name)
            if left := await self._fencer.fence_name(scope, name, still_valid=still_valid):
                return left
        # For an unknown owner there is no scope to ask GitHub in. A Pod that polls executes no job. One that does not
        # poll may run a job of that owner.
        return None if found or leak.polls else Left.OWNER_UNKNOWN.because()


def finding_of(leak: Leak, *, grace: float) -> Finding:
    """The finding about a leaked Pod."""
    event = leak.event
    return Finding(pod=event.pod_name, reason=event.reason, age=leak.age, grace=grace)
