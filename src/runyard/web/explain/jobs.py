"""Why a job waits: the matcher's own hold if it is queued, its runner's slot if one is meant for it.

The order is the order of a job's life: approved, known to be queued, matched, handed over, running, over. What the
matcher held is not looked for again: its words and numbers are taken as they are.
"""

from runyard.dispatch.machine.values import JobState
from runyard.dispatch.matching.values import Held, Hold, Matching
from runyard.web.explain import outside
from runyard.web.explain.pods import on_host
from runyard.web.explain.pools import of_pool
from runyard.web.explain.scene import JobFacts, Scene, SlotFacts
from runyard.web.explain.slots import of_slot
from runyard.web.explain.values import FREE, Constraint, Step
from runyard.web.words import lasted

MATCHER = "dispatch: the matcher"
_ENDS = {
    Hold.NO_POOL: "a pool with these labels exists, or the job asks for others",
    Hold.NO_RUNNER: "a runner of a fitting pool is idle",
    Hold.TENANT_CAP: "a job of this tenant ends, or its cap is raised (runyard tenant set)",
    Hold.EXCLUDED: "the exclusion ends or a registration succeeds; look at the refusal",
    Hold.GITHUB: "GitHub answers and takes a registration again",
    Hold.PAUSED: "somebody resumes the tenant (runyard tenant resume)",
    Hold.NEXT: "the matcher's next step",
}
# Of several pools that fit, the one that will have a runner soonest is told first.
_SOONEST = (
    Constraint.AS_ASKED,
    Constraint.NOT_ASKING,
    Constraint.BOOTING,
    Constraint.IMAGE_STAGING,
    Constraint.ROLL,
    Constraint.ALL_BUSY,
    Constraint.PROVISIONING_CEILING,
)


def of_job(job: JobFacts, slot: SlotFacts | None, scene: Scene) -> tuple[Step, ...]:
    """The chain of one job."""
    match job.state:
        case JobState.DONE:
            return (_over(job),)
        case JobState.RUNNING:
            return _running(job, slot, scene)
        case JobState.BOUND:
            return _bound(job, slot, scene)
        case JobState.WAITING:
            return (_approval(job),)
    if not job.verified:
        return _asked_first(job, scene)
    return _held(job, scene)


def sentence(chain: tuple[Step, ...]) -> str:
    """A chain in one line: the first step, and the binding one if that is another."""
    binding = next((step for step in chain if not step.leads), chain[-1])
    first = chain[0]
    return first.what if binding is first else f"{first.what}: {binding.what}"


def overdue(chain: tuple[Step, ...], scene: Scene) -> bool:
    """Should this job have been matched long ago?"""
    step = chain[0] if chain else None
    if step is None or step.constraint is not Constraint.NEXT or step.since is None:
        return False
    return scene.at - step.since > scene.match_within


def hold_of(matching: Matching, job: JobFacts) -> Held | None:
    """What holds this job, by the matcher's own word; None: nothing does, it is being matched."""
    if any(proposal.event.job_id == job.job_id for proposal in matching.proposals):
        return None
    key = (job.tenant, job.repository, job.labels)
    own = (e for e in matching.held if (e.tenant, e.repository, e.labels) == key)
    return next(own, None)


def _held(job: JobFacts, scene: Scene) -> tuple[Step, ...]:
    held = None if scene.matching is None else hold_of(scene.matching, job)
    if held is None or held.hold is Hold.NEXT:
        text = "a runner that fits is idle: it is being matched" if held is None else held.text
        return (_next(job, text, scene),)
    beyond: tuple[Step, ...] = ()
    if held.hold in (Hold.NO_RUNNER, Hold.NO_POOL) and scene.kubernetes.state == "down":
        beyond = (outside.kubernetes(scene.kubernetes),)
    elif held.hold is Hold.NO_RUNNER:
        beyond = _pools(held.pools, scene)
    elif held.hold in (Hold.GITHUB, Hold.EXCLUDED):  # a budget that is used up excludes its account
        beyond = outside.github(scene, key=str(job.installation_id))
    step = Step(
        constraint=Constraint(held.hold.value),
        subject=_named(job),
        what=held.text,
        who=MATCHER,
        since=job.enqueued_at,
        numbers=dict(held.numbers),
        ends=_ENDS[held.hold],
        leads=bool(beyond) and beyond[0].constraint not in FREE,
    )
    return (step, *beyond)


