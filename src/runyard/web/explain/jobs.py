"""Explains why a job waits: by the matcher's hold if it is queued, by its slot if it is assigned to a runner.

The checks follow a job's states: approval, verified as queued, matched, assigned, running, done. The matcher's holds
are reported with the matcher's own reasons and numbers.
"""

from runyard.dispatch.machine.values import JobState
from runyard.dispatch.matching.values import Held, Hold, Matching
from runyard.web.durations import format_duration
from runyard.web.explain import dependencies
from runyard.web.explain.context import Context, JobFacts, SlotFacts
from runyard.web.explain.pods import with_host
from runyard.web.explain.pools import explain_pool
from runyard.web.explain.reasons import Ends, What
from runyard.web.explain.slots import explain_slot
from runyard.web.explain.values import FREE, Constraint, Step
from runyard.wire.reasons import Reason

MATCHER = "dispatch: the matcher"
_ENDS = {
    Hold.NO_POOL: Ends.POOL_FITS,
    Hold.NO_RUNNER: Ends.RUNNER_IDLE,
    Hold.TENANT_CAP: Ends.TENANT_HAS_BUDGET,
    Hold.EXCLUDED: Ends.EXCLUSION_ENDS,
    Hold.GITHUB: Ends.GITHUB_REGISTERS,
    Hold.PAUSED: Ends.TENANT_RESUMED,
    Hold.NEXT: Ends.NEXT_MATCH,
}
# Of several pools that fit, the one that will have a runner soonest comes first.
_SOONEST = (
    Constraint.AS_ASKED,
    Constraint.NOT_ASKING,
    Constraint.BOOTING,
    Constraint.IMAGE_STAGING,
    Constraint.ROLL,
    Constraint.ALL_BUSY,
    Constraint.PROVISIONING_CEILING,
)


def explain_job(job: JobFacts, slot: SlotFacts | None, context: Context) -> tuple[Step, ...]:
    """Explain one job."""
    match job.state:
        case JobState.DONE:
            return (_done(job),)
        case JobState.RUNNING:
            return _running(job, slot, context)
        case JobState.BOUND:
            return _bound(job, slot, context)
        case JobState.WAITING:
            return (_approval(job),)
    if not job.verified:
        return _unverified(job, context)
    return _held(job, context)


def overdue(chain: tuple[Step, ...], context: Context) -> bool:
    """Return whether a fitting runner is idle and the job waits longer than matching takes."""
    step = chain[0] if chain else None
    if step is None or step.constraint is not Constraint.NEXT or step.since is None:
        return False
    return context.at - step.since > context.match_within


def find_hold(matching: Matching, job: JobFacts) -> Held | None:
    """Return the matcher's hold of this job; None if it is being matched, or was not examined."""
    if any(proposal.event.job_id == job.job_id for proposal in matching.proposals):
        return None
    key = (job.tenant, job.repository, job.labels)
    own = (e for e in matching.held if (e.tenant, e.repository, e.labels) == key)
    return next(own, None)


def is_examined(matching: Matching | None, job: JobFacts) -> bool:
    """Return whether the matcher's result says anything about this job: by itself, or by its kind."""
    if matching is None or not matching.pools_read:
        return False
    if any(proposal.event.job_id == job.job_id for proposal in matching.proposals):
        return True
    return find_hold(matching, job) is not None


def _unexamined(job: JobFacts, context: Context) -> tuple[Step, ...]:
    """Explain a job that the matcher's result does not contain: nothing is known about its runners."""
    unread = context.matching is not None and not context.matching.pools_read
    beyond: tuple[Step, ...] = ()
    if unread and context.kubernetes.state == "down":
        beyond = (dependencies.kubernetes(context.kubernetes),)
    step = Step(
        constraint=Constraint.UNEXAMINED,
        subject=_subject(job),
        what=(What.POOLS_UNREAD if unread else What.NOT_EXAMINED).because(),
        who=MATCHER,
        since=job.enqueued_at,
        ends=(Ends.POOLS_READ if unread else Ends.NEXT_MATCH).because(),
        leads=bool(beyond),
    )
    return (step, *beyond)


