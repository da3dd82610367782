"""Plans the next actions for one Pod and its VM.

The plan covers one uid: the Pod (if it exists), the record, the VM and the image. It returns the next few actions; the
loop applies them in order, stops at the first failure, reads a new snapshot and plans again, until the plan is empty.
So after a crash or a lost response it continues from whatever state it finds.

Invariants, each a property in the tests:
- A deletion has priority over everything else and never waits for work on another Pod.
- A VM is touched only if there is a record for it; without one, the record is written first.
- A VM that others made under the name of ours is as good as absent: `create` is refused, and the Pod says so.
- A VM whose Pod is not listed is stopped only with proof that this incarnation of the Pod is gone.
- A uid that has a result, or that may have run and cannot be accounted for, is never started.
"""

import msgspec

from runyard.node.plans.actions import (
    Action,
    AddFinalizer,
    CreateVm,
    DeletePod,
    DeleteRecord,
    DeleteVm,
    Ignore,
    PublishStatus,
    PullImage,
    RefreshVms,
    RemoveFinalizer,
    Report,
    SaveRecord,
    StampProgress,
    StartVm,
    StopVm,
    VerifyPod,
    Wait,
)
from runyard.node.plans.images import ImageFacts, ImageState, PullState, describe
from runyard.node.plans.reasons import PodReason, Why
from runyard.node.plans.values import Outcome, Phase, Record, bounded, vm_name
from runyard.node.settings import Settings
from runyard.vm.contract import Fault, VmState, VmView
from runyard.wire import names

Plan = tuple[Action, ...]


class PodFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a Pod that the plan uses."""

    uid: str
    namespace: str
    name: str
    resource_version: str
    image: str
    pool: str
    fits: bool  # a VM can run it: one container, no init containers
    opted_in: bool  # a runner, or a Pod that selects hosts of our kind and tolerates their taint
    finalizer: bool  # ours
    deleting: bool
    grace: float  # what is left of the grace period
    phase: str = ""
    reason: str = ""
    message: str = ""
    pod_ip: str = ""
    ready: bool = False
    container: str = ""  # "", "waiting:<why>", "running", "terminated"
    progress_at: float | None = None  # when its start last moved on, as it says itself

    @property
    def admitted(self) -> bool:
        """Whether this agent runs the Pod: it opted in, or carries our finalizer."""
        return (self.fits and (self.opted_in or self.finalizer)) or (
            self.finalizer and self.deleting
        )

    @property
    def finished(self) -> bool:
        """Whether the API server has a result."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def has_run(self) -> bool:
        """Whether its status says that it was running once."""
        return self.phase == "Running" or self.container in ("running", "terminated")


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one Pod incarnation, its record, its VM and its image."""

    uid: str
    pod: PodFacts | None = None
    proven_gone: bool = False  # a read from the API server proved that this uid is gone
    record: Record | None = None
    suspect: bool = False  # there is a record that cannot be read
    listed: bool = False  # the list of VMs is newer than our last effect
    vm: VmView | None = None
    image: ImageFacts = ImageFacts()
    hold: float = 0.0  # seconds until the next attempt, after a failed one

    @property
    def own_vm(self) -> VmView | None:
        """The VM, if its driver has created it: others may have given one of theirs the same name."""
        return self.vm if self.vm is not None and self.vm.owned else None


def plan_pod(snapshot: Snapshot, settings: Settings, now: float) -> Plan:
    """Return the next actions; empty until something changes."""
    pod = snapshot.pod
    if pod is None:
        return _orphan(snapshot, settings)
    if not pod.admitted and snapshot.record is None:
        return (Ignore(uid=pod.uid, reason=Why.NOT_OURS),)
    if pod.deleting:
        return _delete(snapshot, pod, now)
    record = snapshot.record
    if record is None:
        return _admit(snapshot, pod, now)
    if pod.finished:
        return _finished(record, pod, now)
    if record.result is not None:
        return _publish_result(record, record.result)
    if not pod.finalizer:
        return (_add_finalizer(pod),)
    if not snapshot.listed:
        return (RefreshVms(uid=pod.uid, reason=Why.VM_STATE_UNKNOWN),)
    return _live(snapshot, pod, record, settings, now)


def create_failed(error: str, fault: Fault | None) -> Report:
    """Return the status of a Pod whose VM could not be created or started; it is retried.

    The container's reason is the kind of failure. The Pod's own reason is what existing fleets look for, except for
    a Pod that waits for a slot: nothing has failed.
    """
    failed = PodReason.TART_CREATE_FAILED.camel
    waiting = failed if fault is None else fault.camel
    reason = waiting if fault is Fault.SLOTS_FULL else failed
    return Report(phase="Pending", reason=reason, message=bounded(error), waiting=waiting)


def not_started(record: Record) -> Record:
    """Return the record of a VM whose start was refused because too many VMs run: its time has not begun."""
    return msgspec.structs.replace(record, phase=Phase.CREATED, started_at=None, booted_at=None)


def differs(pod: PodFacts, report: Report) -> bool:
    """Return whether a report differs from the Pod's status."""
    current = (pod.phase, pod.reason, pod.message, pod.pod_ip, pod.ready, pod.container)
    return current != (
        report.phase,
        report.reason,
        report.message,
        report.pod_ip,
        report.ready,
        _container(report),
    )


