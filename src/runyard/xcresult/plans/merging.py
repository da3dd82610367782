"""Merges the shards of a run into one state and one status.

- State: while a shard awaits its upload, is queued or is being processed, so is the run. Otherwise the run is
  `failed_processing` if a shard is, else `processed`.
- Status: the run failed if a shard failed, was skipped if all were, and has no status until a shard has one.
"""

from collections.abc import Sequence
from typing import Literal

State = Literal["awaiting_upload", "queued", "processing", "processed", "failed_processing"]
Status = Literal["", "success", "failure", "skipped"]

_SLOWEST: tuple[State, ...] = (
    "processing",
    "queued",
    "awaiting_upload",
    "failed_processing",
    "processed",
)


def state_of(states: Sequence[State]) -> State:
    """The processing state of a run with these shards."""
    return next(state for state in _SLOWEST if state in states)


def status_of(statuses: Sequence[Status]) -> Status:
    """The test status of a run with these shards."""
    present = {status for status in statuses if status}
    for status in ("failure", "success", "skipped"):
        if status in present:
            return status
    return ""
