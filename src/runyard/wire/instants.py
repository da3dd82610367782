"""Formats and parses RFC 3339 instants, as Kubernetes and GitHub write them.

Pure functions of their arguments; the current time comes from `runyard.clock`.
"""

from datetime import UTC, datetime


def to_rfc3339(now: float) -> str:
    """Write an instant the way Kubernetes and GitHub do: `2026-01-31T12:00:00Z`, whole seconds."""
    return datetime.fromtimestamp(int(now), UTC).isoformat()[:19] + "Z"


def to_rfc3339_micro(now: float) -> str:
    """Write an instant with microseconds, as Kubernetes leases require."""
    return datetime.fromtimestamp(now, UTC).isoformat(timespec="microseconds")[:26] + "Z"


def from_rfc3339(text: str) -> float:
    """Read an instant written by Kubernetes or GitHub; raises `ValueError` on anything else."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"not an RFC 3339 instant (no zone): {text!r}")
    return moment.timestamp()
