"""Why a runner is where it is in its one life: told by its slot, its deadline, and the machine's own question."""

from runyard.dispatch.machine.table import Question, question, stay
from runyard.dispatch.machine.values import Slot, SlotState
from runyard.web.explain import outside
from runyard.web.explain.scene import Scene, SlotFacts
from runyard.web.explain.values import Constraint, Step
from runyard.web.words import lasted

SWEEPER = "dispatch: the sweeper"
_HEALER = {SlotState.OFFERED: "stale_claims", SlotState.ARMED: "orphaned_runners"}


def of_slot(facts: SlotFacts, scene: Scene) -> tuple[Step, ...]:
    """The slot's state, then what its overdue question waits for."""
    slot = facts.slot
    if question(slot) is Question.FENCE and (facts.overdue or _put_off(facts, scene)):
        return _fence(facts, scene)
    match slot.state:
        case SlotState.IDLE:
            return _idle(facts, scene)
        case SlotState.OFFERED:
            return _minting(facts, scene)
        case SlotState.ARMED:
            return _registering(facts, scene)
        case SlotState.EXECUTING:
            return (_running(facts, scene),)
        case SlotState.DRAINING:
            return (_draining(facts, scene),)
        case SlotState.CLOSED:
            return (_closed(facts),)


def _put_off(facts: SlotFacts, scene: Scene) -> bool:
    """Its fence was asked for and had no answer: the deadline is a later one, and the question is still open."""
    if facts.slot.state is SlotState.CLOSED:
        return True
    limit = stay(facts.slot, scene.terms.deadlines)
    return facts.last is not None and scene.at - facts.last.at > limit


def _fence(facts: SlotFacts, scene: Scene) -> tuple[Step, ...]:
    """Its time is over: GitHub must forget the runner before anything is concluded."""
    slot = facts.slot
    since = min(facts.deadline, _moved(facts) + stay(slot, scene.terms.deadlines))
    grace = () if facts.settled else (_grace(facts, scene),)
    rests = outside.switched(scene, _HEALER.get(slot.state, ""))
    beyond = grace or rests or outside.github(scene, key=str(slot.installation_id))
    told = f" ({facts.last.why})" if facts.last is not None and facts.last.why else ""
    step = Step(
        constraint=Constraint.FENCE,
        subject=_named(facts),
        what=f"{_was(slot)}{told}: its runner must be gone at GitHub first",
        who=SWEEPER,
        since=since,
        numbers={"late": max(0.0, round(scene.at - since, 1))},
        ends="GitHub deletes the runner, or says that it works",
        leads=bool(beyond),
    )
    return (step, *beyond)


def _was(slot: Slot) -> str:
    gone = slot.state is SlotState.CLOSED
    return "its Pod is gone" if gone else f"was {slot.state} for too long"


def _grace(facts: SlotFacts, scene: Scene) -> Step:
    left = max(0.0, round(facts.settles_at - scene.at, 1))
    return Step(
        constraint=Constraint.OUTAGE_GRACE,
        subject="dispatch",
        what="the service is just back from an outage: nobody is reaped who had no chance to speak",
        who=SWEEPER,
        numbers={"left": left},
        ends=f"{lasted(left)} more without an outage",
    )


def _idle(facts: SlotFacts, scene: Scene) -> tuple[Step, ...]:
    silent = scene.at - facts.last_beat
    if silent <= scene.silent_after:
        step = Step(
            constraint=Constraint.NO_JOB,
            subject=_named(facts),
            what=f"waits for work in pool {facts.slot.pool}",
            who="dispatch: the matcher",
            since=facts.opened_at,
            ends="a job fits",
        )
        return (step,)
    rests = outside.switched(scene, "pods_against_slots")
    step = Step(
        constraint=Constraint.NOT_ASKING,
        subject=_named(facts),
        what=f"has not asked for work for {lasted(silent)}",
        who="the guest",
        since=facts.last_beat,
        numbers={"silent": round(silent, 1), "limit": scene.silent_after},
        ends="it asks again, or recovery removes it",
        leads=bool(rests),
    )
    return (step, *rests)


def _minting(facts: SlotFacts, scene: Scene) -> tuple[Step, ...]:
    beyond = outside.github(scene, key=str(facts.slot.installation_id))
    step = Step(
        constraint=Constraint.MINTING,
        subject=_named(facts),
        what=f"its runner is being registered at GitHub for job {facts.slot.intended_job}",
        who="dispatch: the mint",
        since=_moved(facts),
        numbers={"left": _left(facts, scene)},
        ends="GitHub answers, or the deadline's fence settles it",
        leads=bool(beyond),
    )
    return (step, *beyond)


def _registering(facts: SlotFacts, scene: Scene) -> tuple[Step, ...]:
    beyond = outside.github_away(scene)
    meant = facts.slot.intended_job
    job = "no job any more" if meant is None else f"job {meant}"
    step = Step(
        constraint=Constraint.REGISTERING,
        subject=_named(facts),
        what=f"has its configuration for {job}; its runner connects to GitHub",
        who="the guest",
        since=_moved(facts),
        numbers={"left": _left(facts, scene)},
        ends="GitHub gives it a job, or the deadline's fence settles it",
        leads=bool(beyond),
    )
    return (step, *beyond)


def _running(facts: SlotFacts, scene: Scene) -> Step:
    job = facts.slot.executing_job
    what = "works on a job that is not known yet" if job is None else f"works on job {job}"
    return Step(
        constraint=Constraint.RUNNING,
        subject=_named(facts),
        what=what,
        who="GitHub",
        since=_moved(facts),
        ends=f"the job ends; GitHub is asked again in {lasted(_left(facts, scene))}",
    )


def _draining(facts: SlotFacts, scene: Scene) -> Step:
    why = "" if facts.last is None else f": {facts.last.why}"
    return Step(
        constraint=Constraint.DRAINING,
        subject=_named(facts),
        what=f"is on its way out{why}; the budget is held until its Pod is gone",
        who=SWEEPER,
        since=_moved(facts),
        numbers={"left": _left(facts, scene)},
        ends=f"the Pod goes; it is removed in {lasted(_left(facts, scene))} otherwise",
    )


def _closed(facts: SlotFacts) -> Step:
    reason = facts.slot.close_reason
    return Step(
        constraint=Constraint.OVER,
        subject=_named(facts),
        what=f"its Pod is proven gone{f': {reason}' if reason else ''}",
        who=SWEEPER,
        since=_moved(facts),
    )


def _named(facts: SlotFacts) -> str:
    return f"pod {facts.slot.pod_name}"


def _moved(facts: SlotFacts) -> float:
    return facts.opened_at if facts.last is None else facts.last.at


def _left(facts: SlotFacts, scene: Scene) -> float:
    return max(0.0, round(facts.deadline - scene.at, 1))
