"""How a silent Node is judged, and how fast the Pods of lost Nodes may be driven away. Pure.

A Node that has said nothing for its grace becomes Unknown in every condition that its agent reports. Its Pods
are another matter: when many Nodes fall silent together, the fault is likely on this side of the wire, and
whoever drives all Pods away then has made an outage out of a hiccup. So one Node at a time loses its Pods,
with a pause in between; from three silent Nodes that are the larger part of a small fleet nobody does, and
when none is left nobody does either.
"""

from collections.abc import Sequence
from typing import Literal

from runyard.embedded.kube.resources import Object

Mood = Literal["normal", "partial", "full"]

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
    told = [
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
    return told + [
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


def mood(ready: int, total: int) -> Mood:
    """How a fleet is, by how many of its Nodes are Ready."""
    lost = total - ready
    if total and not ready:
        return "full"
    return "partial" if lost > _FEW and lost / total >= _UNHEALTHY else "normal"


def pause(state: Mood, total: int) -> float | None:
    """Seconds between two Nodes that lose their Pods; None: nobody does."""
    if state == "normal":
        return _PAUSE
    return _LONG_PAUSE if state == "partial" and total > _LARGE else None