def _held(job: JobFacts, context: Context) -> tuple[Step, ...]:
    if context.matching is None or not is_examined(context.matching, job):
        return _unexamined(job, context)
    held = find_hold(context.matching, job)
    if held is None or held.hold is Hold.NEXT:
        return (_next(job, What.BEING_MATCHED, context),)
    beyond: tuple[Step, ...] = ()
    if held.hold in (Hold.NO_RUNNER, Hold.NO_POOL) and context.kubernetes.state == "down":
        beyond = (dependencies.kubernetes(context.kubernetes),)
    elif held.hold is Hold.NO_RUNNER:
        beyond = _pools(held.pools, context)
    elif held.hold in (Hold.GITHUB, Hold.EXCLUDED):  # a budget that is used up excludes its account
        beyond = dependencies.github(context, key=str(job.installation_id))
    step = Step(
        constraint=Constraint(held.hold.value),
        subject=_subject(job),
        reason=held.reason.slug,
        what=held.reason,
        cause=held.cause,
        who=MATCHER,
        since=job.enqueued_at,
        numbers=_numbers(held.reason),
        ends=_ENDS[held.hold].because(),
        leads=bool(beyond) and beyond[0].constraint not in FREE,
    )
    return (step, *beyond)


def _numbers(reason: Reason) -> dict[str, float]:
    return {name: value for name, value in reason.detail if not isinstance(value, str)}


def _next(job: JobFacts, what: What, context: Context) -> Step:
    waited = context.at - job.enqueued_at
    return Step(
        constraint=Constraint.NEXT,
        subject=_subject(job),
        what=what.because(),
        who=MATCHER,
        since=job.enqueued_at,
        numbers={"waited": round(waited, 1)},
        ends=Ends.NEXT_MATCH.because(),
    )


def _pools(fitting: tuple[str, ...], context: Context) -> tuple[Step, ...]:
    """Explain every pool that fits; the one that will have a runner soonest comes first, with its whole chain."""
    known = (context.pool(name) for name in fitting)
    chains = [explain_pool(pool, context) for pool in known if pool is not None]
    chains.sort(key=lambda chain: _rank(chain[0].constraint))
    if not chains:
        return ()
    return (*chains[0], *(chain[0] for chain in chains[1:]))


def _rank(constraint: Constraint) -> int:
    return _SOONEST.index(constraint) if constraint in _SOONEST else len(_SOONEST)


def _approval(job: JobFacts) -> Step:
    return Step(
        constraint=Constraint.APPROVAL,
        subject=_subject(job),
        what=What.AWAITS_APPROVAL.because(),
        who="GitHub",
        since=job.enqueued_at,
        ends=Ends.APPROVED.because(),
    )


def _unverified(job: JobFacts, context: Context) -> tuple[Step, ...]:
    beyond = dependencies.github(context, key=str(job.installation_id))
    wait = max(0.0, round(job.look_at - context.at, 1))
    step = Step(
        constraint=Constraint.ASKED_FIRST,
        subject=_subject(job),
        what=What.REQUEUED.because(),
        cause=None if job.last is None else job.last.why,
        who="dispatch: the reader",
        since=job.enqueued_at if job.last is None else job.last.at,
        numbers={"asked_in": wait},
        ends=Ends.ASKED_IN.because(wait=format_duration(wait))
        if wait
        else Ends.ASKED_NEXT.because(),
        leads=bool(beyond),
    )
    return (step, *beyond)


def _bound(job: JobFacts, slot: SlotFacts | None, context: Context) -> tuple[Step, ...]:
    if slot is None:
        return (_next(job, What.BEING_ASSIGNED, context),)
    steps = with_host(explain_slot(slot, context), context.pod(slot.slot.pod_uid), context)
    first = Step(
        constraint=steps[0].constraint,
        subject=_subject(job),
        what=What.ASSIGNED_TO_RUNNER.because(runner=slot.slot.runner_name),
        who=MATCHER,
        since=job.enqueued_at,
        leads=True,
    )
    return (first, *steps)


def _running(job: JobFacts, slot: SlotFacts | None, context: Context) -> tuple[Step, ...]:
    step = Step(
        constraint=Constraint.RUNNING,
        subject=_subject(job),
        what=What.RUNS_ON.because(runner=job.runner_name)
        if job.runner_name
        else What.RUNS.because(),
        who="GitHub",
        since=job.started_at,
        ends=Ends.JOB_ENDS.because(),
    )
    if slot is None:
        return (step,)
    return (step, *with_host(explain_slot(slot, context), context.pod(slot.slot.pod_uid), context))


def _done(job: JobFacts) -> Step:
    return Step(
        constraint=Constraint.OVER,
        subject=_subject(job),
        what=What.JOB_DONE.because(conclusion=job.conclusion or "unknown"),
        who="GitHub",
        since=job.completed_at,
    )


def _subject(job: JobFacts) -> str:
    return f"job {job.job_id}"
