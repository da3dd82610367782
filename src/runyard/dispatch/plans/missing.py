"""Open slots whose Pods are not among those that were listed: each is a hint, and somebody asks for the proof.

A Pod that is over by its agent's own record counts as missing too; one that is merely on its way out does not.
"""

import msgspec

from runyard.dispatch.machine.values import SlotState
from runyard.dispatch.plans.stamped import PodView
from runyard.dispatch.plans.taking import next_of


class OpenSlot(msgspec.Struct, frozen=True, kw_only=True):
    """A slot whose Pod should exist."""

    pod_uid: str
    pod_name: str
    state: SlotState
    age: float


def missing(
    pods: tuple[PodView, ...], opened: tuple[OpenSlot, ...], *, limit: int, after: str = ""
) -> tuple[OpenSlot, ...]:
    """Those to ask about, at most `limit`, beginning after the uid that was asked about last."""
    alive = {pod.uid for pod in pods if not pod.over}
    unseen = [slot for slot in opened if slot.pod_uid not in alive]
    return next_of(unseen, after=after, limit=limit, key=lambda slot: slot.pod_uid)
