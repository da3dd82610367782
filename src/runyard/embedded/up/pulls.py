"""Reports the progress of image pulls while `runyard up` runs: a first pull of tens of gigabytes takes a while.

The agents publish the progress in the status of the Pods that wait for the image; this reads it there, host by host.
"""

from collections.abc import Callable

from runyard.clock import Clock
from runyard.http.errors import TransportError
from runyard.kube.client import Kube
from runyard.kube.errors import KubeError
from runyard.kube.kinds import PODS
from runyard.kube.objects import Pod
from runyard.wire import names

_EVERY = 5.0


def pulls_of(pods: tuple[Pod, ...]) -> dict[tuple[str, str], str]:
    """What each host says about each image that it pulls, by host and image."""
    found: dict[tuple[str, str], str] = {}
    for pod in pods:
        for status in pod.status.container_statuses:
            waiting = status.state.waiting
            if waiting is not None and waiting.reason == names.WAITING_PULL and pod.spec.containers:
                found[pod.spec.node_name, pod.spec.containers[0].image] = waiting.message
    return found


async def watch(kube: Kube, *, clock: Clock, report: Callable[[str], None]) -> None:
    """Report each step of each pull, and its end, until cancelled."""
    before: dict[tuple[str, str], str] = {}
    while True:
        await clock.sleep(_EVERY)
        try:
            listed = await kube.list(PODS, namespace=names.RUNNERS_NAMESPACE)
        except (KubeError, TransportError, OSError):
            continue  # the API is being restarted
        now = pulls_of(tuple(kube.reader(Pod).of(raw) for raw in listed.items))
        for host, image in before:
            if (host, image) not in now:
                report(f"{host} has finished pulling {image}, or gave up: see 'runyard status'")
        for (host, image), progress in now.items():
            if before.get((host, image)) != progress:
                report(f"{host} pulls {image}" + (f": {progress}" if progress else ""))
        before = now
