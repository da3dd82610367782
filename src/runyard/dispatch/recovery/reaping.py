"""Deleting a Pod safely: the Pod and its ServiceAccount as one unit, by uid, and then the proof.

Only a draining slot's Pod is ever deleted here: its job is over or its runner was fenced, so
nothing can be running in it. The uid precondition makes a stale decision a no-op. A Pod that is
gone already still has its ServiceAccount deleted.
"""

from contextlib import suppress

from runyard.dispatch.machine.events import Inconclusive, PodGone
from runyard.dispatch.machine.values import Slot
from runyard.dispatch.recovery.proofs import Prover
from runyard.kube.client import Kube
from runyard.kube.errors import Conflict, NotFound
from runyard.kube.kinds import PODS, SERVICE_ACCOUNTS


class Reaper:
    """Deletes what must go."""

    def __init__(self, kube: Kube, prover: Prover, *, namespace: str) -> None:
        self._kube = kube
        self._prover = prover
        self._namespace = namespace

    async def reap(self, slot: Slot) -> PodGone | Inconclusive:
        """Delete the Pod and its ServiceAccount, and say whether the Pod is proven gone."""
        why = await self._prover.gone(pod_name=slot.pod_name, pod_uid=slot.pod_uid)
        if why != "another uid under that name":
            await self._delete_unit(slot)
        why = why or await self._prover.gone(pod_name=slot.pod_name, pod_uid=slot.pod_uid)
        return PodGone(why=why) if why else Inconclusive(generation=slot.generation)

    async def _delete_unit(self, slot: Slot) -> None:
        with suppress(NotFound, Conflict):  # gone, or another incarnation: not ours to delete
            await self._kube.delete(
                PODS, slot.pod_name, namespace=self._namespace, uid=slot.pod_uid
            )
        with suppress(NotFound):
            await self._kube.delete(SERVICE_ACCOUNTS, slot.pod_name, namespace=self._namespace)
