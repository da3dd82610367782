"""The nouns of dispatch: slots, jobs, and what a transition may read and write.

A *slot* is the one authoritative row for one incarnation of a Pod (its uid). Everything that used
to be a separate fact somewhere (a claim, a session, a budget reservation, a label) is derived from
it, so no two facts can disagree. A *job* is GitHub's workflow job as we know it.

Invariants:
- A slot in a claim state (`CLAIMS`) names a tenant and holds that tenant's budget; no other reservation exists.
  Only one that was retired before it was ever offered names none, and holds nothing.
- `intended_job` is the job a slot was minted for; such a job is BOUND. At most one slot intends a job.
- `executing_job` is only ever set from GitHub's own word.
- `generation` grows with every transition; an actor that asks with an old one changes nothing.
- Times are not here: deadlines live in Postgres, transitions only say how long a new one should be.
"""

from enum import StrEnum

import msgspec


class SlotState(StrEnum):
    """Where a Pod incarnation is in its one life."""

    IDLE = "idle"  # this Pod has polled; nothing reserved
    OFFERED = "offered"  # job and budget reserved, the mint is under way
    ARMED = "armed"  # JIT minted, stamp acknowledged; replayable to this uid only
    EXECUTING = "executing"  # GitHub says that its runner works
    DRAINING = "draining"  # job over, or fenced; the Pod is on its way out
    CLOSED = "closed"  # the Pod is proven gone


CLAIMS = (SlotState.OFFERED, SlotState.ARMED, SlotState.EXECUTING, SlotState.DRAINING)


class JobState(StrEnum):
    """What we know of a job."""

    WAITING = "waiting"  # GitHub holds it back until somebody approves it
    QUEUED = "queued"  # GitHub has it queued, nobody is meant for it
    BOUND = "bound"  # some slot intends it
    RUNNING = "running"  # GitHub says that it runs
    DONE = "done"  # over; never leaves this state


class Fence(StrEnum):
    """Whether GitHub has been asked to forget this slot's runner."""

    NONE = "none"  # never needed so far
    DUE = "due"  # must be asked before anything is concluded
    DONE = "done"  # GitHub knows no such runner any more


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """One Pod incarnation."""

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
    close_reason: str = ""

    @property
    def claims(self) -> bool:
        """Does this slot hold a reservation?"""
        return self.state in CLAIMS

    @property
    def vacant(self) -> bool:
        """Armed, and the job that it was minted for is gone: supply for another one."""
        return self.state is SlotState.ARMED and self.intended_job is None


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One workflow job, as far as transitions care."""

    job_id: int
    tenant: str
    state: JobState = JobState.QUEUED
    verified: bool = True  # may be offered without asking GitHub first
    runner_name: str = ""  # who runs or ran it, by GitHub's word
    conclusion: str = ""

    @property
    def offerable(self) -> bool:
        """Queued, and not offered before without a fresh look at GitHub since."""
        return self.state is JobState.QUEUED and self.verified


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a tenant's budget is left on one platform."""

    vcpus: int
    memory_gb: int

    def fits(self, *, vcpus: int, memory_gb: int) -> bool:
        """Would a reservation of that size still be within the limit?"""
        return vcpus <= self.vcpus and memory_gb <= self.memory_gb


class View(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one transition may read: the rows it has locked.

    `slot` is the slot that the event is about, `rival` another open slot that intends the event's job,
    `jobs` every job that either of them or the event names, `room` the tenant's remaining budget.
    """

    slot: Slot | None = None
    rival: Slot | None = None
    jobs: tuple[Job, ...] = ()
    room: Room | None = None

    def job(self, job_id: int | None) -> Job | None:
        """The job with that id, if this view holds it."""
        return next((job for job in self.jobs if job.job_id == job_id), None)


class SlotChange(msgspec.Struct, frozen=True, kw_only=True):
    """Write this slot back, if its generation is still `before`. `wait` None keeps the deadline."""

    slot: Slot
    before: int | None  # None: the row is new
    source: SlotState | None
    wait: float | None
    why: str


class JobChange(msgspec.Struct, frozen=True, kw_only=True):
    """Write this job back. `look_in` is when GitHub must be asked about it again, in seconds."""

    job: Job
    source: JobState | None
    look_in: float | None
    why: str


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one event: rows to write, or why nothing happens."""

    slots: tuple[SlotChange, ...] = ()
    jobs: tuple[JobChange, ...] = ()
    refused: str = ""

    @property
    def slot(self) -> Slot | None:
        """The first changed slot."""
        return self.slots[0].slot if self.slots else None


def refuse(why: str) -> Decision:
    """Nothing happens, and this is why."""
    return Decision(refused=why)
