"""Explains the state of a runner from its slot, its deadline and the state machine's next check."""

from runyard.dispatch.machine.table import Question, question, time_limit
from runyard.dispatch.machine.values import Fence, Slot, SlotState
from runyard.web.durations import format_duration
from runyard.web.explain import dependencies
from runyard.web.explain.context import Context, SlotFacts
from runyard.web.explain.reasons import Ends, What
from runyard.web.explain.values import Constraint, Step
from runyard.wire.reasons import Reason
from runyard.wire.reasons_dispatch import TRANSITIONS

SWEEPER = "dispatch: the sweeper"
_RECONCILERS = {SlotState.OFFERED: "stale_claims", SlotState.ARMED: "orphaned_runners"}


def explain_slot(facts: SlotFacts, context: Context) -> tuple[Step, ...]:
    """Explain the slot's state, then what its overdue check waits for."""
    slot = facts.slot
    if question(slot) is Question.FENCE and (facts.overdue or _fence_postponed(facts, context)):
        return _fence(facts, context)
    match slot.state:
        case SlotState.IDLE:
            return _idle(facts, context)
        case SlotState.OFFERED:
            return _minting(facts, context)
        case SlotState.ARMED:
            return _registering(facts, context)
        case SlotState.EXECUTING:
            return (_running(facts, context),)
        case SlotState.DRAINING:
            return (_draining(facts, context),)
        case SlotState.CLOSED:
            return (_closed(facts),)


def _fence_postponed(facts: SlotFacts, context: Context) -> bool:
    """Return whether its runner must be fenced: that is due, or got no answer, so that its deadline was postponed."""
    if facts.slot.fence is Fence.DUE:
        return True
    limit = time_limit(facts.slot, context.limits.deadlines)
    return facts.last is not None and context.at - facts.last.at > limit


def _fence(facts: SlotFacts, context: Context) -> tuple[Step, ...]:
    """Explain an overdue slot: its runner must be deleted at GitHub before anything is freed."""
    slot = facts.slot
    since = min(facts.deadline, _changed_at(facts) + time_limit(slot, context.limits.deadlines))
    grace = () if facts.settled else (_grace(facts, context),)
    inactive = dependencies.inactive_reconciler(context, _RECONCILERS.get(slot.state, ""))
    causes = grace or inactive or dependencies.github(context, key=str(slot.installation_id))
    step = Step(
        constraint=Constraint.FENCE,
        subject=_subject(facts),
        what=_overdue_state(slot),
        cause=None if facts.last is None else facts.last.why,
        who=SWEEPER,
        since=since,
        numbers={"late": max(0.0, round(context.at - since, 1))},
        ends=Ends.RUNNER_FENCED.because(),
        leads=bool(causes),
    )
    return (step, *causes)


def _overdue_state(slot: Slot) -> Reason:
    if slot.state is SlotState.CLOSED:
        return What.POD_GONE_UNFENCED.because()
    if slot.fence is Fence.DUE:
        return What.OFFER_GIVEN_UP.because()
    return What.STATE_OVERDUE.because(state=slot.state.value)


def _grace(facts: SlotFacts, context: Context) -> Step:
    left = max(0.0, round(facts.settles_at - context.at, 1))
    return Step(
        constraint=Constraint.OUTAGE_GRACE,
        subject="dispatch",
        what=What.AFTER_OUTAGE.because(),
        who=SWEEPER,
        numbers={"left": left},
        ends=Ends.NO_OUTAGE_FOR.because(left=format_duration(left)),
    )


def _idle(facts: SlotFacts, context: Context) -> tuple[Step, ...]:
    silent, limit = context.at - facts.last_beat, context.limits.asking_within
    if silent <= limit and not facts.poll_dropped:
        step = Step(
            constraint=Constraint.NO_JOB,
            subject=_subject(facts),
            what=What.WAITS_FOR_WORK.because(pool=facts.slot.pool),
            who="dispatch: the matcher",
            since=facts.opened_at,
            ends=Ends.JOB_FITS.because(),
        )
        return (step,)
    inactive = dependencies.inactive_reconciler(context, "pods_against_slots")
    step = Step(
        constraint=Constraint.NOT_ASKING,
        subject=_subject(facts),
        what=What.POLL_CUT_OFF.because()
        if facts.poll_dropped
        else What.NOT_POLLING.because(silent=format_duration(silent)),
        who="the guest",
        since=facts.last_beat,
        numbers={"silent": round(silent, 1), "limit": limit},
        ends=Ends.POLLS_OR_REMOVED.because(),
        leads=bool(inactive),
    )
    return (step, *inactive)


def _minting(facts: SlotFacts, context: Context) -> tuple[Step, ...]:
    causes = dependencies.github(context, key=str(facts.slot.installation_id))
    step = Step(
        constraint=Constraint.MINTING,
        subject=_subject(facts),
        what=What.REGISTERS_RUNNER.because(job=str(facts.slot.intended_job)),
        who="dispatch: the mint",
        since=_changed_at(facts),
        numbers={"left": _left(facts, context)},
        ends=Ends.GITHUB_ANSWERS_OR_FENCE.because(),
        leads=bool(causes),
    )
    return (step, *causes)


def _registering(facts: SlotFacts, context: Context) -> tuple[Step, ...]:
    causes = dependencies.github_unreachable(context)
    intended = facts.slot.intended_job
    vacant = What.RUNNER_CONNECTS_VACANT.because()
    step = Step(
        constraint=Constraint.REGISTERING,
        subject=_subject(facts),
        what=vacant if intended is None else What.RUNNER_CONNECTS.because(job=intended),
        who="the guest",
        since=_changed_at(facts),
        numbers={"left": _left(facts, context)},
        ends=Ends.GETS_JOB_OR_FENCE.because(),
        leads=bool(causes),
    )
    return (step, *causes)


def _running(facts: SlotFacts, context: Context) -> Step:
    job = facts.slot.executing_job
    unknown = What.RUNS_UNKNOWN_JOB.because()
    return Step(
        constraint=Constraint.RUNNING,
        subject=_subject(facts),
        what=unknown if job is None else What.RUNS_JOB.because(job=job),
        who="GitHub",
        since=_changed_at(facts),
        ends=Ends.JOB_ENDS_OR_READ.because(left=format_duration(_left(facts, context))),
    )


def _draining(facts: SlotFacts, context: Context) -> Step:
    return Step(
        constraint=Constraint.DRAINING,
        subject=_subject(facts),
        what=What.STOPPING.because(),
        cause=None if facts.last is None else facts.last.why,
        who=SWEEPER,
        since=_changed_at(facts),
        numbers={"left": _left(facts, context)},
        ends=Ends.POD_ENDS.because(left=format_duration(_left(facts, context))),
    )


def _closed(facts: SlotFacts) -> Step:
    closed = facts.slot.close_reason
    return Step(
        constraint=Constraint.OVER,
        subject=_subject(facts),
        what=What.POD_GONE.because(),
        cause=TRANSITIONS.read(closed) if closed else None,
        who=SWEEPER,
        since=_changed_at(facts),
    )


def _subject(facts: SlotFacts) -> str:
    return f"pod {facts.slot.pod_name}"


def _changed_at(facts: SlotFacts) -> float:
    return facts.opened_at if facts.last is None else facts.last.at


def _left(facts: SlotFacts, context: Context) -> float:
    return max(0.0, round(facts.deadline - context.at, 1))
