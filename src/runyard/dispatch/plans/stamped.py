"""Finds leaked Pods: they carry an owner's stamp and have no claim.

A stamp is written only for a slot that holds a claim. So a stamped Pod whose uid has no claim is leaked: a server died
between stamp and delivery, or a commit was lost. The pool operator counts it as busy and never removes it, and it polls
for ever. Such Pods once filled two nodes' memory and stopped a fleet. Now they are retired.

This is safe: Pods are listed before slots are read, so a Pod that is stamped after the list is not considered; young
Pods are skipped; an empty list retires none; a second read of the Pod notices a stamp that was removed in between; and
the transition that retires a Pod refuses a slot with a claim.
"""

import msgspec

from runyard.dispatch.machine.events import Retire
from runyard.dispatch.machine.values import CLAIMS, Fence, SlotState
from runyard.dispatch.plans.rotation import next_in_rotation
from runyard.wire.reasons import Reason
from runyard.wire.reasons_dispatch import Why


class PodView(msgspec.Struct, frozen=True, kw_only=True):
    """A runner Pod, as listed."""

    uid: str
    name: str
    pool: str
    owner: str
    created_at: float
    ending: bool  # terminating, or ended by its status
    over: bool = False  # ended by its status
    running: bool = False


class SlotView(msgspec.Struct, frozen=True, kw_only=True):
    """The slot of a Pod's uid."""

    pod_uid: str
    state: SlotState
    generation: int
    fence: Fence
    silent: bool = False  # has not polled for long


class Leak(msgspec.Struct, frozen=True, kw_only=True):
    """Retire this Pod."""

    uid: str
    age: float
    event: Retire
    owner: str = ""  # the tenant of its stamp: a runner of that tenant may be executing in it
    polls: bool = False  # it polled recently, so it executes no job


def find_leaks(
    pods: tuple[PodView, ...],
    slots: tuple[SlotView, ...],
    *,
    now: float,
    grace: float,
    limit: int,
    after: str = "",
) -> tuple[Leak, ...]:
    """Return Pods that are stamped, unclaimed and older than the grace; at most `limit`, after the uid `after`."""
    known = {slot.pod_uid: slot for slot in slots}
    reason = Why.STAMPED_WITHOUT_CLAIM.because()
    leaks = [
        leak(pod, known.get(pod.uid), age=now - pod.created_at, reason=reason)
        for pod in pods
        if pod.owner
        and not pod.ending
        and now - pod.created_at >= grace
        and not _claimed(known.get(pod.uid))
    ]
    return next_in_rotation(leaks, after=after, limit=limit, key=lambda each: each.uid)


def _claimed(slot: SlotView | None) -> bool:
    """Whether the slot has a claim or a due fence, or was closed after the Pods were listed."""
    if slot is None:
        return False
    return slot.state in (*CLAIMS, SlotState.CLOSED) or slot.fence is Fence.DUE


def leak(pod: PodView, slot: SlotView | None, *, age: float, reason: Reason) -> Leak:
    """Build the event that retires a Pod, provided its slot has not changed."""
    event = Retire(
        pod_uid=pod.uid,
        pod_name=pod.name,
        pool=pod.pool,
        generation=None if slot is None else slot.generation,
        reason=reason,
    )
    polls = slot is not None and slot.state is SlotState.IDLE and not slot.silent
    return Leak(uid=pod.uid, age=age, event=event, owner=pod.owner, polls=polls)
