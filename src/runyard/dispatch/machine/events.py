"""What can happen to a slot or a job.

Two kinds. *Answers* come back from a question or an effect that we started and carry the generation
of the slot they were asked for: a late answer finds another generation and changes nothing. *Facts*
come from outside (GitHub's word about a job, the proof that a Pod is gone) and are true whenever
they arrive, in any order and any number of times.
"""

from enum import StrEnum

import msgspec


class FenceAnswer(StrEnum):
    """What GitHub said when it was asked to delete a runner."""

    DELETED = "deleted"  # it was not busy and can never take a job now
    BUSY = "busy"  # it is executing a job
    ABSENT = "absent"  # it does not exist


class Polled(msgspec.Struct, frozen=True, kw_only=True):
    """Fact: this Pod incarnation asked for work, with a token bound to its uid."""

    pod_uid: str
    pod_name: str
    pool: str


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of the matcher: reserve this job for this idle slot."""

    generation: int
    job_id: int
    tenant: str
    scope: str
    installation_id: int
    vcpus: int
    memory_gb: int
    platform: str
    runner_name: str


class Adopt(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of the matcher: this armed runner lost its job; let it be meant for another one."""

    generation: int
    job_id: int


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """Answer: the runner is minted; `stamped` says whether the Pod's stamp was acknowledged."""

    generation: int
    runner_id: int
    jit: bytes
    stamped: bool


class MintFailed(msgspec.Struct, frozen=True, kw_only=True):
    """Answer: certainly no runner was created, and the Pod carries no stamp of ours."""

    generation: int
    why: str
    hold_job: float = 0.0  # do not look at the job again before that many seconds


class MintAbandoned(msgspec.Struct, frozen=True, kw_only=True):
    """Answer: the offer cannot be completed, and a runner may exist: fence it now."""

    generation: int
    why: str
    runner_id: int | None = None


class Fenced(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of the fence. `scope_read`: a read in the same scope succeeded in the same tick."""

    generation: int
    answer: FenceAnswer
    scope_read: bool


class Inconclusive(msgspec.Struct, frozen=True, kw_only=True):
    """Answer: the question was asked and nothing follows from it yet; ask again later."""

    generation: int
    wait: float = 0.0  # not before that many seconds


class Retire(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of recovery: this Pod must go although no claim speaks for it. Never takes a claim."""

    pod_uid: str
    pod_name: str
    pool: str
    generation: int | None  # None: there was no slot
    why: str


class PodGone(msgspec.Struct, frozen=True, kw_only=True):
    """Fact: GET answered 404 or another uid, or the agent recorded the end."""

    why: str


class JobWaiting(msgspec.Struct, frozen=True, kw_only=True):
    """Fact: GitHub holds a job back until somebody approves it."""

    job_id: int
    tenant: str


class JobQueued(msgspec.Struct, frozen=True, kw_only=True):
    """Fact: GitHub queued a job."""

    job_id: int
    tenant: str


class JobStarted(msgspec.Struct, frozen=True, kw_only=True):
    """Fact: GitHub says that this runner executes this job."""

    job_id: int
    tenant: str
    runner_name: str


class JobEnded(msgspec.Struct, frozen=True, kw_only=True):
    """Fact: GitHub says that the job is over. `runner_name` is empty if it never ran."""

    job_id: int
    tenant: str
    runner_name: str
    conclusion: str


class JobStillQueued(msgspec.Struct, frozen=True, kw_only=True):
    """Fact, by a fresh read: GitHub still has the job queued."""

    job_id: int


JobFact = JobWaiting | JobQueued | JobStarted | JobEnded | JobStillQueued
Event = (
    Polled
    | Offer
    | Adopt
    | Arm
    | MintFailed
    | MintAbandoned
    | Fenced
    | Inconclusive
    | Retire
    | PodGone
    | JobFact
)
