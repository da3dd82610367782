"""Plans garbage collection on one host.

Records without a Pod are queued for the Pod plan, which alone ends VMs and first verifies that the Pod is gone.
Unused images that the agent pulled are removed: after a long idle time, or at once when the disk is full. Images and
VMs without a record are left alone: they belong to a person or to another tool.
"""

import msgspec

from runyard.node.plans.reasons import Why
from runyard.node.plans.values import Record
from runyard.node.settings import Settings
from runyard.vm.contract import VmView


class HeldImage(msgspec.Struct, frozen=True, kw_only=True):
    """An image on this host."""

    image: str
    owned: bool  # this agent has pulled it
    used: bool  # by a Pod, a record, or a pull
    idle: float  # seconds since its last use


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The records, VMs and images of this host, and the Pods bound to it."""

    records: tuple[Record, ...] = ()
    pod_uids: tuple[str, ...] = ()
    images: tuple[HeldImage, ...] = ()
    disk_full: bool = False


class RequeuePod(msgspec.Struct, frozen=True, kw_only=True):
    """Queue the Pod of this record; its plan verifies that the Pod is gone before it acts."""

    uid: str
    key: str
    reason: Why


class RemoveImage(msgspec.Struct, frozen=True, kw_only=True):
    """Remove an image, unless it is in use by then."""

    image: str
    reason: Why


Action = RequeuePod | RemoveImage


def plan_gc(snapshot: Snapshot, settings: Settings) -> tuple[Action, ...]:
    """Return the actions of one pass."""
    bound = frozenset(snapshot.pod_uids)
    orphans = tuple(
        RequeuePod(uid=record.uid, key=record.key, reason=Why.POD_NOT_LISTED)
        for record in snapshot.records
        if record.uid not in bound
    )
    return (*orphans, *_images(snapshot, settings))


def unowned(vms: tuple[VmView, ...], records: tuple[Record, ...]) -> tuple[str, ...]:
    """The VMs on this host that others made or that have no record: they are counted, and never touched."""
    ours = frozenset(record.vm for record in records)
    return tuple(vm.name for vm in vms if not vm.owned or vm.name not in ours)


def _images(snapshot: Snapshot, settings: Settings) -> tuple[Action, ...]:
    if snapshot.disk_full:
        return tuple(
            RemoveImage(image=held.image, reason=Why.DISK_FULL)
            for held in snapshot.images
            if held.owned and not held.used
        )
    return tuple(
        RemoveImage(image=held.image, reason=Why.IMAGE_UNUSED)
        for held in snapshot.images
        if held.owned and not held.used and held.idle >= settings.image_idle
    )
