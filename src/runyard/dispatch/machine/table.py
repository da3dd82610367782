"""Defines each state's deadline, the check that follows when it has passed, and the rules that guard transitions.

A slot does not just expire when it stays too long in a state: the sweeper asks a *question* (the Kubernetes API about
the Pod, GitHub about the runner or the job), and the answer is the event that changes the slot. Every state has a
deadline, so no slot can stay unnoticed.

`Rules` holds the guards of the machine as data. Production always runs with the defaults. The proof
changes one at a time (`dispatch.guards` has the values) and must then find a violation, which shows that
the guard is needed and that the proof would notice its loss. A guard only skips a step or changes a
value that production uses too: no code runs only where a guard is missing.
"""

from enum import StrEnum

import msgspec

from runyard.dispatch.machine.values import Fence, JobState, Slot, SlotState
from runyard.wire.reasons import Code


class Question(Code):
    """What the sweeper asks about an overdue slot; the slug is the action's name in metrics."""

    VERIFY_POD = "verify-pod", "verify whether its Pod exists"  # idle: gone, or only not polling?
    FENCE = "fence", "delete its runner at GitHub"  # offered, armed
    READ_JOB = "read-job", "read its job at GitHub"  # executing, job known
    READ_INTENDED_JOB = (  # executing, job unknown
        "read-intended-job",
        "read the job that it was meant for at GitHub, then delete its runner there",
    )
    REAP_POD = "reap-pod", "delete its Pod and verify that it is gone"  # draining
    NOTHING = "nothing", "nothing"  # closed and fenced


# A runner that waits polls again within this time: a poll is held for at most 25 s, with a few seconds between two. One
# that has not polled for longer, or whose poll was cut off, does not ask for work and is not idle.
ASKING_WITHIN = 29.0


class Deadlines(msgspec.Struct, frozen=True, kw_only=True):
    """How long a slot may stay in each state before its question is asked, in seconds."""

    idle: float = 90.0  # the longest time between two polls
    offered: float = 8.0  # less than the polling client's timeout of 10 s
    mint_over: float = (
        10.0  # GitHub ends a request after 10 s: a mint without an answer is over then
    )
    armed: float = 120.0  # a runner registers within this, or never
    executing: float = 900.0  # verified again, never ended because of its age
    executing_unknown: float = 60.0
    draining: float = 900.0
    fenced: float = 0.0  # nothing can run there any more: delete the Pod at once
    ask_again: float = (
        60.0  # inconclusive: a Pod that still terminates, a runner that is still busy
    )
    fence_again: float = 10.0  # GitHub did not answer
    job_waiting: float = 300.0  # a job that awaits an approval is read again
    job_queued: float = 3600.0  # a verified queued job is read again
    job_running: float = 900.0
    job_orphaned: float = 60.0  # a running job whose slot has closed


class Found(StrEnum):
    """How the slot of an ended job is found."""

    BY_RUNNER = "runner"  # GitHub named its runner
    BY_INTENT = "intent"  # the job was intended for it


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The guards of the machine. Only the proof and its tests ever use other values."""

    stamp_before_delivery: bool = True
    requeue_at_fence: bool = True
    read_before_second_offer: bool = True
    outage_grace: bool = True
    absent_needs_a_read: bool = True
    generation_fences_writes: bool = True
    warm_if_abandoned: bool = True  # only an offer that its mint gave up leaves its Pod warm
    requeue_displaced: bool = True  # a job whose runner got another one is requeued
    done_stays_done: bool = True
    idle_by_poll: tuple[SlotState, ...] = (SlotState.IDLE,)  # where a poll leaves the slot idle
    job_on_hold: JobState = JobState.WAITING  # the state of a job that awaits an approval
    end_spends: tuple[Found, ...] = (Found.BY_RUNNER,)  # the first slot found ran the job
    no_deadline_for: tuple[SlotState, ...] = ()


SHIPPED = Rules()


def stays_warm(slot: Slot, rules: Rules = SHIPPED) -> bool:
    """Whether the Pod of this slot can be used again once its runner is fenced and its stamp is cleared.

    The mint gave up the offer (its fence is due), so no JIT was ever delivered to the Pod. An offer that only passed
    its deadline does not show that: its mint may still be under way, or the commit that armed it may have been lost in
    a failover.
    """
    given_up = slot.fence is Fence.DUE or not rules.warm_if_abandoned
    return slot.state is SlotState.OFFERED and given_up


def question(slot: Slot) -> Question:
    """Return what to ask when this slot is overdue."""
    match slot.state:
        case SlotState.IDLE:
            return Question.VERIFY_POD
        case SlotState.OFFERED | SlotState.ARMED:
            return Question.FENCE
        case SlotState.EXECUTING:
            return Question.READ_INTENDED_JOB if slot.executing_job is None else Question.READ_JOB
        case SlotState.DRAINING:
            return Question.REAP_POD
        case SlotState.CLOSED:
            return Question.FENCE if slot.fence is Fence.DUE else Question.NOTHING


def time_limit(slot: Slot, deadlines: Deadlines) -> float:
    """Return how long a slot may stay in its state, in seconds."""
    match slot.state:
        case SlotState.IDLE:
            return deadlines.idle
        case SlotState.OFFERED:
            return deadlines.offered
        case SlotState.ARMED:
            return deadlines.armed
        case SlotState.EXECUTING:
            if slot.executing_job is None:
                return deadlines.executing_unknown
            return deadlines.executing
        case SlotState.DRAINING:
            return deadlines.draining
        case SlotState.CLOSED:
            return 0.0


def after_outage(state: SlotState, deadlines: Deadlines, rules: Rules = SHIPPED) -> float:
    """Return how long after an outage of the service slots in this state are not swept."""
    if not rules.outage_grace:
        return 0.0
    match state:
        case SlotState.IDLE:
            return deadlines.idle
        case SlotState.OFFERED:
            return deadlines.offered
        case SlotState.ARMED:
            return deadlines.armed
        case SlotState.EXECUTING:
            return deadlines.executing_unknown
        case SlotState.DRAINING:
            return deadlines.ask_again
        case SlotState.CLOSED:
            return 0.0  # its Pod is gone and needs no time to poll


def retry_delay(slot: Slot, deadlines: Deadlines) -> float:
    """Return how long to wait before the same question is asked again."""
    match slot.state:
        case SlotState.IDLE:
            return deadlines.idle
        case SlotState.OFFERED | SlotState.ARMED:
            return deadlines.fence_again
        case SlotState.EXECUTING | SlotState.DRAINING | SlotState.CLOSED:
            return deadlines.ask_again


def due(slot: Slot, *, overdue: bool, settled: bool, rules: Rules = SHIPPED) -> bool:
    """Whether the sweeper may ask its question now.

    `overdue`: the slot's deadline has passed. `settled`: the state's time limit has also passed since the service came
    back from its last outage. Both are computed by Postgres. Without the second, the first sweep after an outage would
    end every runner that could not poll during it.
    """
    if question(slot) is Question.NOTHING or slot.state in rules.no_deadline_for:
        return False
    return overdue and (settled or not rules.outage_grace)
