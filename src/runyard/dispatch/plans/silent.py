"""Finds runners that run but do not poll for work: their poll loop has ended, or never started.

Kubernetes reports such a Pod as running and the operator counts it as warm, but it can never get a job. A runner
without a claim that did not poll for the whole grace period is retired.

The time is measured over consecutive successful snapshots: after a failed snapshot, or a time without the lease, it
starts again. If most runners are silent at once, the cause is not the runners, and none is retired.
"""

import msgspec

from runyard.dispatch.machine.values import SlotState
from runyard.dispatch.plans.rotation import next_in_rotation
from runyard.dispatch.plans.stamped import Leak, PodView, SlotView, leak
from runyard.wire.reasons_dispatch import Why

_FEW = 2  # so many may be silent at once also in a small fleet


class Watched(msgspec.Struct, frozen=True):
    """A silent Pod, and since when it has been seen so; on the monotonic clock."""

    uid: str
    since: float


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The Pods to retire, and those to keep watching."""

    leaks: tuple[Leak, ...]
    watched: tuple[Watched, ...]


def judge_silence(
    pods: tuple[PodView, ...],
    slots: tuple[SlotView, ...],
    *,
    watched: tuple[Watched, ...],
    now: float,
    grace: float,
    limit: int,
    after: str = "",
) -> Verdict:
    """Find silent Pods without a claim; at most `limit` are retired at a time, others in the next step."""
    known = {slot.pod_uid: slot for slot in slots}
    since = {each.uid: each.since for each in watched}
    running = [pod for pod in pods if pod.running and not pod.ending]
    silent = [pod for pod in running if _silent(known.get(pod.uid))]
    if len(silent) > max(_FEW, len(running) // 2):
        return Verdict(leaks=(), watched=())
    seen = tuple(Watched(pod.uid, since.get(pod.uid, now)) for pod in silent)
    reason = Why.NOT_POLLING.because()
    overdue = [
        leak(pod, known.get(pod.uid), age=now - each.since, reason=reason)
        for each, pod in zip(seen, silent, strict=True)
        if now - each.since >= grace
    ]
    leaks = next_in_rotation(overdue, after=after, limit=limit, key=lambda each: each.uid)
    return Verdict(leaks=leaks, watched=seen)


def _silent(slot: SlotView | None) -> bool:
    return slot is None or (slot.state is SlotState.IDLE and slot.silent)
