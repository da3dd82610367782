"""What to do next about one Pod incarnation and its VM.

The plan sees one uid: the Pod (if it exists), the record, the VM and the image. It answers with the next
few actions; the loop applies them in order, stops at the first failure, looks again and asks again,
until the plan has nothing to do. So every crash and every lost answer is only another starting point.

Invariants, each a property in the tests:
- A deletion wins over everything else and waits for nothing that concerns another Pod.
- A VM is touched only if there is a record for it; without one, the record is written first.
- A VM whose Pod is not there is stopped only with proof that this incarnation is gone.
- A uid that has a result, or that may have run and cannot be accounted for, is never started.
"""

from enum import StrEnum

import msgspec

from runyard.node.plans.actions import (
    Action,
    AddFinalizer,
    Create,
    DeletePod,
    Forget,
    Ignore,
    Look,
    Prove,
    Publish,
    Pull,
    Remove,
    RemoveFinalizer,
    Report,
    Save,
    Start,
    Stop,
    Wait,
)
from runyard.node.plans.values import Outcome, Phase, Record, bounded, vm_name
from runyard.node.settings import Settings
from runyard.vm.contract import VmState, VmView
from runyard.wire import names

Plan = tuple[Action, ...]

REASON_COMPLETED = "Completed"
REASON_ERROR = "Error"
REASON_ENDED = "PodEnded"


class PodFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What matters of a Pod."""

    uid: str
    namespace: str
    name: str
    resource_version: str
    image: str
    pool: str
    fits: bool  # the shape that a VM can serve
    opted_in: bool  # labelled as a runner
    finalizer: bool  # ours
    deleting: bool
    grace: float  # what is left of the grace period
    phase: str = ""
    reason: str = ""
    message: str = ""
    pod_ip: str = ""
    ready: bool = False
    container: str = ""  # "", "waiting:<why>", "running", "terminated"

    @property
    def admitted(self) -> bool:
        """Whether this Pod is for us: it opted in, or we accepted it before, or held it back."""
        return (self.fits and (self.opted_in or self.finalizer)) or (
            self.finalizer and self.deleting
        )

    @property
    def finished(self) -> bool:
        """Whether the API server knows a result."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def has_run(self) -> bool:
        """Whether its status says that it was running once."""
        return self.phase == "Running" or self.container in ("running", "terminated")


class ImageState(StrEnum):
    """Where an image is."""

    ABSENT = "absent"
    PULLING = "pulling"
    HELD = "held"
    FAILED = "failed"  # and not yet time to try again


class ImageFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the image store says about the Pod's image."""

    state: ImageState = ImageState.ABSENT
    error: str = ""
    retry_in: float = 0.0


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is known of one Pod incarnation."""

    uid: str
    pod: PodFacts | None = None
    proven_gone: bool = False  # the API server said so, about this uid
    record: Record | None = None
    suspect: bool = False  # there was a record that nobody can read
    listed: bool = False  # the list of VMs is newer than our last effect
    vm: VmView | None = None
    image: ImageFacts = ImageFacts()
    hold: float = 0.0  # seconds until the next attempt, after a failed one


def plan_pod(snapshot: Snapshot, settings: Settings, now: float) -> Plan:
    """The next actions; empty when there is nothing to do until something changes."""
    pod = snapshot.pod
    if pod is None:
        return _orphan(snapshot, settings)
    if not pod.admitted and snapshot.record is None:
        return (Ignore(uid=pod.uid, reason="not a Pod for a VM of this agent"),)
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
        return (Look(uid=pod.uid, reason="what became of the VM"),)
    return _live(snapshot, pod, record, now)


def create_failed(error: str) -> Report:
    """The status of a Pod whose VM could not be made or started; it is tried again."""
    return Report(
        phase="Pending",
        reason=names.REASON_CREATE_FAILED,
        message=bounded(error),
        waiting=names.REASON_CREATE_FAILED,
    )


def differs(pod: PodFacts, report: Report) -> bool:
    """Whether a report would change what the API server says."""
    said = (pod.phase, pod.reason, pod.message, pod.pod_ip, pod.ready, pod.container)
    return said != (
        report.phase,
        report.reason,
        report.message,
        report.pod_ip,
        report.ready,
        _container(report),
    )


def outcome_of(vm: VmView, now: float) -> Outcome:
    """How an ended VM ended. The guest's own report counts; without one, the driver's words."""
    finished_at = now if vm.finished_at is None else vm.finished_at
    if vm.exit_code is not None:
        reason = REASON_COMPLETED if vm.exit_code == 0 else REASON_ERROR
        code = vm.exit_code
    elif vm.exit_reason:
        reason, code = names.REASON_RUN_FAILED, 1
    else:
        reason, code = names.REASON_RUN_EXITED, 0
    message = bounded(vm.exit_reason)
    return Outcome(exit_code=code, reason=reason, message=message, finished_at=finished_at)


# ── a Pod that is not there, or not for long ────────────────────────────────────────────────────


def _orphan(snapshot: Snapshot, settings: Settings) -> Plan:
    record = snapshot.record
    if record is None:
        return ()
    if not snapshot.proven_gone:
        reason = "no such Pod in the list"
        return (Prove(uid=record.uid, namespace=record.namespace, name=record.name, reason=reason),)
    return _destroy(record, grace=settings.orphan_grace, reason="its Pod is gone")


def _delete(snapshot: Snapshot, pod: PodFacts, now: float) -> Plan:
    why = "the Pod is being deleted"
    record = snapshot.record
    actions: Plan = ()
    if record is not None:
        actions = _destroy(record, grace=pod.grace, reason=why)
    elif not snapshot.listed:
        return (Look(uid=pod.uid, reason=f"{why}; is there a VM without a record"),)
    elif snapshot.vm is not None:
        adopted = _adopted(pod, snapshot.vm, now)
        saved = Save(uid=pod.uid, record=adopted, reason="a VM of this Pod without a record")
        actions = (saved, *_destroy(adopted, grace=pod.grace, reason=why))
    elif snapshot.suspect:
        actions = (Forget(uid=pod.uid, reason=why),)
    if pod.finalizer:
        version = pod.resource_version
        actions += (RemoveFinalizer(uid=pod.uid, resource_version=version, reason=why),)
    return (*actions, DeletePod(uid=pod.uid, reason=why))


def _destroy(record: Record, *, grace: float, reason: str) -> Plan:
    forget = Forget(uid=record.uid, reason=reason)
    if record.phase is Phase.DELETED:
        return (forget,)
    return (
        Stop(uid=record.uid, vm=record.vm, grace=grace, reason=reason),
        Remove(uid=record.uid, vm=record.vm, reason=reason),
        forget,
    )


# ── a Pod that we know nothing of yet ───────────────────────────────────────────────────────────


def _admit(snapshot: Snapshot, pod: PodFacts, now: float) -> Plan:
    if pod.finished:
        return ()
    if not snapshot.listed:
        return (Look(uid=pod.uid, reason="is there a VM already"),)
    if snapshot.vm is not None:
        record, reason = _adopted(pod, snapshot.vm, now), "a VM of this Pod without a record"
    elif snapshot.suspect or pod.has_run:
        record, reason = _lost(_recorded(pod, now), now), "it may have run and its record is lost"
    elif not pod.finalizer:
        return (_add_finalizer(pod),)
    else:
        record, reason = _recorded(pod, now), "bound to this node"
    return (Save(uid=pod.uid, record=record, reason=reason),)


def _add_finalizer(pod: PodFacts) -> Action:
    version, reason = pod.resource_version, "the Pod must outlive its VM"
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
    reason = "the API server has the result"
    if record.result is None:
        outcome = Outcome(exit_code=137, reason=REASON_ENDED, message=pod.reason, finished_at=now)
        reason = "somebody else ended this Pod"
        record = msgspec.structs.replace(record, result=outcome)
        grace = pod.grace
    elif record.phase is Phase.DELETED:
        return ()
    elif record.phase is Phase.EXITED:
        published = msgspec.structs.replace(record, phase=Phase.PUBLISHED)
        return (Save(uid=record.uid, record=published, reason=reason),)
    else:
        grace = 0.0
    return (
        Stop(uid=record.uid, vm=record.vm, grace=grace, reason=reason),
        Remove(uid=record.uid, vm=record.vm, reason=reason),
        _save(record, reason, phase=Phase.DELETED),
    )


def _publish_result(record: Record, outcome: Outcome) -> Plan:
    reason = "it has ended"
    report = Report(
        phase="Succeeded" if outcome.succeeded else "Failed",
        reason=names.REASON_RUN_EXITED,
        message=outcome.message,
        started_at=record.started_at,
        outcome=outcome,
    )
    publish = Publish(uid=record.uid, report=report, reason=reason)
    if record.phase is not Phase.EXITED:
        return (publish,)
    return (publish, _save(record, "acknowledged", phase=Phase.PUBLISHED))


def _lost(record: Record, now: float) -> Record:
    outcome = Outcome(
        exit_code=1,
        reason=names.REASON_RUN_FAILED,
        message="the VM vanished from its host",
        finished_at=now,
    )
    return msgspec.structs.replace(record, phase=Phase.EXITED, result=outcome)


# ── a Pod that should run ───────────────────────────────────────────────────────────────────────


def _live(snapshot: Snapshot, pod: PodFacts, record: Record, now: float) -> Plan:
    vm = snapshot.vm
    if vm is None:
        if record.phase is Phase.STARTED:
            reason = "started, and not on this host any more"
            return (Save(uid=record.uid, record=_lost(record, now), reason=reason),)
        return _provision(pod, record, snapshot)
    if vm.state is VmState.EXITED:
        ended = msgspec.structs.replace(record, phase=Phase.EXITED, result=outcome_of(vm, now))
        return (Save(uid=record.uid, record=ended, reason="the VM has ended"),)
    if vm.state is VmState.STOPPED:
        return _start(record, snapshot.hold, now)
    return _running(pod, record, vm, now)


def _provision(pod: PodFacts, record: Record, snapshot: Snapshot) -> Plan:
    image = snapshot.image
    if record.phase is not Phase.INTENDED:
        return (_save(record, "created, never started, and gone", phase=Phase.INTENDED),)
    if image.state is ImageState.HELD and snapshot.hold > 0:
        return (_hold(record, snapshot.hold),)
    if image.state is ImageState.HELD:
        reason = "the image is here"
        return (
            Create(uid=record.uid, vm=record.vm, image=record.image, reason=reason),
            _save(record, "created", phase=Phase.CREATED),
        )
    if image.state is ImageState.ABSENT:
        return (Pull(uid=record.uid, image=record.image, reason="the image is not here"),)
    if image.state is ImageState.FAILED:
        said = _say(pod, create_failed(image.error), "the image cannot be had")
        wait = Wait(uid=record.uid, seconds=image.retry_in, reason="before the next pull")
        return (*said, wait)
    report = Report(phase="Pending", waiting=names.WAITING_PULL)
    return _say(pod, report, "the image is being pulled")


def _start(record: Record, hold: float, now: float) -> Plan:
    if record.phase is Phase.INTENDED:
        # Cut short while it was made: nobody knows what of the guest's files is there.
        return (Remove(uid=record.uid, vm=record.vm, reason="half made"),)
    if hold > 0:
        return (_hold(record, hold),)
    start = Start(uid=record.uid, vm=record.vm, reason="it never ran")
    if record.phase is Phase.STARTED:
        return (start,)
    announced = msgspec.structs.replace(record, phase=Phase.STARTED, started_at=now)
    return (Save(uid=record.uid, record=announced, reason="about to start"), start)


def _hold(record: Record, seconds: float) -> Action:
    return Wait(uid=record.uid, seconds=seconds, reason="before the next attempt")


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
        saves = (Save(uid=record.uid, record=seen, reason="the VM is up"),)
    report = Report(phase="Pending", waiting=names.WAITING_BOOT)
    if booted:
        address = vm.address
        report = Report(phase="Running", ready=True, pod_ip=address, started_at=seen.started_at)
    elif pod.phase == "Running":
        return saves  # an address that is not seen for a moment is no reason to take Ready back
    return (*saves, *_say(pod, report, f"the VM is {vm.state}"))


def _say(pod: PodFacts, report: Report, reason: str) -> Plan:
    if not differs(pod, report):
        return ()
    return (Publish(uid=pod.uid, report=report, reason=reason),)


def _save(record: Record, reason: str, *, phase: Phase) -> Action:
    record = msgspec.structs.replace(record, phase=phase)
    return Save(uid=record.uid, record=record, reason=reason)


def _container(report: Report) -> str:
    if report.outcome is not None:
        return "terminated"
    return "running" if report.ready else f"waiting:{report.waiting}"
