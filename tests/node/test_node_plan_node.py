"""Tests the Node plan: labels, taint and conditions, with those of other controllers unchanged."""

import msgspec
import pytest

from runyard.kube.objects import Condition, Meta, Node, NodeSpec, NodeStatus, Taint
from runyard.node.plans.node import (
    CreateNode,
    GuestDisk,
    PatchNode,
    PatchStatus,
    Snapshot,
    plan_node,
    wanted_labels,
)
from runyard.node.settings import Settings
from runyard.wire import names

SETTINGS = Settings(node_name="mini-1", fleet="macs", labels=(("rack", "7"),))
IMAGE = "registry/runner@sha256:1"
LABELS = dict(wanted_labels((), SETTINGS))
TAINTED = NodeSpec(taints=(Taint(key=names.NODE_TAINT, value="true", effect="NoSchedule"),))


def node(**changes: object) -> Node:
    meta = Meta(name="mini-1", resource_version="5", labels=LABELS)
    return msgspec.structs.replace(Node(metadata=meta, spec=TAINTED), **changes)


def seen(**changes: object) -> Snapshot:
    base = Snapshot(node=node(), driver_silent_for=0.0, disks=(), images=())
    return msgspec.structs.replace(base, **changes)


def status_of(snapshot: Snapshot, type_: str) -> tuple[str, str, bool]:
    patch = plan_node(snapshot, SETTINGS)[-1]
    assert isinstance(patch, PatchStatus)
    found = next(condition for condition in patch.conditions if condition.type == type_)
    return found.status, found.message, found.changed


def with_condition(type_: str, status: str) -> Node:
    return node(status=NodeStatus(conditions=(Condition(type=type_, status=status),)))


def test_a_deleted_node_is_registered_again() -> None:
    (create,) = plan_node(seen(node=None, images=(IMAGE,)), SETTINGS)
    assert isinstance(create, CreateNode)
    labels = dict(create.labels)
    assert labels[names.NODE_FLEET] == "macs" and labels["rack"] == "7"
    assert labels[names.golden_label(IMAGE)] == "true"


def test_an_up_to_date_node_only_gets_a_heartbeat() -> None:
    assert [type(action) for action in plan_node(seen(), SETTINGS)] == [PatchStatus]


def test_only_the_agents_own_labels_are_changed() -> None:
    stale = names.golden_label("registry/gone@sha256:0")
    meta = Meta(name="mini-1", labels={**LABELS, stale: "true", names.GROUP + "/other": "x"})
    patch = plan_node(seen(node=node(metadata=meta), images=(IMAGE,)), SETTINGS)[0]
    assert isinstance(patch, PatchNode)
    assert dict(patch.labels) == {names.golden_label(IMAGE): "true", stale: None}


def test_image_labels_stay_while_the_images_are_unknown() -> None:
    meta = Meta(name="mini-1", labels={**LABELS, names.golden_label(IMAGE): "true"})
    actions = plan_node(seen(node=node(metadata=meta), images=None), SETTINGS)
    assert [type(action) for action in actions] == [PatchStatus]


def test_a_missing_taint_is_added_and_a_provider_id_is_never_overwritten() -> None:
    owned = msgspec.structs.replace(SETTINGS, provider_id="host://1")
    bare = node(spec=NodeSpec(provider_id="host://0"))
    patch = plan_node(seen(node=bare), owned)[0]
    assert isinstance(patch, PatchNode)
    assert (patch.add_taint, patch.provider_id, patch.resource_version) == (True, "", "5")
    fresh = plan_node(seen(node=node()), owned)[0]
    assert isinstance(fresh, PatchNode) and fresh.provider_id == "host://1"


DISKS = {
    "never measured: seeded False": (None, None, "False"),
    "never measured, True before a restart": ("True", None, "True"),
    "below": ("True", 89.9, "False"),
    "at the limit": ("False", 90.0, "True"),
    "above": (None, 97.0, "True"),
}


@pytest.mark.parametrize(("before", "percent", "expected"), DISKS.values(), ids=DISKS)
def test_disk_pressure_follows_the_measured_percentage(
    before: str | None, percent: float | None, expected: str
) -> None:
    was = node() if before is None else with_condition("DiskPressure", before)
    disks = None if percent is None else (GuestDisk(vm="vm-1", percent=percent),)
    status, message, changed = status_of(seen(node=was, disks=disks), "DiskPressure")
    assert status == expected
    assert changed is (before != expected)
    assert ("vm-1" in message) is (percent is not None and expected == "True")


def test_a_driver_that_does_not_respond_makes_ready_unknown() -> None:
    assert status_of(seen(), "Ready")[0] == "True"
    status, message, _ = status_of(seen(driver_silent_for=121.0), "Ready")
    assert status == "Unknown" and "121" in message


@pytest.mark.parametrize("type_", ["MemoryPressure", "PIDPressure"])
def test_an_unmeasured_condition_is_unknown(type_: str) -> None:
    assert status_of(seen(), type_)[0] == "Unknown"


def test_only_a_changed_status_is_a_transition() -> None:
    assert status_of(seen(node=with_condition("Ready", "True")), "Ready")[2] is False
    assert status_of(seen(node=with_condition("Ready", "Unknown")), "Ready")[2] is True