def outcome_of(vm: VmView, now: float) -> Outcome:
    """Return how a VM ended: by the guest's own exit code, else by the driver's reason."""
    finished_at = now if vm.finished_at is None else vm.finished_at
    if vm.exit_code is not None:
        reason = PodReason.COMPLETED if vm.exit_code == 0 else PodReason.ERROR
        code = vm.exit_code
    elif vm.exit_reason:
        reason, code = PodReason.TART_RUN_FAILED, max(1, vm.exit_status or 1)
    else:
        reason, code = PodReason.TART_RUN_EXITED, 0
    message = bounded(vm.exit_reason)
    return Outcome(exit_code=code, reason=reason.camel, message=message, finished_at=finished_at)


# ── a Pod that is gone or being deleted ────────────────────────────────────────────────────


def _orphan(snapshot: Snapshot, settings: Settings) -> Plan:
    record = snapshot.record
    if record is None:
        return ()
    if not snapshot.proven_gone:
        why = Why.POD_NOT_LISTED
        return (
            VerifyPod(uid=record.uid, namespace=record.namespace, name=record.name, reason=why),
        )
    return _destroy(record, grace=settings.orphan_grace, reason=Why.POD_GONE)


def _delete(snapshot: Snapshot, pod: PodFacts, now: float) -> Plan:
    why = Why.POD_DELETING
    record = snapshot.record
    actions: Plan = ()
    if record is not None:
        actions = _destroy(record, grace=pod.grace, reason=why)
    elif not snapshot.listed:
        return (RefreshVms(uid=pod.uid, reason=Why.VM_STATE_UNKNOWN),)
    elif snapshot.own_vm is not None:
        adopted = _adopted(pod, snapshot.own_vm, now)
        saved = SaveRecord(uid=pod.uid, record=adopted, reason=Why.VM_WITHOUT_RECORD)
        actions = (saved, *_destroy(adopted, grace=pod.grace, reason=why))
    elif snapshot.suspect:
        actions = (DeleteRecord(uid=pod.uid, reason=why),)
    if pod.finalizer:
        version = pod.resource_version
        actions += (RemoveFinalizer(uid=pod.uid, resource_version=version, reason=why),)
    return (*actions, DeletePod(uid=pod.uid, reason=why))


def _destroy(record: Record, *, grace: float, reason: Why) -> Plan:
    forget = DeleteRecord(uid=record.uid, reason=reason)
    if record.phase is Phase.DELETED:
        return (forget,)
    return (
        StopVm(uid=record.uid, vm=record.vm, grace=grace, reason=reason),
        DeleteVm(uid=record.uid, vm=record.vm, reason=reason),
        forget,
    )


# ── a Pod without a record ───────────────────────────────────────────────────────────


