"""What follows from the end of an attempt.

An attempt ends in one of few ways, and each has one consequence:

    done       the results are written                                    → processed
    refused    the bundle is bad for good (a code of XcresultError)       → failed_processing, at once
    failed     anything that may go better next time                      → again after a delay, or given up
    late       longer than the limit                                      → the same
    lost       its worker was not heard of any more                       → again at once, or given up
    no_room    this machine has no room for it, another one may have      → again soon; costs no attempt
    released   the worker was told to end                                 → again at once; costs no attempt

Invariants:
- After `attempts` ends that cost one, and after `claims` claims however they ended, a run is given up: nothing goes
  round for ever.
- Only `done` is a success; a run that is given up says why, in the words of its last attempt.
"""

from typing import Literal

import msgspec

End = Literal["done", "refused", "failed", "late", "lost", "no_room", "released"]
Verdict = Literal["processed", "retry", "released", "lost", "failed"]

NO_SPACE = "no_space"
_FREE = ("no_room", "released")
_AT_ONCE = ("lost", "released")
_LONGER = 1.5  # a worker rests for longer than the run does


class Retrying(msgspec.Struct, frozen=True, kw_only=True):
    """What an attempt's end leads to."""

    attempts: int = 5
    """How many attempts may fail before the run is given up."""
    delays: tuple[float, ...] = (30.0, 120.0, 300.0, 600.0)
    """Seconds after the first failure, the second, …; the last one stands for all that follow."""
    claims: int = 20
    """How many claims in all, also those that were given back unused: nothing goes round for ever."""
    elsewhere: float = 30.0
    """Seconds until a run that this machine had no room for is offered again."""
    rests: int = 3
    """How often a run may make a worker rest that had no room for it."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt ended."""

    end: End
    code: str = ""
    reason: str = ""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of the run."""

    verdict: Verdict
    """`retry`, `released` and `lost` put it back into the queue; the others are the end of it."""
    delay: float = 0.0
    spent: int = 0
    """How many attempts are used up now."""
    code: str = ""
    reason: str = ""

    @property
    def final(self) -> bool:
        """Nothing more is to be done with the run."""
        return self.verdict in ("processed", "failed")


def decide(outcome: Outcome, *, claims: int, spent: int, settings: Retrying) -> Decision:
    """What becomes of a run whose claim ended so: the `claims`-th one, with `spent` attempts used up before."""
    if outcome.end == "done":
        return Decision(verdict="processed", spent=spent + 1)
    used = spent + (outcome.end not in _FREE)
    over = outcome.end == "refused" or used >= settings.attempts or claims >= settings.claims
    return Decision(
        verdict="failed" if over else _BACK[outcome.end],
        delay=0.0 if over else _delay(outcome.end, used, settings),
        spent=used,
        code=outcome.code,
        reason=outcome.reason,
    )


def rest(decision: Decision, *, claims: int, settings: Retrying) -> float:
    """Seconds for which a worker takes nothing after such an end, so that another one gets the run that it has no room
    for. A few times only: a run that fits nowhere, or says so of itself, keeps nobody from working.
    """
    if decision.final or decision.code != NO_SPACE or claims > settings.rests:
        return 0.0
    return settings.elsewhere * _LONGER


_BACK: dict[str, Verdict] = {
    "failed": "retry",
    "late": "retry",
    "no_room": "released",
    "released": "released",
    "lost": "lost",
}


def _delay(end: End, used: int, settings: Retrying) -> float:
    if end in _AT_ONCE:
        return 0.0
    if end == "no_room":
        return settings.elsewhere
    return settings.delays[min(used, len(settings.delays)) - 1]
