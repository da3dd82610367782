"""Models what Pod plans act on: the state of the API server, the disk, the driver and the image store.

Tests change it (a guest boots or ends, a Pod is deleted) and apply plans one action at a time, so that a
crash can happen between any two.
"""

import msgspec

from runyard.node.plans import actions as do
from runyard.node.plans.images import ImageFacts, ImageState
from runyard.node.plans.pod import PodFacts, Snapshot
from runyard.node.plans.values import Record, vm_name
from runyard.node.settings import Settings
from runyard.vm.contract import VmState, VmView

UID = "6f0c1e1e-0001"
NAME = "pool-a-1"
VM = vm_name(NAME, UID)
IMAGE = "registry/runner@sha256:1"
SETTINGS = Settings(node_name="mini-1")
NOW = 1000.0


def facts(**changes: object) -> PodFacts:
    base = PodFacts(
        uid=UID,
        namespace="runners",
        name=NAME,
        resource_version="7",
        image=IMAGE,
        pool="a",
        fits=True,
        opted_in=True,
        finalizer=True,
        deleting=False,
        grace=30.0,
        phase="Pending",
    )
    return msgspec.structs.replace(base, **changes)


def record(**changes: object) -> Record:
    base = Record(
        uid=UID, namespace="runners", name=NAME, vm=VM, image=IMAGE, pool="a", recorded_at=900.0
    )
    return msgspec.structs.replace(base, **changes)


def view(state: VmState, **changes: object) -> VmView:
    address = "10.0.0.2" if state is VmState.RUNNING else ""
    return msgspec.structs.replace(VmView(name=VM, state=state, address=address), **changes)


def snapshot(**changes: object) -> Snapshot:
    base = Snapshot(uid=UID, pod=facts(), listed=True)
    return msgspec.structs.replace(base, **changes)


class ForbiddenAction(AssertionError):
    """An action that must never be taken."""


class HostModel:
    """The state of one Pod and its VM, changed by actions; actions that real systems refuse raise."""

    def __init__(self, start: Snapshot) -> None:
        self.now = NOW
        self.pod = start.pod
        self.exists = start.pod is not None
        self.proven = start.proven_gone
        self.record = start.record
        self.suspect = start.suspect
        self.listed = start.listed
        self.vm = start.vm
        self.image = start.image.state
        self.starts = 0
        self.ran = start.vm is not None and start.vm.state is not VmState.STOPPED

    def snapshot(self) -> Snapshot:
        return Snapshot(
            uid=UID,
            pod=self.pod,
            proven_gone=self.proven,
            record=self.record,
            suspect=self.suspect,
            listed=self.listed,
            vm=self.vm if self.listed else None,
            image=ImageFacts(
                state=self.image, pinned=IMAGE, error="no" * (self.image is ImageState.FAILED)
            ),
        )

    def crash(self) -> None:
        """Lose what the agent held in memory."""
        self.listed, self.proven = False, False

    def apply(self, action: do.Action) -> None:
        if action.uid != UID or not action.reason:
            raise ForbiddenAction(f"no uid or no reason: {action}")
        getattr(self, "_" + type(action).__name__.lower())(action)

    def _refreshvms(self, action: do.RefreshVms) -> None:
        self.listed = True

    def _verifypod(self, action: do.VerifyPod) -> None:
        self.proven = not self.exists

    def _addfinalizer(self, action: do.AddFinalizer) -> None:
        self._patch(finalizer=True)

    def _saverecord(self, action: do.SaveRecord) -> None:
        self.record = action.record

    def _pullimage(self, action: do.PullImage) -> None:
        self.image = ImageState.HELD

    def _createvm(self, action: do.CreateVm) -> None:
        self._must_own(action.vm)
        if self.image is not ImageState.HELD:
            raise ForbiddenAction("created from an image that is not on the host")
        self.vm = self.vm or view(VmState.STOPPED)

    def _startvm(self, action: do.StartVm) -> None:
        self._must_own(action.vm)
        if self.record is not None and self.record.result is not None:
            raise ForbiddenAction("started although there is a result")
        if self.ran:
            raise ForbiddenAction("ran twice")
        if self.vm is None or self.vm.state is not VmState.STOPPED:
            raise ForbiddenAction(f"started {self.vm}")
        self.vm = view(VmState.BOOTING)
        self.ran = True
        self.starts += 1

    def _stopvm(self, action: do.StopVm) -> None:
        self._must_own(action.vm)
        if self.exists is False and not self.proven:
            raise ForbiddenAction("stopped an orphan without proof")
        if self.vm is not None and self.vm.state in (VmState.BOOTING, VmState.RUNNING):
            self.vm = view(VmState.EXITED, exit_reason="stopped")

    def _deletevm(self, action: do.DeleteVm) -> None:
        self._must_own(action.vm)
        if self.vm is not None and self.vm.state in (VmState.BOOTING, VmState.RUNNING):
            raise ForbiddenAction("removed a running VM")
        self.vm = None

    def _deleterecord(self, action: do.DeleteRecord) -> None:
        if self.vm is not None:
            raise ForbiddenAction("deleted the record of an existing VM")
        self.record, self.suspect = None, False

    def _publishstatus(self, action: do.PublishStatus) -> None:
        report = action.report
        container = "running" if report.ready else f"waiting:{report.waiting}"
        self._patch(
            phase=report.phase,
            reason=report.reason,
            message=report.message,
            pod_ip=report.pod_ip,
            ready=report.ready,
            container="terminated" if report.outcome else container,
        )

    def _removefinalizer(self, action: do.RemoveFinalizer) -> None:
        if self.vm is not None or self.record is not None:
            raise ForbiddenAction("removed the finalizer before the VM")
        self._patch(finalizer=False)

    def _deletepod(self, action: do.DeletePod) -> None:
        if self.pod is None or not self.pod.deleting:
            raise ForbiddenAction("deleted a Pod that is not being deleted")
        self.pod, self.exists = None, False

    def _wait(self, action: do.Wait) -> None:
        pass

    def _ignore(self, action: do.Ignore) -> None:
        pass

    def _patch(self, **changes: object) -> None:
        if self.pod is None:
            raise ForbiddenAction("patched a Pod that does not exist")
        version = str(int(self.pod.resource_version) + 1)
        self.pod = msgspec.structs.replace(self.pod, resource_version=version, **changes)

    def _must_own(self, vm: str) -> None:
        if self.record is None or self.record.vm != vm:
            raise ForbiddenAction(f"touched {vm} without a record")
