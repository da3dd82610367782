"""What the Node object should say about this host.

The agent owns some labels, one taint, the size and five conditions, and changes nothing else: labels of
other controllers are not pruned, their conditions and taints stay.

Invariants:
- A condition's transition time moves only when its status does.
- `DiskPressure` starts as False, keeps its value when nothing could be measured, and is True as soon as
  one guest's root volume reaches the limit; the message names the guest.
- What nobody measures is Unknown with a reason, never a reassuring False.
"""

import msgspec

from runyard.kube.objects import Node
from runyard.node.plans.values import bounded
from runyard.node.settings import Settings
from runyard.wire import names

READY = "Ready"
DISK_PRESSURE = "DiskPressure"
REASON_DISK_OK = "TartKubeletHasSufficientDisk"
REASON_DISK_PRESSURE = "TartKubeletHasDiskPressure"
REASON_DRIVER_SILENT = "DriverSilent"
REASON_NOT_MEASURED = "NotMeasured"


class GuestDisk(msgspec.Struct, frozen=True, kw_only=True):
    """The last good answer of one running guest."""

    vm: str
    percent: float


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The Node as it is, and what the host's probes found."""

    node: Node | None
    driver_silent_for: float  # since the last good list of VMs
    disks: tuple[GuestDisk, ...] | None  # None: never measured
    images: tuple[str, ...] | None  # None: unknown


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """One condition to publish."""

    type: str
    status: str
    reason: str
    message: str = ""
    changed: bool = True  # the status is another one than before


class CreateNode(msgspec.Struct, frozen=True, kw_only=True):
    """Register; also again, when somebody deleted the Node."""

    labels: tuple[tuple[str, str], ...]
    provider_id: str
    reason: str


class PatchNode(msgspec.Struct, frozen=True, kw_only=True):
    """Change labels, the taint, or the provider id."""

    labels: tuple[tuple[str, str | None], ...]  # None: remove
    add_taint: bool
    provider_id: str  # empty: leave
    resource_version: str
    reason: str


class PatchStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Publish size, addresses and our conditions."""

    conditions: tuple[Condition, ...]
    capacity: tuple[tuple[str, str], ...]
    reason: str


Action = CreateNode | PatchNode | PatchStatus


def plan_node(snapshot: Snapshot, settings: Settings) -> tuple[Action, ...]:
    """What to write; after `CreateNode` the caller reads again and plans again."""
    wanted = wanted_labels(snapshot.images, settings)
    node = snapshot.node
    if node is None:
        reason = "no Node of this name"
        return (CreateNode(labels=wanted, provider_id=settings.provider_id, reason=reason),)
    status = PatchStatus(
        conditions=conditions(snapshot, settings),
        capacity=capacity(settings),
        reason="heartbeat",
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
        reason="the Node lacks what this host is",
    )
    return (patch, status)


def wanted_labels(
    images: tuple[str, ...] | None, settings: Settings
) -> tuple[tuple[str, str], ...]:
    """Every label that this host sets."""
    labels = {
        names.NODE_OS: settings.os,
        names.NODE_ARCH: settings.arch,
        names.NODE_HOSTNAME: settings.node_name,
        names.NODE_RUNTIME: settings.runtime,
    }
    if settings.fleet:
        labels[names.NODE_FLEET] = settings.fleet
    labels.update(settings.labels)
    labels.update({names.golden_label(image): "true" for image in images or ()})
    return tuple(labels.items())


def capacity(settings: Settings) -> tuple[tuple[str, str], ...]:
    """What the host offers; all of it may be allocated."""
    whole, part = divmod(settings.cpu_milli, 1000)
    cpu = f"{settings.cpu_milli}m" if part else str(whole)
    return (("cpu", cpu), ("memory", f"{settings.memory_mb}Mi"), ("pods", str(settings.pods)))


def conditions(snapshot: Snapshot, settings: Settings) -> tuple[Condition, ...]:
    """Our conditions, each compared with what the Node says now."""
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
        return Condition(type=READY, status="True", reason=names.REASON_NODE_READY)
    message = f"no list of the host's VMs for {silence:.0f} s"
    return Condition(type=READY, status="Unknown", reason=REASON_DRIVER_SILENT, message=message)


def _disk(snapshot: Snapshot, before: str | None, settings: Settings) -> Condition:
    if snapshot.disks is None:
        status = "True" if before == "True" else "False"
        reason = REASON_DISK_PRESSURE if status == "True" else REASON_DISK_OK
        return Condition(type=DISK_PRESSURE, status=status, reason=reason)
    full = [disk for disk in snapshot.disks if disk.percent >= settings.disk_pressure_percent]
    if not full:
        return Condition(type=DISK_PRESSURE, status="False", reason=REASON_DISK_OK)
    message = bounded("nearly full: " + ", ".join(f"{d.vm} at {d.percent:.0f} %" for d in full))
    return Condition(
        type=DISK_PRESSURE, status="True", reason=REASON_DISK_PRESSURE, message=message
    )


def _unmeasured(type_: str) -> Condition:
    message = "this host does not measure it"
    return Condition(type=type_, status="Unknown", reason=REASON_NOT_MEASURED, message=message)


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
