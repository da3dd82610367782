"""The actions of the Pod plan.

Each action names the Pod's uid and its reason. A stale plan does no harm: an action on the API server carries the uid
or the resourceVersion that it was decided on, and an action on a VM uses a name that contains the uid.
"""

import msgspec

from runyard.node.plans.reasons import Why
from runyard.node.plans.values import Outcome, Record


class Action(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """One effect on one Pod or its VM."""

    uid: str
    reason: Why


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The Pod's status as it should be written."""

    phase: str
    reason: str = ""
    message: str = ""
    waiting: str = ""  # why the container waits
    ready: bool = False
    pod_ip: str = ""
    started_at: float | None = None
    outcome: Outcome | None = None


class VerifyPod(Action, frozen=True, tag=True):
    """Read the Pod from the API server to learn whether this uid still exists."""

    namespace: str
    name: str


class RefreshVms(Action, frozen=True, tag=True):
    """Get a list of VMs that is newer than the last action on this one."""


class AddFinalizer(Action, frozen=True, tag=True):
    """Add the finalizer that keeps the Pod until its VM is deleted."""

    resource_version: str


class SaveRecord(Action, frozen=True, tag=True):
    """Write the VM's record, before the action that it announces."""

    record: Record


class PullImage(Action, frozen=True, tag=True):
    """Request the image from the image store; the Pod is queued again when the pull has ended."""

    image: str


class CreateVm(Action, frozen=True, tag=True):
    """Get the guest's token, resolve its environment, clone the image."""

    vm: str
    image: str


class StartVm(Action, frozen=True, tag=True):
    """Start a VM that never ran."""

    vm: str


class PublishStatus(Action, frozen=True, tag=True):
    """Patch the Pod's status."""

    report: Report


class StampProgress(Action, frozen=True, tag=True):
    """Note in the Pod when its start last moved on, for the pool's start deadline."""

    at: float
    resource_version: str


class StopVm(Action, frozen=True, tag=True):
    """Request a shutdown from the guest, wait for the grace period, then power off."""

    vm: str
    grace: float


class DeleteVm(Action, frozen=True, tag=True):
    """Delete the VM."""

    vm: str


class DeleteRecord(Action, frozen=True, tag=True):
    """Delete the record."""


class RemoveFinalizer(Action, frozen=True, tag=True):
    """Remove the finalizer, so that the API server may remove the Pod."""

    resource_version: str


class DeletePod(Action, frozen=True, tag=True):
    """Confirm a deletion that was requested."""


class Wait(Action, frozen=True, tag=True):
    """Do nothing for this many seconds."""

    seconds: float


class Ignore(Action, frozen=True, tag=True):
    """Ignore a Pod that this agent does not run."""
