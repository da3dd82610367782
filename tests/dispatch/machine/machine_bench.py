"""Keeps rows in memory and applies transitions to them, as the store does, without a database."""

import msgspec

from runyard.dispatch.machine.changes import Context
from runyard.dispatch.machine.events import (
    Event,
    JobFact,
    Offer,
    Polled,
    Retire,
)
from runyard.dispatch.machine.transition import transition
from runyard.dispatch.machine.values import (
    Decision,
    Fence,
    Headroom,
    Job,
    JobState,
    Slot,
    SlotState,
    View,
)

TENANT = "acme"
UID = "uid-1"
NAME = "runner-1"
CTX = Context()


def slot(state: SlotState, **fields: object) -> Slot:
    """A slot in that state, with a tenant and a runner name once it was offered."""
    named = {} if state is SlotState.IDLE else {"tenant": TENANT, "runner_name": NAME}
    known = {"pod_uid": UID, "pod_name": NAME, "pool": "pool", "generation": 7, "state": state}
    return msgspec.convert({**known, **named, **fields}, Slot)


def job(job_id: int, state: JobState, *, verified: bool = True) -> Job:
    """A job of the tenant."""
    return Job(job_id=job_id, tenant=TENANT, state=state, verified=verified)


def offer(job_id: int, *, generation: int = 7, name: str = NAME) -> Offer:
    """The matcher's offer of a job."""
    return Offer(
        generation=generation,
        job_id=job_id,
        tenant=TENANT,
        scope="orgs/acme",
        installation_id=1,
        vcpus=4,
        memory_gb=8,
        platform="linux",
        runner_name=name,
    )


class Bench:
    """Slots and jobs in memory."""

    def __init__(self, *slots: Slot, jobs: tuple[Job, ...] = (), limit: int = 8) -> None:
        self.slots = {each.pod_uid: each for each in slots}
        self.jobs = {each.job_id: each for each in jobs}
        self.limit = limit

    def slot_event(self, uid: str, event: Event) -> Decision:
        """Apply an event about one slot."""
        found = self.slots.get(uid)
        named = [getattr(event, "job_id", None)]
        named += [found.intended_job, found.executing_job] if found else []
        headroom = Headroom(vcpus=self.left(), memory_gb=99) if isinstance(event, Offer) else None
        return self._apply(View(slot=found, jobs=self._named(named), headroom=headroom), event)

    def job_fact(self, event: JobFact) -> Decision:
        """Apply GitHub's report about a job."""
        runner = getattr(event, "runner_name", "")
        found = next((s for s in self.slots.values() if runner and s.runner_name == runner), None)
        holder = next(
            (s for s in self.slots.values() if s is not found and s.intended_job == event.job_id),
            None,
        )
        named = [event.job_id] + ([found.intended_job, found.executing_job] if found else [])
        return self._apply(View(slot=found, holder=holder, jobs=self._named(named)), event)

    def apply(self, uid: str, event: Event) -> Decision:
        """Apply any event."""
        if isinstance(event, JobFact):
            return self.job_fact(event)
        if isinstance(event, Polled | Retire):
            uid = event.pod_uid
        return self.slot_event(uid, event)

    def left(self) -> int:
        """What is left of the tenant's budget."""
        return self.limit - sum(each.vcpus for each in self.slots.values() if each.claims)

    def _named(self, ids: list[int | None]) -> tuple[Job, ...]:
        wanted = sorted({each for each in ids if each is not None})
        return tuple(self.jobs[each] for each in wanted if each in self.jobs)

    def _apply(self, view: View, event: Event) -> Decision:
        decision = transition(view, event, CTX)
        for change in decision.slots:
            before = self.slots.get(change.slot.pod_uid)
            assert (None if before is None else before.generation) == change.before
            self.slots[change.slot.pod_uid] = change.slot
        for written in decision.jobs:
            self.jobs[written.job.job_id] = written.job
        return decision


CASES: dict[str, tuple[Slot | None, JobState]] = {
    "none": (None, JobState.QUEUED),
    "idle": (slot(SlotState.IDLE), JobState.QUEUED),
    "offered": (slot(SlotState.OFFERED, intended_job=1), JobState.BOUND),
    "given-up": (
        slot(SlotState.OFFERED, intended_job=1, runner_id=5, fence=Fence.DUE),
        JobState.BOUND,
    ),
    "armed": (slot(SlotState.ARMED, intended_job=1, jit=b"jit"), JobState.BOUND),
    "vacant": (slot(SlotState.ARMED, jit=b"jit"), JobState.QUEUED),
    "executing": (slot(SlotState.EXECUTING, executing_job=1), JobState.RUNNING),
    "unknown": (slot(SlotState.EXECUTING, intended_job=1), JobState.BOUND),
    "draining": (slot(SlotState.DRAINING, executing_job=1, fence=Fence.DONE), JobState.DONE),
    "closed": (slot(SlotState.CLOSED, executing_job=1, fence=Fence.DONE), JobState.DONE),
    "due": (slot(SlotState.CLOSED, intended_job=1, fence=Fence.DUE), JobState.BOUND),
}


def bench(case: str) -> Bench:
    """A bench with one slot in that condition, its job 1, and job 2 in the queue."""
    found, state = CASES[case]
    jobs = (job(1, state), job(2, JobState.QUEUED))
    return Bench(*((found,) if found else ()), jobs=jobs)
