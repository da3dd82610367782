"""The reasons of the node agent: why it acts, and what Pods and the Node say about it.

Actions carry a `Why`. `PodReason` and `NodeReason` are published in CamelCase in statuses and conditions. Those that
existing fleets read are in `wire.names` too; a test compares them.
"""

from runyard.wire.kube_reasons import KubeCode
from runyard.wire.reasons import Code


class Why(Code):
    """Why an action is taken."""

    # about a Pod
    NOT_OURS = "not-ours", "not a Pod that this agent runs a VM for"
    VM_STATE_UNKNOWN = (
        "vm-state-unknown",
        "the list of VMs is older than the last action on this VM",
    )
    POD_NOT_LISTED = "pod-not-listed", "no Pod in the list has this uid"
    POD_GONE = "pod-gone", "the API server has no Pod with this uid"
    POD_DELETING = "pod-deleting", "the Pod is being deleted"
    POD_BOUND = "pod-bound", "the Pod is bound to this node"
    POD_ENDED_EXTERNALLY = "pod-ended-externally", "another client ended the Pod"
    FINALIZER_MISSING = "finalizer-missing", "the Pod must not be removed before its VM"
    # about its VM
    VM_WITHOUT_RECORD = "vm-without-record", "a VM of this Pod has no record"
    RECORD_LOST = "record-lost", "the Pod may have run and its record is lost"
    VM_VANISHED = "vm-vanished", "the VM was started and is not on this host any more"
    VM_EXITED = "vm-exited", "the VM has exited"
    VM_UP = "vm-up", "the VM has started or has an address"
    VM_BOOTING = "vm-booting", "the VM boots"
    VM_CREATED = "vm-created", "the VM is created"
    VM_NEVER_STARTED = "vm-never-started", "the VM is created and was never started"
    VM_START_DUE = "vm-start-due", "the VM is about to be started"
    VM_INCOMPLETE = "vm-incomplete", "creating the VM was interrupted"
    CREATED_VM_GONE = "created-vm-gone", "the VM was created, never started, and is gone"
    CREATE_FAILED = "create-failed", "the VM could not be created or started"
    RETRY_LATER = "retry-later", "the last attempt failed; the next one is due later"
    RESULT_KNOWN = "result-known", "the VM's result is known and not published yet"
    RESULT_PUBLISHED = "result-published", "the API server has the result"
    # about its image
    IMAGE_HELD = "image-held", "the image is on this host"
    IMAGE_RESOLVED = "image-resolved", "the image's digest is known"
    PULL_ADVANCED = "pull-advanced", "the pull of the image has moved on"
    IMAGE_ABSENT = "image-absent", "the image is not on this host"
    IMAGE_PULLING = "image-pulling", "the image is being pulled"
    IMAGE_PULL_FAILED = "image-pull-failed", "the image could not be pulled"
    IMAGE_UNUSED = "image-unused", "no Pod has used the image for long"
    DISK_FULL = "disk-full", "the disk is full and no Pod uses the image"
    # about the host
    NO_RECORD = "no-record", "VMs on this host have no record"
    NODE_MISSING = "node-missing", "no Node has this host's name"
    NODE_OUTDATED = (
        "node-outdated",
        "the Node lacks labels, the taint or the provider id of this host",
    )
    HEARTBEAT = "heartbeat", "the Node's status is written periodically"


class PodReason(KubeCode):
    """Reasons in a Pod's status and in its container's state."""

    COMPLETED = "completed", "the guest reported success"
    ERROR = "error", "the guest reported a failure"
    POD_ENDED = "pod-ended", "another client ended the Pod"
    PULLING = "pulling", "the image is being pulled"
    TART_CREATE_FAILED = "tart-create-failed", "{error}"
    TART_RUN_EXITED = "tart-run-exited", "the VM exited"
    TART_RUN_FAILED = "tart-run-failed", "the VM failed"


class NodeReason(KubeCode):
    """Reasons of the Node's conditions."""

    TART_KUBELET_READY = "tart-kubelet-ready", ""
    DRIVER_SILENT = "driver-silent", "no list of the host's VMs for {seconds:.0f} s"
    TART_KUBELET_HAS_SUFFICIENT_DISK = "tart-kubelet-has-sufficient-disk", ""
    TART_KUBELET_HAS_DISK_PRESSURE = "tart-kubelet-has-disk-pressure", "nearly full: {guests}"
    NOT_MEASURED = "not-measured", "this host does not measure it"
