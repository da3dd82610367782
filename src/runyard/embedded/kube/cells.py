"""Cells of tables: from an object that may look like anything to a short word for people. Nothing here raises."""

from typing import Any

from runyard.embedded.kube.resources import Object
from runyard.wire.instants import from_rfc3339

Cell = str | int

NONE = "<none>"
UNKNOWN = "<unknown>"
_ROLE = "node-role.kubernetes.io/"
_FINISHED = ("Succeeded", "Failed")
_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400
# From this many seconds on: the large unit, and the small one beside it (0: none).
_SCALE = (
    (8 * _YEAR, _YEAR, 0),
    (2 * _YEAR, _YEAR, _DAY),
    (8 * _DAY, _DAY, 0),
    (2 * _DAY, _DAY, _HOUR),
    (8 * _HOUR, _HOUR, 0),
    (3 * _HOUR, _HOUR, _MINUTE),
    (10 * _MINUTE, _MINUTE, 0),
    (2 * _MINUTE, _MINUTE, 1),
)
_UNITS = {_YEAR: "y", _DAY: "d", _HOUR: "h", _MINUTE: "m", 1: "s"}


# ---- reading what may not be there


def at(value: Any, *path: str) -> Any:
    """What lies at that path, or None."""
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def items(value: Any, *path: str) -> list[Object]:
    """The objects in the list at that path."""
    found = at(value, *path)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def text(value: Any, otherwise: str = "") -> str:
    """A text, or what to show in its place."""
    return value if isinstance(value, str) and value else otherwise


def count(value: Any) -> int:
    """A number that a table may carry; 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def size(value: Any) -> int:
    """How many entries a map has."""
    return len(value) if isinstance(value, dict) else 0


# ---- time


def age(since: Any, now: float) -> str:
    """How long ago, as kubectl writes it: `45s`, `3m20s`, `2d4h`."""
    try:
        return duration(now - from_rfc3339(since))
    except (TypeError, ValueError, AttributeError, OverflowError):
        return UNKNOWN


def duration(seconds: float) -> str:
    """A length of time, with two units at most, coarser the longer it is."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    for least, large, small in _SCALE:
        if whole >= least:
            head, rest = divmod(whole, large)
            tail = rest // small if small else 0
            return f"{head}{_UNITS[large]}" + (f"{tail}{_UNITS[small]}" if tail else "")
    return f"{max(whole, 0)}s"


# ---- Pods


def ready_containers(pod: Object) -> int:
    """How many containers run and are ready."""
    return sum(
        1
        for item in items(pod, "status", "containerStatuses")
        if item.get("ready") is True and at(item, "state", "running") is not None
    )


def pod_status(pod: Object) -> str:
    """One word on what a Pod is up to: the deepest reason that is known."""
    phase = text(at(pod, "status", "phase"), "Unknown")
    found = text(at(pod, "status", "reason"), phase)
    running = False
    for item in reversed(items(pod, "status", "containerStatuses")):
        found = _container_reason(item) or found
        running = running or at(item, "state", "running") is not None
    if found == "Completed" and running:
        found = "Running" if ready_containers(pod) else "NotReady"
    if at(pod, "metadata", "deletionTimestamp") and phase not in _FINISHED:
        return "Unknown" if at(pod, "status", "reason") == "NodeLost" else "Terminating"
    return found


def _container_reason(status: Object) -> str:
    ended = at(status, "state", "terminated")
    if not isinstance(ended, dict):
        return text(at(status, "state", "waiting", "reason"))
    if reason := text(ended.get("reason")):
        return reason
    signal = count(ended.get("signal"))
    return f"Signal:{signal}" if signal else f"ExitCode:{count(ended.get('exitCode'))}"


def restarts(pod: Object, now: float) -> str:
    """How often containers began again, and when the last one did."""
    statuses = items(pod, "status", "containerStatuses")
    total = sum(count(item.get("restartCount")) for item in statuses)
    ends = [text(at(item, "lastState", "terminated", "finishedAt")) for item in statuses]
    last = max(ends, default="")
    return f"{total} ({age(last, now)} ago)" if total and last else str(total)


# ---- Nodes


def node_status(node: Object) -> str:
    """Ready or not, and whether new Pods are welcome."""
    ready = next(
        (item for item in items(node, "status", "conditions") if item.get("type") == "Ready"), None
    )
    if ready is None:
        found = "Unknown"
    else:
        found = "Ready" if ready.get("status") == "True" else "NotReady"
    return f"{found},SchedulingDisabled" if at(node, "spec", "unschedulable") is True else found


def node_roles(node: Object) -> str:
    """The roles that a node's labels name."""
    labels = at(node, "metadata", "labels")
    keys = [key for key in labels if isinstance(key, str)] if isinstance(labels, dict) else []
    roles = sorted(key[len(_ROLE) :] for key in keys if key.startswith(_ROLE))
    return ",".join(role for role in roles if role) or NONE


def address(node: Object, kind: str) -> str:
    """The first address of that kind."""
    found = (item for item in items(node, "status", "addresses") if item.get("type") == kind)
    return text(at(next(found, None), "address"), NONE)


# ---- Events


def event_source(event: Object) -> str:
    """Who tells: the component, and the host it runs on."""
    component = text(at(event, "source", "component")) or text(event.get("reportingComponent"))
    host = text(at(event, "source", "host")) or text(event.get("reportingInstance"))
    return f"{component}, {host}" if component and host else component or host
