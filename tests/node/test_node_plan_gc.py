"""Tests the garbage collection plan: only images and VMs of the agent are touched."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.node.pod_model import UID, VM, record

from runyard.node.plans.gc import (
    CountUnownedVms,
    HeldImage,
    RemoveImage,
    RequeuePod,
    Snapshot,
    plan_gc,
)
from runyard.node.plans.reasons import Why
from runyard.node.settings import Settings
from runyard.vm.contract import VmState, VmView

SETTINGS = Settings(node_name="mini-1", image_idle=3600.0)


def vm(name: str) -> VmView:
    return VmView(name=name, state=VmState.RUNNING)


def test_a_vm_without_a_record_is_counted_and_nothing_else() -> None:
    actions = plan_gc(
        Snapshot(records=(record(),), pod_uids=(UID,), vms=(vm(VM), vm("packer"))), SETTINGS
    )
    assert actions == (CountUnownedVms(vms=("packer",), reason=Why.NO_RECORD),)


def test_a_failed_list_counts_no_unowned_vms() -> None:
    assert plan_gc(Snapshot(vms=None), SETTINGS) == ()


def test_a_record_without_a_pod_is_requeued() -> None:
    (action,) = plan_gc(Snapshot(records=(record(),)), SETTINGS)
    assert isinstance(action, RequeuePod) and (action.uid, action.key) == (UID, record().key)


IMAGES = {
    "used": (True, 9999.0, False, True, False),
    "idle for long": (False, 3600.0, False, True, True),
    "idle for a while": (False, 3599.0, False, True, False),
    "disk full": (False, 0.0, True, True, True),
    "disk full but used": (True, 9999.0, True, True, False),
    "a build host": (False, 9999.0, True, False, False),
}


@pytest.mark.parametrize(
    ("used", "idle", "full", "enabled", "removed"), IMAGES.values(), ids=list(IMAGES)
)
def test_which_images_are_removed(
    *, used: bool, idle: float, full: bool, enabled: bool, removed: bool
) -> None:
    held = HeldImage(image="i", used=used, idle=idle)
    plan = plan_gc(
        Snapshot(images=(held,), disk_full=full),
        Settings(node_name="mini-1", image_idle=3600.0, gc_images=enabled),
    )
    assert [action.image for action in plan if isinstance(action, RemoveImage)] == ["i"] * removed


@given(
    st.lists(
        st.builds(HeldImage, image=st.text(max_size=3), used=st.booleans(), idle=st.floats(0, 1e6))
    ),
    st.booleans(),
)
def test_nothing_in_use_is_ever_removed(images: list[HeldImage], full: bool) -> None:
    used = [held.image for held in images if held.used]
    unused = [held.image for held in images if not held.used]
    plan = plan_gc(Snapshot(images=tuple(images), disk_full=full), SETTINGS)
    removed = [action.image for action in plan if isinstance(action, RemoveImage)]
    assert all(image in unused for image in removed)
    assert len(removed) <= len(images) - len(used)