def _admit(snapshot: Snapshot, pod: PodFacts, now: float) -> Plan:
    if pod.finished:
        return ()
    if not snapshot.listed:
        return (RefreshVms(uid=pod.uid, reason=Why.VM_STATE_UNKNOWN),)
    if snapshot.own_vm is not None:
        record, reason = _adopted(pod, snapshot.own_vm, now), Why.VM_WITHOUT_RECORD
    elif snapshot.suspect or pod.has_run:
        record, reason = _lost(_recorded(pod, now), now), Why.RECORD_LOST
    elif not pod.finalizer:
        return (_add_finalizer(pod),)
    else:
        record, reason = _recorded(pod, now), Why.POD_BOUND
    return (SaveRecord(uid=pod.uid, record=record, reason=reason),)


def _add_finalizer(pod: PodFacts) -> Action:
    version, reason = pod.resource_version, Why.FINALIZER_MISSING
    return AddFinalizer(uid=pod.uid, resource_version=version, reason=reason)


def _recorded(pod: PodFacts, now: float) -> Record:
    return Record(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        vm=vm_name(pod.name, pod.uid),
        image=pod.image,
        pool=pod.pool,
        recorded_at=now,
    )


def _adopted(pod: PodFacts, vm: VmView, now: float) -> Record:
    record = _recorded(pod, now)
    if vm.state is VmState.STOPPED:
        return record
    return msgspec.structs.replace(record, phase=Phase.STARTED, started_at=now, booted_at=now)


# ── a Pod that has ended ────────────────────────────────────────────────────────────────────────


def _finished(record: Record, pod: PodFacts, now: float) -> Plan:
    reason = Why.RESULT_PUBLISHED
    if record.result is None:
        outcome = Outcome(
            exit_code=137, reason=PodReason.POD_ENDED.camel, message=pod.reason, finished_at=now
        )
        reason = Why.POD_ENDED_EXTERNALLY
        record = msgspec.structs.replace(record, result=outcome)
        grace = pod.grace
    elif record.phase is Phase.DELETED:
        return ()
    elif record.phase is Phase.EXITED:
        published = msgspec.structs.replace(record, phase=Phase.PUBLISHED)
        return (SaveRecord(uid=record.uid, record=published, reason=reason),)
    else:
        grace = 0.0
    return (
        StopVm(uid=record.uid, vm=record.vm, grace=grace, reason=reason),
        DeleteVm(uid=record.uid, vm=record.vm, reason=reason),
        _save(record, reason, phase=Phase.DELETED),
    )


def _publish_result(record: Record, outcome: Outcome) -> Plan:
    reason = Why.RESULT_KNOWN
    report = Report(
        phase="Succeeded" if outcome.succeeded else "Failed",
        reason=PodReason.TART_RUN_EXITED.camel,
        message=outcome.message,
        started_at=record.started_at,
        outcome=outcome,
    )
    publish = PublishStatus(uid=record.uid, report=report, reason=reason)
    if record.phase is not Phase.EXITED:
        return (publish,)
    return (publish, _save(record, Why.RESULT_PUBLISHED, phase=Phase.PUBLISHED))


def _lost(record: Record, now: float) -> Record:
    outcome = Outcome(
        exit_code=1,
        reason=PodReason.TART_RUN_FAILED.camel,
        message=Why.VM_VANISHED.template,
        finished_at=now,
    )
    return msgspec.structs.replace(record, phase=Phase.EXITED, result=outcome)


# ── a Pod that should run ───────────────────────────────────────────────────────────────────────


def _live(
    snapshot: Snapshot, pod: PodFacts, record: Record, settings: Settings, now: float
) -> Plan:
    vm = snapshot.own_vm
    if vm is None:
        if record.phase is Phase.STARTED:
            reason = Why.VM_VANISHED
            return (SaveRecord(uid=record.uid, record=_lost(record, now), reason=reason),)
        return _provision(pod, record, snapshot, settings)
    if vm.state is VmState.EXITED:
        ended = msgspec.structs.replace(record, phase=Phase.EXITED, result=outcome_of(vm, now))
        return (SaveRecord(uid=record.uid, record=ended, reason=Why.VM_EXITED),)
    if vm.state is VmState.STOPPED:
        return _start(record, snapshot.hold, now)
    return _running(pod, record, vm, now)


