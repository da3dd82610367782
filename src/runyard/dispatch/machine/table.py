"""The transition table: each state's deadline and its one timeout edge, and the rules that guard them.

A slot that stays too long in a state does not simply lapse: the sweeper asks a *question* of
whoever knows (the Kubernetes API about the Pod, GitHub about the runner or the job) and the answer
is the event that moves it. No state is without a deadline, so no slot can be forgotten.

`Rules` names the guards of the machine one by one. Production always runs with all of them; the
proof switches each off in turn and must then find a violation, which shows that the guard is needed
and that the proof would notice its loss.
"""

from enum import StrEnum

import msgspec

from runyard.dispatch.machine.values import CLAIMS, Fence, Slot, SlotState


class Question(StrEnum):
    """What the sweeper asks about an overdue slot."""

    LOOK_AT_POD = "look at the Pod"  # idle: gone, or merely silent?
    FENCE = "fence"  # offered, armed: delete the runner at GitHub
    ASK_JOB = "ask about the job"  # executing, job known: what became of it?
    ASK_INTENDED = "ask about the intended job, then fence"  # executing, job unknown
    REAP = "reap the Pod"  # draining: delete the Pod safely, then prove that it is gone
    NOTHING = "nothing"  # closed and fenced: at rest


class Deadlines(msgspec.Struct, frozen=True, kw_only=True):
    """How long a slot may stay in each state before its question is asked, in seconds."""

    idle: float = 90.0  # a beat
    offered: float = 8.0  # under the polling client's own 10 s
    armed: float = 120.0  # a runner registers within this, or never
    executing: float = 900.0  # re-verified, never killed by age
    executing_unknown: float = 60.0
    draining: float = 900.0
    fenced: float = 0.0  # nothing can run there any more: reap at once
    ask_again: float = 60.0  # the question led nowhere: a Pod that lingers, a runner still busy
    fence_again: float = 10.0  # GitHub could not be asked
    job_waiting: float = 300.0  # a job that awaits an approval is looked at again
    job_queued: float = 3600.0  # a verified queued job is looked at again
    job_running: float = 900.0
    job_orphaned: float = 60.0  # a running job whose slot has closed


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The guards, by name. Only the proof and its tests ever switch one off."""

    stamp_before_delivery: bool = True
    requeue_at_fence: bool = True
    read_before_second_offer: bool = True
    outage_grace: bool = True
    absent_needs_a_read: bool = True
    generation_fences_writes: bool = True
    budget_until_gone: bool = True
    waiting_is_not_queued: bool = True
    one_job_a_pod: bool = True  # who was given a runner once is never idle again
    requeue_displaced: bool = True  # its runner got another job: it goes back to the queue
    end_by_runner: bool = True  # an end spends who ran the job, not who was meant for it
    done_stays_done: bool = True
    no_deadline_for: tuple[SlotState, ...] = ()


SHIPPED = Rules()


def question(slot: Slot) -> Question:
    """The one thing to ask when this slot is overdue."""
    match slot.state:
        case SlotState.IDLE:
            return Question.LOOK_AT_POD
        case SlotState.OFFERED | SlotState.ARMED:
            return Question.FENCE
        case SlotState.EXECUTING:
            return Question.ASK_INTENDED if slot.executing_job is None else Question.ASK_JOB
        case SlotState.DRAINING:
            return Question.REAP
        case SlotState.CLOSED:
            return Question.FENCE if slot.fence is Fence.DUE else Question.NOTHING


def stay(slot: Slot, deadlines: Deadlines) -> float:
    """How long a slot may remain as it is."""
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
    """How long after the service came back a slot in this state is left alone."""
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
            return 0.0  # its Pod is gone: there is nobody left who had no chance to speak


def again(slot: Slot, deadlines: Deadlines) -> float:
    """How long to wait before the same question is asked once more."""
    match slot.state:
        case SlotState.IDLE:
            return deadlines.idle
        case SlotState.OFFERED | SlotState.ARMED:
            return deadlines.fence_again
        case SlotState.EXECUTING | SlotState.DRAINING | SlotState.CLOSED:
            return deadlines.ask_again


def budget_states(rules: Rules = SHIPPED) -> tuple[SlotState, ...]:
    """The states whose resources count against a tenant's limit."""
    if rules.budget_until_gone:
        return CLAIMS
    return tuple(state for state in CLAIMS if state is not SlotState.DRAINING)


def due(slot: Slot, *, overdue: bool, settled: bool, rules: Rules = SHIPPED) -> bool:
    """May the sweeper ask its question now?

    `overdue`: the slot's own deadline has passed. `settled`: the state's full time has also passed since the
    service came back from its last outage. Both are computed by Postgres. Without the second, the first sweep
    after an outage would reap every runner that had no chance to speak.
    """
    if question(slot) is Question.NOTHING or slot.state in rules.no_deadline_for:
        return False
    return overdue and (settled or not rules.outage_grace)
