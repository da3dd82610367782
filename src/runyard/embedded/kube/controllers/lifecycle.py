"""Decides the conditions of a silent Node, and how fast the Pods of lost Nodes may be evicted. Pure.

After the grace period without a heartbeat every condition that the agent reports becomes Unknown. Eviction is slower:
when many Nodes are silent together, this server is likely to be disconnected, and evicting all Pods would turn a short
interruption into an outage. So the Pods of one Node at a time are evicted, with a pause in between; none are evicted
when at least three silent Nodes are the majority of a small fleet, nor when all Nodes are silent.
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
_UNHEALTHY = 0.55  # a fleet with this share of lost Nodes counts as disrupted
_MAX_LOST_NORMAL = 2  # so many lost Nodes never count as a disruption
_LARGE_FLEET = 50  # Nodes; in a smaller fleet a disruption stops evictions
_PAUSE, _LONG_PAUSE = 10.0, 100.0


def silenced(conditions: Sequence[Object], *, created: str, now: str) -> list[Object]:
    """Returns the conditions of a Node whose grace period is over."""
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
    return "partial" if lost > _MAX_LOST_NORMAL and lost / total >= _UNHEALTHY else "normal"


def pause(state: Disruption, total: int) -> float | None:
    """Seconds between two Nodes whose Pods are evicted; None: no eviction."""
    if state == "normal":
        return _PAUSE
    return _LONG_PAUSE if state == "partial" and total > _LARGE_FLEET else None
