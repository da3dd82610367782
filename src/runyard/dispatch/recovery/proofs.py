"""Is this Pod incarnation gone? Only three things prove it.

GET answers 404; GET answers with another uid under that name; or the node agent has recorded the
end. Everything else, a watch event, a stop report, a list without the Pod, is a hint that makes
somebody ask here. An error proves nothing and propagates.
"""

from runyard.kube.client import Kube
from runyard.kube.errors import NotFound
from runyard.kube.kinds import PODS
from runyard.kube.objects import Pod

ENDED = ("Succeeded", "Failed")
ANOTHER = "another uid under that name"


class Prover:
    """Asks the Kubernetes API for the proof."""

    def __init__(self, kube: Kube, *, namespace: str) -> None:
        self._kube = kube
        self._namespace = namespace

    async def look(self, pod_name: str) -> Pod | None:
        """The Pod of that name as it is now, or None for a 404."""
        try:
            return await self._kube.get_as(PODS, pod_name, Pod, namespace=self._namespace)
        except NotFound:
            return None

    async def gone(self, *, pod_name: str, pod_uid: str) -> str:
        """Why the incarnation is proven gone, or an empty text if it is not."""
        return why_gone(await self.look(pod_name), pod_uid=pod_uid)


def why_gone(pod: Pod | None, *, pod_uid: str) -> str:
    """Why what was found under a Pod's name proves that this incarnation is gone; empty if it does not."""
    if pod is None:
        return "Pod is gone (404)"
    if pod.metadata.uid != pod_uid:
        return ANOTHER
    if pod.status.phase in ENDED:
        return f"the agent recorded the end: {pod.status.phase}"
    return ""
