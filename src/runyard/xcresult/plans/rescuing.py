"""What is to be done about runs and deliveries that do not fit together.

The run's row is the truth and the queue only delivers, so there are few ways in which they can disagree, and each is
mended towards the row:

    processing, and its lease is over       → the attempt is lost; it goes back, or is given up
    queued, and nothing will deliver it     → a new delivery
    a delivery under way for another row    → retired: its worker is dead, or somebody tampered with the queue

A live lease is never touched, whatever the queue says: its worker writes by the row.
"""

from typing import Literal

import msgspec

from runyard.xcresult.plans.attempts import Decision, Outcome, Retrying, decide

LOST = "worker_lost"


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A run that a look found, as it was then."""

    run_id: str
    shard: int
    state: Literal["queued", "processing"]
    attempt: int
    claims: int
    spent: int
    owner: str = ""
    lapsed: bool = False
    """Its lease is over."""
    delivered: bool = False
    """The queue has a live job for it."""


class Rescue(msgspec.Struct, frozen=True, kw_only=True):
    """End an attempt for its worker; only if the row is still as it was seen."""

    run: Seen
    decision: Decision


class Redeliver(msgspec.Struct, frozen=True, kw_only=True):
    """Put a run into the queue again; only if it is still queued and has no live job."""

    run: Seen


Action = Rescue | Redeliver


def plan(runs: tuple[Seen, ...], *, settings: Retrying) -> tuple[Action, ...]:
    """What to do, in the order of what was seen."""
    actions: list[Action] = []
    for run in runs:
        if run.state == "processing" and run.lapsed:
            lost = Outcome(
                end="lost", code=LOST, reason=f"{run.owner} was not heard of while it had this run"
            )
            decision = decide(lost, claims=run.claims, spent=run.spent, settings=settings)
            actions.append(Rescue(run=run, decision=decision))
        elif run.state == "queued" and not run.delivered:
            actions.append(Redeliver(run=run))
    return tuple(actions)
