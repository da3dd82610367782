"""Runners that run and do not ask for work: their poll loop is dead, or never began.

To Kubernetes such a Pod is well, to the operator it is warm, and nobody will ever give it a job: it
holds a seat for nothing. A runner without a claim that stayed silent for the whole grace is retired.

Silence is measured by looks that succeeded one after the other: whoever was away, or could not look,
starts counting anew. And if most runners are silent at once, it is not they who fail: then nobody is
judged.
"""

import msgspec

from runyard.dispatch.machine.values import SlotState
from runyard.dispatch.plans.stamped import Leak, PodView, SlotView, leak
from runyard.dispatch.plans.taking import next_of

_FEW = 2  # so many may be silent at once even in a small fleet


class Watched(msgspec.Struct, frozen=True):
    """A silent Pod, and since when it has been seen so; on the monotonic clock."""

    uid: str
    since: float


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whom to retire, and whom to go on watching."""

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
    """Judge every running Pod that no claim speaks for; at most `limit` are retired at a time, others the next time."""
    known = {slot.pod_uid: slot for slot in slots}
    since = {each.uid: each.since for each in watched}
    running = [pod for pod in pods if pod.running and not pod.ending]
    silent = [pod for pod in running if _silent(known.get(pod.uid))]
    if len(silent) > max(_FEW, len(running) // 2):
        return Verdict(leaks=(), watched=())
    seen = tuple(Watched(pod.uid, since.get(pod.uid, now)) for pod in silent)
    overdue = [
        leak(pod, known.get(pod.uid), age=now - each.since, why="does not ask for work")
        for each, pod in zip(seen, silent, strict=True)
        if now - each.since >= grace
    ]
    leaks = next_of(overdue, after=after, limit=limit, key=lambda each: each.uid)
    return Verdict(leaks=leaks, watched=seen)


def _silent(slot: SlotView | None) -> bool:
    return slot is None or (slot.state is SlotState.IDLE and slot.silent)