def _provision(pod: PodFacts, record: Record, snapshot: Snapshot, settings: Settings) -> Plan:
    image = snapshot.image
    if record.phase is not Phase.INTENDED:
        return (_save(record, Why.CREATED_VM_GONE, phase=Phase.INTENDED),)
    if image.state is ImageState.HELD and snapshot.hold > 0:
        return (_hold(record, snapshot.hold),)
    if image.state is ImageState.HELD:
        return _create(record, image.pinned)
    if image.state is ImageState.ABSENT:
        return (PullImage(uid=record.uid, image=record.source, reason=Why.IMAGE_ABSENT),)
    if image.state is ImageState.FAILED:
        publish = _publish(pod, create_failed(image.error, image.fault), Why.IMAGE_PULL_FAILED)
        wait = Wait(uid=record.uid, seconds=image.retry_in, reason=Why.IMAGE_PULL_FAILED)
        return (*publish, wait)
    report = Report(phase="Pending", message=describe(image.pull), waiting=PodReason.PULLING.camel)
    return (*_publish(pod, report, Why.IMAGE_PULLING), *_stamp(pod, image.pull, settings))


def _create(record: Record, pinned: str) -> Plan:
    """The digest is recorded before the VM is created, so that a moving tag changes no VM of this Pod."""
    saves: Plan = ()
    if record.source != pinned:
        record = msgspec.structs.replace(record, pinned=pinned)
        saves = (SaveRecord(uid=record.uid, record=record, reason=Why.IMAGE_RESOLVED),)
    return (
        *saves,
        CreateVm(uid=record.uid, vm=record.vm, image=pinned, reason=Why.IMAGE_HELD),
        _save(record, Why.VM_CREATED, phase=Phase.CREATED),
    )


def _stamp(pod: PodFacts, pull: PullState | None, settings: Settings) -> Plan:
    if pull is None:
        return ()
    if pod.progress_at is not None and pull.at - pod.progress_at < settings.stamp_every:
        return ()
    version = pod.resource_version
    return (
        StampProgress(uid=pod.uid, at=pull.at, resource_version=version, reason=Why.PULL_ADVANCED),
    )


def _start(record: Record, hold: float, now: float) -> Plan:
    if record.phase is Phase.INTENDED:
        # Interrupted while it was created: the guest's files may be incomplete.
        return (DeleteVm(uid=record.uid, vm=record.vm, reason=Why.VM_INCOMPLETE),)
    if hold > 0:
        return (_hold(record, hold),)
    start = StartVm(uid=record.uid, vm=record.vm, reason=Why.VM_NEVER_STARTED)
    if record.phase is Phase.STARTED:
        return (start,)
    announced = msgspec.structs.replace(record, phase=Phase.STARTED, started_at=now)
    return (SaveRecord(uid=record.uid, record=announced, reason=Why.VM_START_DUE), start)


def _hold(record: Record, seconds: float) -> Action:
    return Wait(uid=record.uid, seconds=seconds, reason=Why.RETRY_LATER)


def _running(pod: PodFacts, record: Record, vm: VmView, now: float) -> Plan:
    booted = vm.state is VmState.RUNNING
    seen = msgspec.structs.replace(
        record,
        phase=Phase.STARTED,
        started_at=now if record.started_at is None else record.started_at,
        booted_at=now if booted and record.booted_at is None else record.booted_at,
    )
    saves: Plan = ()
    if seen != record:
        saves = (SaveRecord(uid=record.uid, record=seen, reason=Why.VM_UP),)
    report = Report(phase="Pending", waiting=names.WAITING_BOOT)
    if booted:
        address = vm.address
        report = Report(phase="Running", ready=True, pod_ip=address, started_at=seen.started_at)
    elif pod.phase == "Running":
        return saves  # Ready stays True while the address is missing for a moment
    return (*saves, *_publish(pod, report, Why.VM_UP if booted else Why.VM_BOOTING))


def _publish(pod: PodFacts, report: Report, reason: Why) -> Plan:
    if not differs(pod, report):
        return ()
    return (PublishStatus(uid=pod.uid, report=report, reason=reason),)


def _save(record: Record, reason: Why, *, phase: Phase) -> Action:
    record = msgspec.structs.replace(record, phase=phase)
    return SaveRecord(uid=record.uid, record=record, reason=reason)


def _container(report: Report) -> str:
    if report.outcome is not None:
        return "terminated"
    return "running" if report.ready else f"waiting:{report.waiting}"
