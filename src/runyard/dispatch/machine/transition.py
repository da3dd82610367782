"""Decides what an event does to slots and jobs: the one transition function of dispatch.

`transition(view, event, ctx)` takes the rows that the event concerns and returns the rows to write,
or a refusal with its reason. It is pure: the store loads and locks the rows, calls it, and writes the result; the
exhaustive proof and the simulator use the same function. `answer_poll` derives the answer to a poll from a slot.
"""

from enum import StrEnum
from typing import assert_never

import msgspec

from runyard.dispatch.machine import endings, facts, offering
from runyard.dispatch.machine.changes import Context
from runyard.dispatch.machine.events import (
    Adopt,
    Arm,
    Event,
    Fenced,
    Inconclusive,
    JobEnded,
    JobFact,
    JobQueued,
    JobStarted,
    JobStillQueued,
    JobWaiting,
    MintAbandoned,
    MintFailed,
    Offer,
    PodGone,
    Polled,
    Retire,
)
from runyard.dispatch.machine.values import Decision, Slot, SlotState, View


def transition(view: View, event: Event, ctx: Context) -> Decision:
    """Decide what an event does."""
    match event:
        case Polled():
            return offering.polled(view, event, ctx)
        case Offer():
            return offering.offer(view, event, ctx)
        case Adopt():
            return offering.adopt(view, event, ctx)
        case Arm():
            return offering.arm(view, event, ctx)
        case MintFailed():
            return offering.mint_failed(view, event, ctx)
        case MintAbandoned():
            return offering.mint_abandoned(view, event, ctx)
        case Fenced():
            return endings.fenced(view, event, ctx)
        case Inconclusive():
            return endings.inconclusive(view, event, ctx)
        case Retire():
            return endings.retire(view, event, ctx)
        case PodGone():
            return endings.pod_gone(view, event, ctx)
        case JobWaiting() | JobQueued() | JobStarted() | JobEnded() | JobStillQueued():
            return _fact(view, event, ctx)
        case _:
            assert_never(event)


def _fact(view: View, event: JobFact, ctx: Context) -> Decision:
    match event:
        case JobWaiting():
            return facts.job_waiting(view, event, ctx)
        case JobQueued():
            return facts.job_queued(view, event, ctx)
        case JobStarted():
            return facts.job_started(view, event, ctx)
        case JobEnded():
            return facts.job_ended(view, event, ctx)
        case JobStillQueued():
            return facts.job_still_queued(view, event, ctx)
        case _:
            assert_never(event)


class PollVerdict(StrEnum):
    """What a polling Pod should do."""

    WAIT = "wait"
    RUN = "run"
    DRAIN = "drain"


class PollAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a poll, with the sealed JIT if there is one to deliver."""

    verdict: PollVerdict
    jit: bytes | None = None


def answer_poll(slot: Slot) -> PollAnswer:
    """Return the answer to a poll: idle and offered wait, armed gets its JIT (at every poll), others drain."""
    match slot.state:
        case SlotState.IDLE | SlotState.OFFERED:
            return PollAnswer(verdict=PollVerdict.WAIT)
        case SlotState.ARMED:
            return PollAnswer(verdict=PollVerdict.RUN, jit=slot.jit)
        case SlotState.EXECUTING | SlotState.DRAINING | SlotState.CLOSED:
            return PollAnswer(verdict=PollVerdict.DRAIN)
