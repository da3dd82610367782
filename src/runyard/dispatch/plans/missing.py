"""Finds open slots whose Pods were not listed; each is a hint, and the Pod is then read for proof.

A Pod that has ended by its status counts as missing too; a terminating one does not.
"""

import msgspec

from runyard.dispatch.machine.values import SlotState
from runyard.dispatch.plans.rotation import next_in_rotation
from runyard.dispatch.plans.stamped import PodView


class OpenSlot(msgspec.Struct, frozen=True, kw_only=True):
    """A slot whose Pod should exist."""

    pod_uid: str
    pod_name: str
    state: SlotState
    age: float


def missing(
    pods: tuple[PodView, ...], opened: tuple[OpenSlot, ...], *, limit: int, after: str = ""
) -> tuple[OpenSlot, ...]:
    """The slots to verify, at most `limit`, beginning after the uid that was verified last."""
    alive = {pod.uid for pod in pods if not pod.over}
    unseen = [slot for slot in opened if slot.pod_uid not in alive]
    return next_in_rotation(unseen, after=after, limit=limit, key=lambda slot: slot.pod_uid)
