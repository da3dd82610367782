"""Clears the stamp of a Pod whose offer was given up, after its runner was fenced, so that the Pod stays warm.

Clearing a stamp is as destructive as deleting the Pod, because the operator may delete unstamped Pods. So it needs the
same proof: GitHub has deleted the runner or has none of its name, the slot is unchanged, and the request carries the
Pod's uid and resourceVersion. The Pod is read before the slot is: if another offer stamps the Pod in between, its
resourceVersion has changed, and nothing is cleared.

A Pod that is gone or terminating, or whose stamp may not be cleared, keeps it: then its slot drains, and its Pod is
deleted.
"""

import msgspec

from runyard.dispatch.machine.events import FenceAnswer, Fenced, Inconclusive
from runyard.dispatch.machine.table import Rules, stays_warm
from runyard.dispatch.machine.values import Slot
from runyard.dispatch.recovery.proofs import Prover
from runyard.dispatch.store import Store
from runyard.kube.client import Kube
from runyard.kube.errors import Conflict, Forbidden, Invalid, NotFound
from runyard.kube.kinds import PODS
from runyard.telemetry.log import Logger
from runyard.wire.names import POOL_OWNER


class Unstamper:
    """Clears stamps of fenced Pods."""

    def __init__(
        self,
        kube: Kube,
        *,
        store: Store,
        prover: Prover,
        rules: Rules,
        namespace: str,
        log: Logger,
    ) -> None:
        self._kube = kube
        self._store = store
        self._prover = prover
        self._rules = rules
        self._namespace = namespace
        self._log = log

    async def after_fence(
        self, slot: Slot, answer: Fenced | Inconclusive, *, era: str
    ) -> Fenced | Inconclusive:
        """Clear the stamp if the Pod can be used again; the answer says whether it was cleared.

        `Inconclusive` if the Pod or its slot has changed in between. Errors of the Kubernetes API propagate.
        """
        if isinstance(answer, Inconclusive) or answer.answer is FenceAnswer.BUSY:
            return answer
        if not stays_warm(slot, self._rules):
            return answer
        pod = await self._prover.pod(slot.pod_name)
        if pod is None or pod.metadata.uid != slot.pod_uid or pod.metadata.deletion_timestamp:
            return answer
        later = Inconclusive(generation=slot.generation)
        if not await self._store.is_unchanged(slot, in_era=era):
            return later
        try:
            await self._kube.patch(
                PODS,
                slot.pod_name,
                {"metadata": {"labels": {POOL_OWNER: None}}},
                namespace=self._namespace,
                uid=slot.pod_uid,
                resource_version=pod.metadata.resource_version,
            )
        except Conflict:
            return later
        except (NotFound, Forbidden, Invalid) as error:
            self._log.warning("stamp not cleared", pod=slot.pod_name, error=str(error))
            return answer
        return msgspec.structs.replace(answer, cleared=True)
