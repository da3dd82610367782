"""Builds the machine's events from the short names that the proof uses for them."""

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
from runyard.wire.reasons_dispatch import Why

TENANT = "t"
_REFUSED = Why.MINT_REFUSED.because(kind="refused", message="")
_UNCLEAR = Why.STAMP_FAILED.because(stamp="unclear")


def runner_name(pod: int) -> str:
    """The name of a Pod, its uid and its runner in the proof."""
    return f"p{pod}"


def event(what: str, *, pod: object, job: int, runner: int, generation: int | None) -> Event:
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
        case "queued-again":
            return JobStillQueued(job_id=job)
        case "gone":
            return PodGone(reason=Why.POD_NOT_FOUND.because())
    own = runner_name(pod) if isinstance(pod, int) else ""
    if what == "polled":
        return Polled(pod_uid=own, pod_name=own, pool="pool")
    if what == "retire":
        reason = Why.STAMPED_WITHOUT_CLAIM.because()
        return Retire(pod_uid=own, pod_name=own, pool="pool", generation=generation, reason=reason)
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
        case "arm" | "arm-without-stamp":
            return Arm(generation=generation, runner_id=1, jit=b"jit", stamped=what == "arm")
        case "mint-failed":
            return MintFailed(generation=generation, reason=_REFUSED)
        case "mint-abandoned":
            return MintAbandoned(generation=generation, reason=_UNCLEAR)
        case "deleted":
            return Fenced(generation=generation, answer=FenceAnswer.DELETED, scope_read=True)
        case "busy":
            return Fenced(generation=generation, answer=FenceAnswer.BUSY, scope_read=True)
        case "absent":
            return Fenced(generation=generation, answer=FenceAnswer.ABSENT, scope_read=True)
        case "warm-deleted" | "warm-absent":
            answer = FenceAnswer(what.removeprefix("warm-"))
            return Fenced(generation=generation, answer=answer, scope_read=True, cleared=True)
        case "blind":
            return Fenced(generation=generation, answer=FenceAnswer.ABSENT, scope_read=False)
        case _:
            raise ValueError(f"unknown event {what!r}")
