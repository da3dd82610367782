"""Tests the garbage collection plan: only images and VMs of the agent are touched."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.node.pod_model import UID, VM, record

from runyard.node.plans.gc import (
    HeldImage,
    RemoveImage,
    RequeuePod,
    Snapshot,
    plan_gc,
    unowned,
)
from runyard.node.settings import Settings
from runyard.vm.contract import VmState, VmView

SETTINGS = Settings(node_name="mini-1", image_idle=3600.0)


def vm(name: str, *, owned: bool = True) -> VmView:
    return VmView(name=name, state=VmState.RUNNING, owned=owned)


def test_only_vms_without_a_record_are_unowned() -> None:
    assert unowned((vm(VM), vm("packer")), (record(),)) == ("packer",)


def test_a_vm_that_others_made_under_the_name_of_ours_is_unowned() -> None:
    assert unowned((vm(VM, owned=False),), (record(),)) == (VM,)


def test_a_record_without_a_pod_is_requeued() -> None:
    (action,) = plan_gc(Snapshot(records=(record(),)), SETTINGS)
    assert isinstance(action, RequeuePod) and (action.uid, action.key) == (UID, record().key)


IMAGES = {
    "used": (True, 9999.0, False, True, False),
    "idle for long": (False, 3600.0, False, True, True),
    "idle for a while": (False, 3599.0, False, True, False),
    "disk full": (False, 0.0, True, True, True),
    "disk full but used": (True, 9999.0, True, True, False),
    "pulled by another tool": (False, 9999.0, True, False, False),
}


@pytest.mark.parametrize(
    ("used", "idle", "full", "owned", "removed"), IMAGES.values(), ids=list(IMAGES)
)
def test_which_images_are_removed(
    *, used: bool, idle: float, full: bool, owned: bool, removed: bool
) -> None:
    held = HeldImage(image="i", owned=owned, used=used, idle=idle)
    plan = plan_gc(Snapshot(images=(held,), disk_full=full), SETTINGS)
    assert [action.image for action in plan if isinstance(action, RemoveImage)] == ["i"] * removed


@given(
    st.lists(
        st.builds(
            HeldImage,
            image=st.text(max_size=3),
            owned=st.booleans(),
            used=st.booleans(),
            idle=st.floats(0, 1e6),
        )
    ),
    st.booleans(),
)
def test_nothing_in_use_or_of_others_is_ever_removed(images: list[HeldImage], full: bool) -> None:
    kept = [held.image for held in images if held.used or not held.owned]
    free = [held.image for held in images if held.owned and not held.used]
    plan = plan_gc(Snapshot(images=tuple(images), disk_full=full), SETTINGS)
    removed = [action.image for action in plan if isinstance(action, RemoveImage)]
    assert all(image in free for image in removed)
    assert len(removed) <= len(images) - len(kept)
