"""Plans the writes to this host's Node object.

The agent owns some labels, one taint, the capacity and four conditions, and changes nothing else: labels, conditions
and taints of other controllers stay.

Invariants:
- A condition's transition time moves only when its status does.
- `DiskPressure` starts as False, keeps its value when nothing could be measured, and is True as soon as
  one guest's root volume reaches the limit; the message names the guest.
- What is not measured is Unknown with a reason, never False.
"""

import msgspec

from runyard.kube.objects import Node
from runyard.node.plans.reasons import NodeReason, Why
from runyard.node.plans.values import bounded
from runyard.node.settings import Settings
from runyard.wire import names
from runyard.wire.reasons import Reason, render

READY = "Ready"
DISK_PRESSURE = "DiskPressure"
_DISK_OK = NodeReason.TART_KUBELET_HAS_SUFFICIENT_DISK.because()


class GuestDisk(msgspec.Struct, frozen=True, kw_only=True):
    """The last measurement of one running guest."""

    vm: str
    percent: float


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The Node's current state, and what the host's loops found."""

    node: Node | None
    driver_silent_for: float  # since the last good list of VMs
    disks: tuple[GuestDisk, ...] | None  # None: never measured
    images: tuple[str, ...] | None  # None: unknown


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """One condition to publish."""

    type: str
    status: str
    reason: Reason
    changed: bool = True  # the status differs from the one before

    @property
    def camel(self) -> str:
        """The reason as the condition carries it."""
        assert isinstance(self.reason.code, NodeReason), "a Node's condition has a Node's reason"
        return self.reason.code.camel

    @property
    def message(self) -> str:
        """The message of the condition."""
        return bounded(render(self.reason))


class CreateNode(msgspec.Struct, frozen=True, kw_only=True):
    """Register the Node; also again after it was deleted."""

    labels: tuple[tuple[str, str], ...]
    provider_id: str
    reason: Why


class PatchNode(msgspec.Struct, frozen=True, kw_only=True):
    """Change labels, the taint, or the provider id."""

    labels: tuple[tuple[str, str | None], ...]  # None: remove
    add_taint: bool
    provider_id: str  # empty: leave
    resource_version: str
    reason: Why


class PatchStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Publish size, addresses and our conditions."""

    conditions: tuple[Condition, ...]
    capacity: tuple[tuple[str, str], ...]
    reason: Why


Action = CreateNode | PatchNode | PatchStatus


def plan_node(snapshot: Snapshot, settings: Settings) -> tuple[Action, ...]:
    """Return what to write; after `CreateNode` the caller reads and plans again."""
    wanted = wanted_labels(snapshot.images, settings)
    node = snapshot.node
    if node is None:
        why = Why.NODE_MISSING
        return (CreateNode(labels=wanted, provider_id=settings.provider_id, reason=why),)
    status = PatchStatus(
        conditions=conditions(snapshot, settings),
        capacity=capacity(settings),
        reason=Why.HEARTBEAT,
    )
    changes = _label_changes(node, wanted, known=snapshot.images is not None)
    taint = all(taint.key != names.NODE_TAINT for taint in node.spec.taints)
    provider = "" if node.spec.provider_id else settings.provider_id
    if not (changes or taint or provider):
        return (status,)
    patch = PatchNode(
        labels=changes,
        add_taint=taint,
        provider_id=provider,
        resource_version=node.metadata.resource_version,
        reason=Why.NODE_OUTDATED,
    )
    return (patch, status)


def wanted_labels(
    images: tuple[str, ...] | None, settings: Settings
) -> tuple[tuple[str, str], ...]:
    """Every label that this host sets."""
    fixed = {
        names.NODE_OS: settings.os,
        names.NODE_ARCH: settings.arch,
        names.NODE_HOSTNAME: settings.node_name,
        names.NODE_RUNTIME: settings.runtime,
    }
    labels = {names.NODE_FLEET: settings.fleet} if settings.fleet else {}
    labels.update(settings.labels)
    labels.update(fixed)
    labels.update({names.golden_label(image): "true" for image in images or ()})
    return tuple(labels.items())


def capacity(settings: Settings) -> tuple[tuple[str, str], ...]:
    """Return the capacity; all of it may be allocated."""
    whole, part = divmod(settings.cpu_milli, 1000)
    cpu = f"{settings.cpu_milli}m" if part else str(whole)
    return (("cpu", cpu), ("memory", f"{settings.memory_mb}Mi"), ("pods", str(settings.pods)))


def conditions(snapshot: Snapshot, settings: Settings) -> tuple[Condition, ...]:
    """Return the agent's conditions, each compared with the Node's."""
    before = {} if snapshot.node is None else _statuses(snapshot.node)
    disk = _disk(snapshot, before.get(DISK_PRESSURE), settings)
    wanted = (
        _ready(snapshot, settings),
        disk,
        *map(_unmeasured, ("MemoryPressure", "PIDPressure")),
    )
    return tuple(
        msgspec.structs.replace(condition, changed=before.get(condition.type) != condition.status)
        for condition in wanted
    )


def _ready(snapshot: Snapshot, settings: Settings) -> Condition:
    silence = snapshot.driver_silent_for
    if silence <= settings.driver_stale_after:
        return _condition(READY, "True", NodeReason.TART_KUBELET_READY.because())
    return _condition(READY, "Unknown", NodeReason.DRIVER_SILENT.because(seconds=silence))


def _disk(snapshot: Snapshot, before: str | None, settings: Settings) -> Condition:
    if snapshot.disks is None:
        status = "True" if before == "True" else "False"
        previous = NodeReason.TART_KUBELET_HAS_DISK_PRESSURE.because(guests="as last measured")
        return _condition(DISK_PRESSURE, status, previous if status == "True" else _DISK_OK)
    full = [disk for disk in snapshot.disks if disk.percent >= settings.disk_pressure_percent]
    if not full:
        return _condition(DISK_PRESSURE, "False", _DISK_OK)
    guests = ", ".join(f"{disk.vm} at {disk.percent:.0f} %" for disk in full)
    reason = NodeReason.TART_KUBELET_HAS_DISK_PRESSURE.because(guests=guests)
    return _condition(DISK_PRESSURE, "True", reason)


def _unmeasured(type_: str) -> Condition:
    return _condition(type_, "Unknown", NodeReason.NOT_MEASURED.because())


def _condition(type_: str, status: str, reason: Reason) -> Condition:
    return Condition(type=type_, status=status, reason=reason)


def _statuses(node: Node) -> dict[str, str]:
    return {condition.type: condition.status for condition in node.status.conditions}


def _label_changes(
    node: Node, wanted: tuple[tuple[str, str], ...], *, known: bool
) -> tuple[tuple[str, str | None], ...]:
    have = node.metadata.labels
    keep = dict(wanted)
    changes: dict[str, str | None] = {
        name: value for name, value in wanted if have.get(name) != value
    }
    if known:
        gone = [n for n in have if n.startswith(names.GOLDEN_PREFIX) and n not in keep]
        changes.update(dict.fromkeys(gone))
    return tuple(changes.items())
