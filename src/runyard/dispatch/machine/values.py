"""Defines slots, jobs, and what a transition may read and write.

A *slot* is the one authoritative row for one Pod (by its uid). Claims, sessions, budget reservations and labels are
derived from it, so they cannot disagree. A *job* is the stored state of a workflow job of GitHub.

Invariants:
- A slot in a claim state (`CLAIMS`) names a tenant and holds that tenant's budget; no other reservation exists.
  The exception: a slot that was retired before any offer has no tenant and holds no budget.
- `intended_job` is the job that a slot was minted for; such a job is BOUND, to at most one slot.
- `executing_job` is only set from what GitHub reports.
- `generation` grows with every transition; a write with an old one changes nothing.
- There are no times here: deadlines are in Postgres, transitions only return how long a new one should be.
"""

from enum import StrEnum

import msgspec

from runyard.wire.reasons import Reason


class SlotState(StrEnum):
    """The state of one Pod."""

    IDLE = "idle"  # this Pod has polled; nothing reserved
    OFFERED = "offered"  # job and budget reserved, the mint is under way
    ARMED = "armed"  # JIT minted, stamp acknowledged; the JIT may be delivered, to this uid only
    EXECUTING = "executing"  # GitHub reports that its runner is busy
    DRAINING = "draining"  # job ended, or runner fenced; the Pod is to end
    CLOSED = "closed"  # the Pod is proven gone


CLAIMS = (SlotState.OFFERED, SlotState.ARMED, SlotState.EXECUTING, SlotState.DRAINING)


class JobState(StrEnum):
    """The state of a job."""

    WAITING = "waiting"  # GitHub holds it back until a person approves it
    QUEUED = "queued"  # queued at GitHub, intended for no slot
    BOUND = "bound"  # intended for a slot
    RUNNING = "running"  # GitHub reports that it runs
    DONE = "done"  # ended; never leaves this state


class Fence(StrEnum):
    """Whether this slot's runner was deleted at GitHub."""

    NONE = "none"  # not needed so far
    DUE = "due"  # must be deleted before anything is freed; in an offer: its mint gave it up
    DONE = "done"  # the runner does not exist at GitHub any more


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """One Pod, by its uid."""

    pod_uid: str
    pod_name: str
    pool: str
    generation: int = 0
    state: SlotState = SlotState.IDLE
    tenant: str = ""
    scope: str = ""
    installation_id: int = 0
    vcpus: int = 0
    memory_gb: int = 0
    platform: str = ""
    intended_job: int | None = None
    executing_job: int | None = None
    runner_name: str = ""
    runner_id: int | None = None
    stamped: bool = False
    jit: bytes | None = None
    fence: Fence = Fence.NONE
    close_reason: str = ""  # a slug of `Why`

    @property
    def claims(self) -> bool:
        """Whether this slot holds a claim."""
        return self.state in CLAIMS

    @property
    def vacant(self) -> bool:
        """Whether the slot is armed and its intended job is gone, so that it can take another one."""
        return self.state is SlotState.ARMED and self.intended_job is None


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One workflow job, as far as transitions need it."""

    job_id: int
    tenant: str
    state: JobState = JobState.QUEUED
    verified: bool = True  # may be offered without a read at GitHub first
    runner_name: str = ""  # the runner that runs or ran it, as GitHub reports
    conclusion: str = ""

    @property
    def offerable(self) -> bool:
        """Whether the job is queued, and was read at GitHub since its last offer."""
        return self.state is JobState.QUEUED and self.verified


class Headroom(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a tenant's budget is left on one platform."""

    vcpus: int
    memory_gb: int

    def fits(self, *, vcpus: int, memory_gb: int) -> bool:
        """Whether a reservation of that size is within the limit."""
        return vcpus <= self.vcpus and memory_gb <= self.memory_gb


class View(msgspec.Struct, frozen=True, kw_only=True):
    """The locked rows that one transition may read.

    `slot` is the slot that the event is about, `holder` another open slot that the event's job is intended for, `jobs`
    every job that either of them or the event names, `headroom` the rest of the tenant's budget.
    """

    slot: Slot | None = None
    holder: Slot | None = None
    jobs: tuple[Job, ...] = ()
    headroom: Headroom | None = None

    def job(self, job_id: int | None) -> Job | None:
        """The job with that id, if this view holds it."""
        return next((job for job in self.jobs if job.job_id == job_id), None)


class SlotChange(msgspec.Struct, frozen=True, kw_only=True):
    """Write this slot back, if its generation is still `before`. `wait` None keeps the deadline."""

    slot: Slot
    before: int | None  # None: the row is new
    source: SlotState | None
    wait: float | None
    reason: Reason


class JobChange(msgspec.Struct, frozen=True, kw_only=True):
    """Write this job back. `recheck_in`: seconds until it is read at GitHub again; None keeps the time."""

    job: Job
    source: JobState | None
    recheck_in: float | None
    reason: Reason


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one event: rows to write, or why nothing happens."""

    slots: tuple[SlotChange, ...] = ()
    jobs: tuple[JobChange, ...] = ()
    refused: Reason | None = None

    @property
    def slot(self) -> Slot | None:
        """The first changed slot."""
        return self.slots[0].slot if self.slots else None


def refuse(reason: Reason) -> Decision:
    """Return a decision that changes nothing, with its reason."""
    return Decision(refused=reason)
