"""What may be done about one Pod and its VM: the vocabulary of the Pod plan.

Each action names the Pod incarnation that it is for and says why. A stale plan does no harm: what
touches the API server carries the uid or the resourceVersion that it was decided on, and what touches
a VM names it by a name that carries the uid.
"""

import msgspec

from runyard.node.plans.values import Outcome, Record


class Action(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """One effect, for one Pod incarnation, for a reason."""

    uid: str
    reason: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What the Pod's status should say."""

    phase: str
    reason: str = ""
    message: str = ""
    waiting: str = ""  # why the container waits
    ready: bool = False
    pod_ip: str = ""
    started_at: float | None = None
    outcome: Outcome | None = None


class Prove(Action, frozen=True, tag=True):
    """Ask the API server whether this incarnation still exists."""

    namespace: str
    name: str


class Look(Action, frozen=True, tag=True):
    """Get a list of VMs that is newer than our last effect on this one."""


class AddFinalizer(Action, frozen=True, tag=True):
    """Make sure that the Pod cannot vanish before its VM."""

    resource_version: str


class Save(Action, frozen=True, tag=True):
    """Write the record, before what it announces."""

    record: Record


class Pull(Action, frozen=True, tag=True):
    """Ask the image store to fetch the image; it wakes the Pod when it is done."""

    image: str


class Create(Action, frozen=True, tag=True):
    """Get the guest's token, resolve its environment, clone the image."""

    vm: str
    image: str


class Start(Action, frozen=True, tag=True):
    """Start a VM that never ran."""

    vm: str


class Publish(Action, frozen=True, tag=True):
    """Patch the Pod's status."""

    report: Report


class Stop(Action, frozen=True, tag=True):
    """Ask the guest to end, then power off."""

    vm: str
    grace: float


class Remove(Action, frozen=True, tag=True):
    """Delete the VM."""

    vm: str


class Forget(Action, frozen=True, tag=True):
    """Delete the record."""


class RemoveFinalizer(Action, frozen=True, tag=True):
    """Let the Pod go."""

    resource_version: str


class DeletePod(Action, frozen=True, tag=True):
    """Confirm the deletion that somebody asked for."""


class Wait(Action, frozen=True, tag=True):
    """Nothing to do before so many seconds have passed."""

    seconds: float


class Ignore(Action, frozen=True, tag=True):
    """Not a Pod for this agent."""
