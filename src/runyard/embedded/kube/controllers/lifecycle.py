"""Decides how a silent Node is marked, and how fast the Pods of lost Nodes may be evicted. Pure.

A Node without a heartbeat for its grace becomes Unknown in every condition that its agent reports. Its Pods are
treated with more care: when many Nodes are silent together, the fault is likely on this side of the network, and
evicting all Pods would turn a short interruption into an outage. So the Pods of one Node at a time are evicted,
with a pause in between; none are evicted when at least three silent Nodes are the majority of a small fleet, nor
when all Nodes are silent.
"""

from collections.abc import Sequence
from typing import Literal

from runyard.embedded.kube.resources import Object

Disruption = Literal["normal", "partial", "full"]

SILENT, NEVER = "NodeStatusUnknown", "NodeStatusNeverUpdated"
_WHY = {
    SILENT: "Kubelet stopped posting node status.",
    NEVER: "Kubelet never posted node status.",
}
_REPORTED = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
_UNHEALTHY = 0.55  # from this share on a fleet counts as disrupted
_FEW = 2  # so many lost Nodes are never a disruption
_LARGE = 50  # Nodes; a smaller fleet stops altogether
_PAUSE, _LONG_PAUSE = 10.0, 100.0


def silenced(conditions: Sequence[Object], *, created: str, now: str) -> list[Object]:
    """The conditions of a Node that has been silent for too long."""
    given = [
        {
            **item,
            "status": "Unknown",
            "reason": SILENT,
            "message": _WHY[SILENT],
            "lastTransitionTime": now,
        }
        if item["type"] in _REPORTED and item["status"] != "Unknown"
        else item
        for item in conditions
    ]
    known = [item["type"] for item in conditions]
    return given + [
        {
            "type": kind,
            "status": "Unknown",
            "lastHeartbeatTime": created,
            "lastTransitionTime": now,
            "reason": NEVER,
            "message": _WHY[NEVER],
        }
        for kind in _REPORTED
        if kind not in known
    ]


def disruption(ready: int, total: int) -> Disruption:
    """The state of a fleet, by how many of its Nodes are Ready."""
    lost = total - ready
    if total and not ready:
        return "full"
    return "partial" if lost > _FEW and lost / total >= _UNHEALTHY else "normal"


def pause(state: Disruption, total: int) -> float | None:
    """Seconds between two Nodes whose Pods are evicted; None: no eviction."""
    if state == "normal":
        return _PAUSE
    return _LONG_PAUSE if state == "partial" and total > _LARGE else None
