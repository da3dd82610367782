"""The events that change slots and jobs.

There are two kinds. An *answer* is the result of a request that dispatch made, and carries the generation of the slot:
a late answer finds another generation and changes nothing. A *fact* comes from GitHub or Kubernetes (a
job started, a Pod is gone) and is true whenever it arrives, in any order and any number of times.
"""

from enum import StrEnum

import msgspec

from runyard.wire.reasons import Reason


class FenceAnswer(StrEnum):
    """GitHub's response to the deletion of a runner."""

    DELETED = "deleted"  # it was not busy and can never take a job now
    BUSY = "busy"  # it is executing a job
    ABSENT = "absent"  # it does not exist


class Polled(msgspec.Struct, frozen=True, kw_only=True):
    """Fact: this Pod polled for work, with a token bound to its uid."""

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
    """Answer of the matcher: assign another job to this armed runner, which lost its own."""

    generation: int
    job_id: int


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """Answer: the runner is minted; `stamped` says whether the Pod's stamp was acknowledged."""

    generation: int
    runner_id: int
    jit: bytes
    stamped: bool


class MintFailed(msgspec.Struct, frozen=True, kw_only=True):
    """Answer: certainly no runner was created, and the Pod carries no stamp."""

    generation: int
    reason: Reason
    hold_job: float = 0.0  # do not check the job again before that many seconds


class MintAbandoned(msgspec.Struct, frozen=True, kw_only=True):
    """Answer: the offer cannot be completed, and a runner may exist: fence it. Its JIT was never delivered.

    `answered`: GitHub answered the mint, so the runner exists now or never will. Otherwise the request may still be
    under way.
    """

    generation: int
    reason: Reason
    runner_id: int | None = None
    answered: bool = True


class Fenced(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of the fence. `scope_read`: a read in the same scope succeeded in the same tick.

    `cleared`: after that answer the stamp was removed from the Pod, which is not terminating.
    """

    generation: int
    answer: FenceAnswer
    scope_read: bool
    cleared: bool = False


class Inconclusive(msgspec.Struct, frozen=True, kw_only=True):
    """Answer: the request proved nothing; ask again later."""

    generation: int
    wait: float = 0.0  # not before that many seconds


class Retire(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of recovery: this Pod has no claim and must be drained. A slot with a claim refuses it."""

    pod_uid: str
    pod_name: str
    pool: str
    generation: int | None  # None: there was no slot
    reason: Reason


class PodGone(msgspec.Struct, frozen=True, kw_only=True):
    """Fact: GET answered 404 or another uid, or the agent recorded the end."""

    reason: Reason


class JobWaiting(msgspec.Struct, frozen=True, kw_only=True):
    """Fact: GitHub holds a job back until a person approves it."""

    job_id: int
    tenant: str


class JobQueued(msgspec.Struct, frozen=True, kw_only=True):
    """Fact: GitHub queued a job."""

    job_id: int
    tenant: str


class JobStarted(msgspec.Struct, frozen=True, kw_only=True):
    """Fact: this runner executes this job, as GitHub reports."""

    job_id: int
    tenant: str
    runner_name: str


class JobEnded(msgspec.Struct, frozen=True, kw_only=True):
    """Fact: the job has ended, as GitHub reports. `runner_name` is empty if it never ran."""

    job_id: int
    tenant: str
    runner_name: str
    conclusion: str


class JobStillQueued(msgspec.Struct, frozen=True, kw_only=True):
    """Fact, from a fresh read: the job is still queued at GitHub."""

    job_id: int


JobFact = JobWaiting | JobQueued | JobStarted | JobEnded | JobStillQueued
SlotEvent = Polled | Arm | MintFailed | MintAbandoned | Fenced | Inconclusive | Retire | PodGone
Claim = Offer | Adopt  # reserve a job: many of them are decided in one transaction
Event = SlotEvent | Claim | JobFact
