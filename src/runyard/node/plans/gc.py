"""What the collector should look after.

It decides two things and no more. Records without a Pod are handed to the Pod plan, which has the one
way to end a VM and asks for proof first. Images that nobody uses are dropped: after a long idle time, or
at once when the disk is full. VMs without a record are counted, named and left alone: they belong to
an operator or to another tool.
"""

import msgspec

from runyard.node.plans.values import Record
from runyard.node.settings import Settings
from runyard.vm.contract import VmView


class HeldImage(msgspec.Struct, frozen=True, kw_only=True):
    """An image on this host."""

    image: str
    used: bool  # by a Pod, a record, or a pull
    idle: float  # seconds since somebody used it


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What is on this host, and which Pods are bound to it."""

    records: tuple[Record, ...] = ()
    pod_uids: tuple[str, ...] = ()
    vms: tuple[VmView, ...] | None = None  # None: could not be listed
    images: tuple[HeldImage, ...] = ()
    disk_full: bool = False


class Recheck(msgspec.Struct, frozen=True, kw_only=True):
    """Let the Pod plan look at this record; it proves that the Pod is gone before it acts."""

    uid: str
    key: str
    reason: str


class RemoveImage(msgspec.Struct, frozen=True, kw_only=True):
    """Drop an image, if still nobody uses it when it comes to that."""

    image: str
    reason: str


class Strangers(msgspec.Struct, frozen=True, kw_only=True):
    """VMs that we have no record for."""

    vms: tuple[str, ...]
    reason: str


Action = Recheck | RemoveImage | Strangers


def plan_gc(snapshot: Snapshot, settings: Settings) -> tuple[Action, ...]:
    """What to do in one pass."""
    bound = frozenset(snapshot.pod_uids)
    orphans = tuple(
        Recheck(uid=record.uid, key=record.key, reason="no Pod in the list has this uid")
        for record in snapshot.records
        if record.uid not in bound
    )
    return (*orphans, *_strangers(snapshot), *_images(snapshot, settings))


def _strangers(snapshot: Snapshot) -> tuple[Action, ...]:
    if snapshot.vms is None:
        return ()
    ours = frozenset(record.vm for record in snapshot.records)
    unknown = tuple(vm.name for vm in snapshot.vms if vm.name not in ours)
    return (Strangers(vms=unknown, reason="no record"),)


def _images(snapshot: Snapshot, settings: Settings) -> tuple[Action, ...]:
    if not settings.gc_images:
        return ()
    if snapshot.disk_full:
        reason = "the disk is full and nobody uses it"
        return tuple(
            RemoveImage(image=held.image, reason=reason)
            for held in snapshot.images
            if not held.used
        )
    reason = f"unused for {settings.image_idle:.0f} s"
    return tuple(
        RemoveImage(image=held.image, reason=reason)
        for held in snapshot.images
        if not held.used and held.idle >= settings.image_idle
    )
