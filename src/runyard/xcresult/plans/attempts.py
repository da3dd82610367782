"""Decides what happens to a run when an attempt to process it ends.

An attempt ends in one of these ways, and each has one consequence:

    done       the results are written                                    → processed
    refused    the bundle can never be read (a code of XcresultError)     → failed_processing, at once
    exhausted  reading it used up its processor time or memory            → failed_processing, at once
    failed     an error that may not happen again                         → retried after a delay, or given up
    late       processing took longer than the limit                      → the same
    lost       the worker stopped sending heartbeats                      → retried at once, or given up
    no_space   this machine has too little disk or memory                 → retried soon; costs no attempt
    released   the worker was asked to stop                               → retried at once; costs no attempt

Invariants:
- A run is given up after `attempts` ends that cost an attempt, and after `claims` claims however they ended: no run is
  retried forever.
- An upload that uses up what one attempt may take does so only once: a retry would take as much again, and other runs
  would wait for it. Whoever gives the processor more can have the run processed again.
- Only `done` is a success; a run that is given up has the reason of its last attempt.
"""

from typing import Literal

import msgspec

from runyard.wire.reasons import Reason
from runyard.wire.reasons_results import LACKS_SPACE

End = Literal["done", "refused", "exhausted", "failed", "late", "lost", "no_space", "released"]
Verdict = Literal["processed", "retry", "released", "lost", "failed"]

_FINAL = ("refused", "exhausted")
_FREE = ("no_space", "released")
_AT_ONCE = ("lost", "released")
_LONGER = 1.5  # a worker pauses for longer than the run waits


class Retrying(msgspec.Struct, frozen=True, kw_only=True):
    """When runs are retried and when they are given up."""

    attempts: int = 5
    """Number of failed attempts after which a run is given up."""
    delays: tuple[float, ...] = (30.0, 120.0, 300.0, 600.0)
    """Seconds before the retry after the first failure, the second, …; the last value applies to all that follow."""
    claims: int = 20
    """Largest number of claims in total, including those given back unused, so that no run is retried forever."""
    elsewhere: float = 30.0
    """Seconds before a run that did not fit on a machine is offered again."""
    rests: int = 3
    """How many times one run may make a worker without space for it pause."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt ended."""

    end: End
    reason: Reason | None = None
    """Why there are no results; its code is one of `Unprocessed`."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to the run."""

    verdict: Verdict
    """`retry`, `released` and `lost` put the run back into the queue; the other verdicts are final."""
    delay: float = 0.0
    spent: int = 0
    """Number of attempts used so far, including this one."""
    reason: Reason | None = None

    @property
    def code(self) -> str:
        """The slug of its reason; empty if it has none."""
        return "" if self.reason is None else self.reason.slug

    @property
    def final(self) -> bool:
        """Whether the run will not be processed again."""
        return self.verdict in ("processed", "failed")


def decide(outcome: Outcome, *, claims: int, spent: int, settings: Retrying) -> Decision:
    """Decide what happens to a run after its `claims`-th claim ended, with `spent` attempts used before."""
    if outcome.end == "done":
        return Decision(verdict="processed", spent=spent + 1)
    used = spent + (outcome.end not in _FREE)
    over = outcome.end in _FINAL or used >= settings.attempts or claims >= settings.claims
    return Decision(
        verdict="failed" if over else _BACK[outcome.end],
        delay=0.0 if over else _delay(outcome.end, used, settings),
        spent=used,
        reason=outcome.reason,
    )


def pause_after(decision: Decision, *, claims: int, settings: Retrying) -> float:
    """Seconds for which a worker claims no run after this decision, so that another worker gets a run that did not fit.

    This happens a few times only: a run that fits on no machine must not stop the workers from processing others.
    """
    if decision.final or decision.code not in LACKS_SPACE or claims > settings.rests:
        return 0.0
    return settings.elsewhere * _LONGER


_BACK: dict[str, Verdict] = {
    "failed": "retry",
    "late": "retry",
    "no_space": "released",
    "released": "released",
    "lost": "lost",
}


def _delay(end: End, used: int, settings: Retrying) -> float:
    if end in _AT_ONCE:
        return 0.0
    if end == "no_space":
        return settings.elsewhere
    return settings.delays[min(used, len(settings.delays)) - 1]
