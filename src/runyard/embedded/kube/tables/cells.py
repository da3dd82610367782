"""Renders cells of tables from objects of any shape. Nothing here raises."""

from typing import Any

from runyard.embedded.kube.resources import Object
from runyard.wire.instants import from_rfc3339

Cell = str | int | float | bool | None

NONE = "<none>"
UNKNOWN = "<unknown>"
_ROLE = "node-role.kubernetes.io/"
_NAMED_ROLE = "kubernetes.io/role"
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


# ---- reading optional values


def at(value: Any, *path: str) -> Any:
    """The value at that path, or None."""
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def items(value: Any, *path: str) -> list[Object]:
    """The objects in the list at that path."""
    found = at(value, *path)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def text(value: Any, otherwise: str = "") -> str:
    """A text, or its replacement."""
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


# ---- Nodes


def node_status(node: Object) -> str:
    """Ready or not, and whether it is cordoned."""
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
    roles = [key[len(_ROLE) :] for key in keys if key.startswith(_ROLE)]
    roles.append(text(at(labels, _NAMED_ROLE)))
    return ",".join(sorted(role for role in roles if role)) or NONE


def address(node: Object, kind: str) -> str:
    """The first address of that kind."""
    found = (item for item in items(node, "status", "addresses") if item.get("type") == kind)
    return text(at(next(found, None), "address"), NONE)


def kernel(info: Any) -> str:
    """The version of a node's kernel, and its architecture, if known."""
    version, built = text(at(info, "kernelVersion"), UNKNOWN), text(at(info, "architecture"))
    return f"{version} ({built})" if built else version


# ---- Events


def event_source(event: Object) -> str:
    """The source: the component, and the host it runs on."""
    component = text(at(event, "source", "component")) or text(event.get("reportingComponent"))
    host = text(at(event, "source", "host")) or text(event.get("reportingInstance"))
    return f"{component}, {host}" if component and host else component or host


# ---- access


def role(binding: Object) -> str:
    """What a binding grants."""
    return f"{text(at(binding, 'roleRef', 'kind'))}/{text(at(binding, 'roleRef', 'name'))}"


def subjects(binding: Object, kind: str) -> str:
    """The subjects of a binding, of one kind."""
    found = [item for item in items(binding, "subjects") if item.get("kind") == kind]
    if kind == "ServiceAccount":
        return ", ".join(
            f"{text(item.get('namespace'))}/{text(item.get('name'))}" for item in found
        )
    return ", ".join(text(item.get("name")) for item in found)


def requested(request: Object) -> str:
    """The requested duration of a certificate."""
    seconds = at(request, "spec", "expirationSeconds")
    return duration(seconds) if isinstance(seconds, int) else NONE


def decision(request: Object) -> str:
    """The state of a certificate request."""
    found = [item.get("type") for item in items(request, "status", "conditions")]
    words = [word for word in ("Approved", "Denied", "Failed") if word in found]
    shown = ",".join(words) or "Pending"
    return f"{shown},Issued" if at(request, "status", "certificate") else shown
