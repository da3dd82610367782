"""Decides how to repair runs and queue deliveries that disagree.

The run's row is authoritative; the queue only delivers. So few disagreements are possible, and each is repaired
according to the row:

    processing, and its lease has expired   → the attempt is lost; the run is queued again or given up
    queued, and no delivery is pending      → a new delivery
    a delivery in progress for another row  → ended: its worker is dead, or the queue was changed by hand

A run with a valid lease is never changed, whatever the state of the queue: its worker is still writing to the row.
"""

from typing import Literal

import msgspec

from runyard.wire.reasons_results import Unprocessed
from runyard.xcresult.plans.attempts import Decision, Outcome, Retrying, decide


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it was when it was read."""

    run_id: str
    shard: int
    state: Literal["queued", "processing"]
    attempt: int
    claims: int
    spent: int
    owner: str = ""
    lapsed: bool = False
    """Whether its lease has expired."""
    delivered: bool = False
    """Whether the queue has a pending job for it."""


class Rescue(msgspec.Struct, frozen=True, kw_only=True):
    """End the attempt of a dead worker, if the row has not changed since it was read."""

    run: Seen
    decision: Decision


class Redeliver(msgspec.Struct, frozen=True, kw_only=True):
    """Queue a run again, if it is still queued and has no pending job."""

    run: Seen


Action = Rescue | Redeliver


def plan(runs: tuple[Seen, ...], *, settings: Retrying) -> tuple[Action, ...]:
    """The actions, in the order of the runs."""
    actions: list[Action] = []
    for run in runs:
        if run.state == "processing" and run.lapsed:
            lost = Outcome(end="lost", reason=Unprocessed.WORKER_LOST.because(owner=run.owner))
            decision = decide(lost, claims=run.claims, spent=run.spent, settings=settings)
            actions.append(Rescue(run=run, decision=decision))
        elif run.state == "queued" and not run.delivered:
            actions.append(Redeliver(run=run))
    return tuple(actions)
