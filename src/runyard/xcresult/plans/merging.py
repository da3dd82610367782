"""A sharded run as one: how far it is and how it went, from its shards.

- It is as far as its slowest shard: while one is awaited, waits or is being processed, so is the run. Then it failed to
  be processed if one did, and else it is processed.
- It failed if a shard did; it was skipped if all of them were; until one says something it says nothing.
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
    """How far a run with these shards is."""
    return next(state for state in _SLOWEST if state in states)


def status_of(statuses: Sequence[Status]) -> Status:
    """How a run with these shards went."""
    said = {status for status in statuses if status}
    for status in ("failure", "success", "skipped"):
        if status in said:
            return status
    return ""
