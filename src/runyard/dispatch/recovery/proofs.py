"""Proves that a Pod, by its uid, is gone.

Three things prove it: GET answers 404; GET answers with another uid under that name; the node agent has recorded the
end. Watch events, stop reports and lists without the Pod are hints that start this proof. An error proves nothing and
propagates.
"""

from runyard.kube.client import Kube
from runyard.kube.errors import NotFound
from runyard.kube.kinds import PODS
from runyard.kube.objects import Pod
from runyard.wire.reasons import Reason
from runyard.wire.reasons_dispatch import Why

_ENDS = {"Succeeded": Why.POD_SUCCEEDED, "Failed": Why.POD_FAILED}
ENDED = tuple(_ENDS)


class Prover:
    """Reads the proof from the Kubernetes API."""

    def __init__(self, kube: Kube, *, namespace: str) -> None:
        self._kube = kube
        self._namespace = namespace

    async def pod(self, pod_name: str) -> Pod | None:
        """The Pod of that name as it is now, or None for a 404."""
        try:
            return await self._kube.get_as(PODS, pod_name, Pod, namespace=self._namespace)
        except NotFound:
            return None

    async def gone(self, *, pod_name: str, pod_uid: str) -> Reason | None:
        """Return why the Pod is proven gone; None if it is not."""
        return reason_gone(await self.pod(pod_name), pod_uid=pod_uid)


def reason_gone(pod: Pod | None, *, pod_uid: str) -> Reason | None:
    """Return why the Pod that has this name now proves that the one with this uid is gone; None if it does not."""
    if pod is None:
        return Why.POD_NOT_FOUND.because()
    if pod.metadata.uid != pod_uid:
        return Why.POD_REPLACED.because()
    ended = _ENDS.get(pod.status.phase)
    return None if ended is None else ended.because()
