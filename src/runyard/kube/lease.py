"""Renews a Node's lease, the heartbeat that Kubernetes uses to detect dead hosts.

A renewal is one request in the usual case. It reads nothing before, so a slow read can never delay a
heartbeat, and it is idempotent, so an unknown outcome is simply followed by the next renewal.
"""

from typing import Any

from runyard.kube.client import Kube
from runyard.kube.errors import AlreadyExists, NotFound
from runyard.kube.kinds import LEASES
from runyard.wire.instants import to_rfc3339_micro


async def renew_lease(
    kube: Kube, *, name: str, namespace: str, holder: str, duration: int, now: float
) -> None:
    """Renew the lease of `holder` at `now` for `duration` seconds."""
    stamp = to_rfc3339_micro(now)
    spec: dict[str, Any] = {
        "holderIdentity": holder,
        "leaseDurationSeconds": duration,
        "renewTime": stamp,
    }
    try:
        await kube.patch(LEASES, name, {"spec": spec}, namespace=namespace)
    except NotFound:
        metadata = {"name": name, "namespace": namespace}
        fresh = {"metadata": metadata, "spec": {**spec, "acquireTime": stamp}}
        try:
            await kube.create(LEASES, fresh, namespace=namespace)
        except (
            AlreadyExists
        ):  # created between the two requests, for example by our own lost answer
            await kube.patch(LEASES, name, {"spec": spec}, namespace=namespace)