def _next(job: JobFacts, text: str, scene: Scene) -> Step:
    waited = scene.at - job.enqueued_at
    return Step(
        constraint=Constraint.NEXT,
        subject=_named(job),
        what=text,
        who=MATCHER,
        since=job.enqueued_at,
        numbers={"waited": round(waited, 1)},
        ends=_ENDS[Hold.NEXT],
    )


def _pools(fitting: tuple[str, ...], scene: Scene) -> tuple[Step, ...]:
    """Every pool that fits, the one that will have a runner soonest first, with all that it waits for."""
    known = (scene.pool(name) for name in fitting)
    chains = [of_pool(pool, scene) for pool in known if pool is not None]
    chains.sort(key=lambda chain: _place(chain[0].constraint))
    if not chains:
        return ()
    return (*chains[0], *(chain[0] for chain in chains[1:]))


def _place(constraint: Constraint) -> int:
    return _SOONEST.index(constraint) if constraint in _SOONEST else len(_SOONEST)


def _approval(job: JobFacts) -> Step:
    return Step(
        constraint=Constraint.APPROVAL,
        subject=_named(job),
        what="GitHub holds it back until somebody approves its environment or its run",
        who="GitHub",
        since=job.enqueued_at,
        ends="somebody approves it at GitHub",
    )


def _asked_first(job: JobFacts, scene: Scene) -> tuple[Step, ...]:
    beyond = outside.github(scene, key=str(job.installation_id))
    wait = max(0.0, round(job.look_at - scene.at, 1))
    why = "" if job.last is None else f" ({job.last.why})"
    step = Step(
        constraint=Constraint.ASKED_FIRST,
        subject=_named(job),
        what=f"was given back{why}: GitHub is asked first whether it is still queued",
        who="dispatch: the reader",
        since=job.enqueued_at if job.last is None else job.last.at,
        numbers={"asked_in": wait},
        ends=f"GitHub is asked in {lasted(wait)}" if wait else "GitHub is asked at the next look",
        leads=bool(beyond),
    )
    return (step, *beyond)


def _bound(job: JobFacts, slot: SlotFacts | None, scene: Scene) -> tuple[Step, ...]:
    if slot is None:
        return (_next(job, "is handed to a runner", scene),)
    steps = on_host(of_slot(slot, scene), scene.pod(slot.slot.pod_uid), scene)
    first = Step(
        constraint=steps[0].constraint,
        subject=_named(job),
        what=f"is meant for runner {slot.slot.runner_name}",
        who=MATCHER,
        since=job.enqueued_at,
        leads=True,
    )
    return (first, *steps)


def _running(job: JobFacts, slot: SlotFacts | None, scene: Scene) -> tuple[Step, ...]:
    step = Step(
        constraint=Constraint.RUNNING,
        subject=_named(job),
        what=f"runs on {job.runner_name}" if job.runner_name else "runs",
        who="GitHub",
        since=job.started_at,
        ends="GitHub says that it is over",
    )
    if slot is None:
        return (step,)
    return (step, *on_host(of_slot(slot, scene), scene.pod(slot.slot.pod_uid), scene))


def _over(job: JobFacts) -> Step:
    return Step(
        constraint=Constraint.OVER,
        subject=_named(job),
        what=f"is over: {job.conclusion or 'unknown'}",
        who="GitHub",
        since=job.completed_at,
    )


def _named(job: JobFacts) -> str:
    return f"job {job.job_id}"
