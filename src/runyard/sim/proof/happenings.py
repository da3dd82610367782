"""The machine's events, by the short names that the proof uses for them."""

from runyard.dispatch.machine.events import (
    Adopt,
    Arm,
    Event,
    FenceAnswer,
    Fenced,
    JobEnded,
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

TENANT = "t"


def runner_name(pod: int) -> str:
    """The name of a Pod, its uid and its runner in the proof."""
    return f"p{pod}"


def happening(what: str, *, pod: object, job: int, runner: int, generation: int | None) -> Event:
    """The event of that name."""
    name = runner_name(runner) if runner >= 0 else ""
    match what:
        case "waiting":
            return JobWaiting(job_id=job, tenant=TENANT)
        case "queued":
            return JobQueued(job_id=job, tenant=TENANT)
        case "started":
            return JobStarted(job_id=job, tenant=TENANT, runner_name=name)
        case "ended":
            return JobEnded(job_id=job, tenant=TENANT, runner_name=name, conclusion="success")
        case "queued again":
            return JobStillQueued(job_id=job)
        case "gone":
            return PodGone(why="404")
    own = runner_name(pod) if isinstance(pod, int) else ""
    if what == "polled":
        return Polled(pod_uid=own, pod_name=own, pool="pool")
    if what == "retire":
        why = "stamped without a claim"
        return Retire(pod_uid=own, pod_name=own, pool="pool", generation=generation, why=why)
    assert generation is not None, f"{what} is an answer and carries a generation"
    return _answer(what, own=own, job=job, generation=generation)


def _answer(what: str, *, own: str, job: int, generation: int) -> Event:
    match what:
        case "offer":
            return Offer(
                generation=generation,
                job_id=job,
                tenant=TENANT,
                scope="",
                installation_id=0,
                vcpus=1,
                memory_gb=1,
                platform="",
                runner_name=own,
            )
        case "adopt":
            return Adopt(generation=generation, job_id=job)
        case "arm" | "arm without stamp":
            return Arm(generation=generation, runner_id=1, jit=b"jit", stamped=what == "arm")
        case "mint failed":
            return MintFailed(generation=generation, why="refused")
        case "mint abandoned":
            return MintAbandoned(generation=generation, why="unclear")
        case "deleted":
            return Fenced(generation=generation, answer=FenceAnswer.DELETED, scope_read=True)
        case "busy":
            return Fenced(generation=generation, answer=FenceAnswer.BUSY, scope_read=True)
        case "absent":
            return Fenced(generation=generation, answer=FenceAnswer.ABSENT, scope_read=True)
        case "blind":
            return Fenced(generation=generation, answer=FenceAnswer.ABSENT, scope_read=False)
        case _:
            raise ValueError(f"the machine knows no event {what!r}")
