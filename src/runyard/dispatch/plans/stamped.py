"""Pods that carry an owner's stamp while no claim speaks for them: leaks, and nothing else.

A stamp is only ever written for a slot that holds a claim. So a stamped Pod whose uid has no claim
was left behind: a server died between stamp and delivery, a commit was lost. The pool operator
takes it for busy and will never remove it, and it polls for ever. Such Pods once filled two nodes'
memory and stopped a fleet. Now they are retired.

Safe by order: Pods are listed before slots are read, so a Pod stamped after the list is not judged
at all; young Pods are left alone; an empty list judges nobody; a stamp that was taken off in between is
noticed by a second look at the Pod; and retiring itself is a transition that refuses a slot with a claim.
"""

import msgspec

from runyard.dispatch.machine.events import Retire
from runyard.dispatch.machine.values import CLAIMS, Fence, SlotState
from runyard.dispatch.plans.taking import next_of


class PodView(msgspec.Struct, frozen=True, kw_only=True):
    """A runner Pod, as listed."""

    uid: str
    name: str
    pool: str
    owner: str
    created_at: float
    ending: bool  # deleted already, or over by the agent's record
    over: bool = False  # over by the agent's record
    running: bool = False


class SlotView(msgspec.Struct, frozen=True, kw_only=True):
    """What the database knows of a Pod's uid."""

    pod_uid: str
    state: SlotState
    generation: int
    fence: Fence
    silent: bool = False  # has not asked for work for long


class Leak(msgspec.Struct, frozen=True, kw_only=True):
    """Retire this Pod."""

    uid: str
    age: float
    event: Retire
    owner: str = ""  # whose stamp it carries: a runner of theirs may be at work in it
    asks: bool = False  # it asked for work just now, which no Pod does that is at work


def find_leaks(
    pods: tuple[PodView, ...],
    slots: tuple[SlotView, ...],
    *,
    now: float,
    grace: float,
    limit: int,
    after: str = "",
) -> tuple[Leak, ...]:
    """Stamped, without a claim, older than the grace; at most `limit`, beginning after the uid that was judged last."""
    known = {slot.pod_uid: slot for slot in slots}
    leaks = [
        leak(pod, known.get(pod.uid), age=now - pod.created_at, why="stamped without a claim")
        for pod in pods
        if pod.owner
        and not pod.ending
        and now - pod.created_at >= grace
        and not _spoken_for(known.get(pod.uid))
    ]
    return next_of(leaks, after=after, limit=limit, key=lambda each: each.uid)


def _spoken_for(slot: SlotView | None) -> bool:
    """By a claim, by a fence that is due, or by the proof that it is gone, which came after the Pods were listed."""
    if slot is None:
        return False
    return slot.state in (*CLAIMS, SlotState.CLOSED) or slot.fence is Fence.DUE


def leak(pod: PodView, slot: SlotView | None, *, age: float, why: str) -> Leak:
    """Retire this Pod, as long as its slot is still the one that was judged."""
    event = Retire(
        pod_uid=pod.uid,
        pod_name=pod.name,
        pool=pod.pool,
        generation=None if slot is None else slot.generation,
        why=why,
    )
    asks = slot is not None and slot.state is SlotState.IDLE and not slot.silent
    return Leak(uid=pod.uid, age=age, event=event, owner=pod.owner, asks=asks)
