"""Tests the Pod plan: a table of decisions, and properties that hold for any sequence of events."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.node.pod_model import (
    IMAGE,
    NOW,
    SETTINGS,
    VM,
    HostModel,
    facts,
    record,
    snapshot,
    view,
)
from tests.tiers import examples

from runyard.node.plans import actions as do
from runyard.node.plans.images import ImageFacts, ImageState, PullState, describe
from runyard.node.plans.pod import PodFacts, Snapshot, outcome_of, plan_pod
from runyard.node.plans.reasons import Why
from runyard.node.plans.values import Outcome, Phase, Record, bounded, vm_name
from runyard.vm.contract import VmState, VmView
from runyard.wire import names

HELD = ImageFacts(state=ImageState.HELD, pinned=IMAGE)
PULLING = ImageFacts(state=ImageState.PULLING)
FAILED = ImageFacts(state=ImageState.FAILED, error="401 from the registry", retry_in=12.0)
RESULT = Outcome(exit_code=0, reason="Completed", finished_at=990.0)
STARTED = record(phase=Phase.STARTED, started_at=950.0)
BOOTED = record(phase=Phase.STARTED, started_at=950.0, booted_at=960.0)
ENDED = record(phase=Phase.EXITED, started_at=950.0, result=RESULT)
DELETING = facts(deleting=True)
RUNNING_POD = facts(phase="Running", ready=True, pod_ip="10.0.0.2", container="running")
OTHERS = view(VmState.STOPPED, owned=False)

ROWS: dict[str, tuple[Snapshot, tuple[type[do.Action], ...]]] = {
    "two containers": (snapshot(pod=facts(fits=False, finalizer=False)), (do.Ignore,)),
    "did not opt in": (snapshot(pod=facts(opted_in=False, finalizer=False)), (do.Ignore,)),
    "label taken off later": (
        snapshot(pod=facts(opted_in=False), record=BOOTED, vm=view(VmState.EXITED)),
        (do.SaveRecord,),
    ),
    "a debug container was attached to a running Pod": (
        snapshot(pod=facts(fits=False), record=BOOTED, vm=view(VmState.EXITED)),
        (do.SaveRecord,),
    ),
    "new, VMs not listed yet": (snapshot(listed=False), (do.RefreshVms,)),
    "new, no finalizer": (snapshot(pod=facts(finalizer=False)), (do.AddFinalizer,)),
    "new, with finalizer": (snapshot(), (do.SaveRecord,)),
    "finished before the agent saw it": (snapshot(pod=facts(phase="Failed")), ()),
    "intended, image absent": (snapshot(record=record()), (do.PullImage,)),
    "intended, image being pulled": (snapshot(record=record(), image=PULLING), (do.PublishStatus,)),
    "intended, already published": (
        snapshot(record=record(), image=PULLING, pod=facts(container="waiting:Pulling")),
        (),
    ),
    "intended, pull failed": (snapshot(record=record(), image=FAILED), (do.PublishStatus, do.Wait)),
    "intended, image held": (snapshot(record=record(), image=HELD), (do.CreateVm, do.SaveRecord)),
    "intended, failed just now": (snapshot(record=record(), image=HELD, hold=3.0), (do.Wait,)),
    "intended, creation interrupted": (
        snapshot(record=record(), vm=view(VmState.STOPPED)),
        (do.DeleteVm,),
    ),
    "created, never started, gone": (
        snapshot(record=record(phase=Phase.CREATED)),
        (do.SaveRecord,),
    ),
    "created": (
        snapshot(record=record(phase=Phase.CREATED), vm=view(VmState.STOPPED)),
        (do.SaveRecord, do.StartVm),
    ),
    "start announced, not done": (
        snapshot(record=STARTED, vm=view(VmState.STOPPED)),
        (do.StartVm,),
    ),
    "start failed just now": (
        snapshot(record=STARTED, vm=view(VmState.STOPPED), hold=3.0),
        (do.Wait,),
    ),
    "started, not recorded": (
        snapshot(record=record(phase=Phase.CREATED), vm=view(VmState.RUNNING)),
        (do.SaveRecord, do.PublishStatus),
    ),
    "booting": (snapshot(record=STARTED, vm=view(VmState.BOOTING)), (do.PublishStatus,)),
    "up": (snapshot(record=STARTED, vm=view(VmState.RUNNING)), (do.SaveRecord, do.PublishStatus)),
    "up, already published": (
        snapshot(record=BOOTED, vm=view(VmState.RUNNING), pod=RUNNING_POD),
        (),
    ),
    "address lost for a moment": (
        snapshot(record=BOOTED, vm=view(VmState.BOOTING), pod=RUNNING_POD),
        (),
    ),
    "ended": (snapshot(record=BOOTED, vm=view(VmState.EXITED, exit_code=0)), (do.SaveRecord,)),
    "started and vanished": (snapshot(record=STARTED), (do.SaveRecord,)),
    "result known": (snapshot(record=ENDED), (do.PublishStatus, do.SaveRecord)),
    "result known, VM still listed as running": (
        snapshot(record=ENDED, vm=view(VmState.RUNNING)),
        (do.PublishStatus, do.SaveRecord),
    ),
    "result acknowledged, response lost": (
        snapshot(record=ENDED, pod=facts(phase="Succeeded")),
        (do.SaveRecord,),
    ),
    "published, VM still there": (
        snapshot(record=record(phase=Phase.PUBLISHED, result=RESULT), pod=facts(phase="Succeeded")),
        (do.StopVm, do.DeleteVm, do.SaveRecord),
    ),
    "published, waiting for its deletion": (
        snapshot(record=record(phase=Phase.DELETED, result=RESULT), pod=facts(phase="Succeeded")),
        (),
    ),
    "another client reset the status": (
        snapshot(record=record(phase=Phase.DELETED, result=RESULT), pod=RUNNING_POD),
        (do.PublishStatus,),
    ),
    "evicted while running": (
        snapshot(record=BOOTED, vm=view(VmState.RUNNING), pod=facts(phase="Failed")),
        (do.StopVm, do.DeleteVm, do.SaveRecord),
    ),
    "record lost, VM there": (snapshot(vm=view(VmState.RUNNING)), (do.SaveRecord,)),
    "record unreadable, VM gone": (snapshot(suspect=True), (do.SaveRecord,)),
    "host wiped under a running Pod": (snapshot(pod=RUNNING_POD), (do.SaveRecord,)),
    "deleting while running": (
        snapshot(pod=DELETING, record=BOOTED, vm=view(VmState.RUNNING)),
        (do.StopVm, do.DeleteVm, do.DeleteRecord, do.RemoveFinalizer, do.DeletePod),
    ),
    "deleting, driver does not respond": (
        snapshot(pod=DELETING, record=BOOTED, listed=False),
        (do.StopVm, do.DeleteVm, do.DeleteRecord, do.RemoveFinalizer, do.DeletePod),
    ),
    "deleting, record already gone": (
        snapshot(pod=DELETING),
        (do.RemoveFinalizer, do.DeletePod),
    ),
    "deleting, record lost, VM there": (
        snapshot(pod=DELETING, vm=view(VmState.RUNNING)),
        (do.SaveRecord, do.StopVm, do.DeleteVm, do.DeleteRecord, do.RemoveFinalizer, do.DeletePod),
    ),
    "deleting, without finalizer": (
        snapshot(pod=facts(deleting=True, finalizer=False)),
        (do.DeletePod,),
    ),
    "deleting, finished and cleaned": (
        snapshot(pod=DELETING, record=record(phase=Phase.DELETED, result=RESULT)),
        (do.DeleteRecord, do.RemoveFinalizer, do.DeletePod),
    ),
    "Pod missing": (snapshot(pod=None, record=BOOTED, vm=view(VmState.RUNNING)), (do.VerifyPod,)),
    "Pod proven gone": (
        snapshot(pod=None, record=BOOTED, vm=view(VmState.RUNNING), proven_gone=True),
        (do.StopVm, do.DeleteVm, do.DeleteRecord),
    ),
    "Pod missing, no record": (snapshot(pod=None, vm=view(VmState.RUNNING)), ()),
    "new, others have a VM of that name": (snapshot(vm=OTHERS), (do.SaveRecord,)),
    "intended, others have a VM of that name": (
        snapshot(record=record(), vm=OTHERS, image=HELD),
        (do.CreateVm, do.SaveRecord),
    ),
    "started, others have a VM of that name": (
        snapshot(record=STARTED, vm=OTHERS),
        (do.SaveRecord,),
    ),
    "deleting, others have a VM of that name": (
        snapshot(pod=DELETING, vm=OTHERS),
        (do.RemoveFinalizer, do.DeletePod),
    ),
}


@pytest.mark.parametrize(("given_", "expected"), ROWS.values(), ids=ROWS)
def test_each_state_leads_to_these_actions(
    given_: Snapshot, expected: tuple[type[do.Action], ...]
) -> None:
    assert tuple(map(type, plan_pod(given_, SETTINGS, NOW))) == expected


def test_a_start_is_recorded_before_it_happens() -> None:
    start = snapshot(record=record(phase=Phase.CREATED), vm=view(VmState.STOPPED))
    saved = plan_pod(start, SETTINGS, NOW)[0]
    assert isinstance(saved, do.SaveRecord)
    assert (saved.record.phase, saved.record.started_at) == (Phase.STARTED, NOW)


def test_a_guest_gets_the_remaining_grace_period() -> None:
    start = snapshot(pod=facts(deleting=True, grace=17.5), record=BOOTED)
    assert plan_pod(start, SETTINGS, NOW)[0] == do.StopVm(
        uid=BOOTED.uid, vm=VM, grace=17.5, reason=Why.POD_DELETING
    )


def test_writes_carry_the_version_that_they_were_decided_on() -> None:
    (added,) = plan_pod(snapshot(pod=facts(finalizer=False)), SETTINGS, NOW)
    assert isinstance(added, do.AddFinalizer) and added.resource_version == "7"


OUTCOMES = {
    "clean": (0, "", None, (0, "Completed")),
    "failed": (3, "", None, (3, "Error")),
    "failed, and tart with it": (3, "", 1, (3, "Error")),
    "driver failed": (None, "VZErrorDomain", None, (1, names.REASON_RUN_FAILED)),
    "tart failed": (None, "VZErrorDomain", 2, (2, names.REASON_RUN_FAILED)),
    "tart was killed": (None, "killed", -9, (1, names.REASON_RUN_FAILED)),
    "no code and no reason": (None, "", 0, (0, names.REASON_RUN_EXITED)),
}


@pytest.mark.parametrize(("code", "reason", "status", "expected"), OUTCOMES.values(), ids=OUTCOMES)
def test_the_outcome_follows_from_exit_code_and_reason(
    code: int | None, reason: str, status: int | None, expected: tuple[int, str]
) -> None:
    vm = view(VmState.EXITED, exit_code=code, exit_reason=reason, exit_status=status)
    ended = outcome_of(vm, NOW)
    assert (ended.exit_code, ended.reason) == expected


def test_a_long_guest_message_is_shortened_in_the_status() -> None:
    ended = outcome_of(view(VmState.EXITED, exit_reason="\x1b[2J\n" + "x" * 100_000), NOW)
    assert len(ended.message) <= 1024
    assert ended.message.isprintable()


@given(st.text(max_size=3000))
def test_bounded_text_is_one_short_line(text: str) -> None:
    assert len(bounded(text)) <= 1024
    assert "\n" not in bounded(text) and "\x00" not in bounded(text)


def test_two_pods_of_one_name_have_two_vms() -> None:
    long = "p" * 200
    assert vm_name(long, "uid-1") != vm_name(long, "uid-2")
    assert vm_name("a", "b-c") != vm_name("a-b", "d")
    assert vm_name("../../etc", "u") == "..-..-etc-u"


# ── properties ──────────────────────────────────────────────────────────────────────────────────

PHASES = ["", "Pending", "Running", "Succeeded", "Failed"]
booleans = st.booleans()


@st.composite
def pods(draw: st.DrawFn) -> PodFacts:
    return facts(
        fits=draw(booleans),
        opted_in=draw(booleans),
        finalizer=draw(booleans),
        deleting=draw(booleans),
        phase=draw(st.sampled_from(PHASES)),
        container=draw(st.sampled_from(["", "waiting:Pulling", "running", "terminated"])),
    )


@st.composite
def records(draw: st.DrawFn) -> Record:
    phase = draw(st.sampled_from(list(Phase)))
    over = phase in (Phase.EXITED, Phase.PUBLISHED, Phase.DELETED)
    ran = over or phase is Phase.STARTED
    return record(phase=phase, started_at=950.0 if ran else None, result=RESULT if over else None)


@st.composite
def starting_points(draw: st.DrawFn) -> Snapshot:
    held = draw(st.none() | records())
    vm: VmView | None = None
    if held is None or held.phase is not Phase.DELETED:
        vm = draw(st.none() | st.sampled_from([view(state) for state in VmState]))
    if held is not None and held.result is not None and vm is not None:
        vm = view(VmState.EXITED)  # a record with a result was written because the VM had ended
    return snapshot(
        pod=draw(st.none() | pods()),
        record=held,
        suspect=held is None and draw(booleans),
        listed=draw(booleans),
        vm=vm,
        image=draw(st.sampled_from([HELD, PULLING, FAILED, ImageFacts()])),
    )


def run_until_empty(model: HostModel, *, crash_after: int | None = None) -> None:
    """Plan and apply until the plan is empty; optionally crash the agent after so many actions."""
    done = 0
    for _ in range(60):
        plan = plan_pod(model.snapshot(), SETTINGS, model.now)
        if not plan or isinstance(plan[-1], do.Wait | do.Ignore):
            return
        for action in plan:
            model.apply(action)
            done += 1
            if done == crash_after:
                model.crash()
                break
    raise AssertionError(
        f"the plan is not empty: {plan_pod(model.snapshot(), SETTINGS, model.now)}"
    )


@given(starting_points(), st.none() | st.integers(1, 12))
@settings(max_examples=examples(400))
def test_the_plan_becomes_and_stays_empty_from_every_starting_point(
    start: Snapshot, crash_after: int | None
) -> None:
    model = HostModel(start)
    run_until_empty(model, crash_after=crash_after)
    before = model.snapshot()
    run_until_empty(model)
    assert model.snapshot() == before


@given(starting_points())
@settings(max_examples=examples(400))
def test_a_deletion_has_priority_over_everything(start: Snapshot) -> None:
    if start.pod is None:
        return
    start = msgspec.structs.replace(
        start, pod=msgspec.structs.replace(start.pod, deleting=True, finalizer=True)
    )
    forward = (do.CreateVm, do.StartVm, do.PullImage, do.PublishStatus, do.AddFinalizer, do.Wait)
    assert not [a for a in plan_pod(start, SETTINGS, NOW) if isinstance(a, forward)]
    model = HostModel(start)
    run_until_empty(model)
    assert (model.pod, model.record, model.vm) == (None, None, None)


EVENTS = ["boot", "end", "vanish", "delete", "crash", "force-delete", "evict", "lose-record"]


@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 6)), max_size=12))
@settings(max_examples=examples(600))
def test_a_uid_is_started_at_most_once(events: list[tuple[str, int]]) -> None:
    model = HostModel(snapshot(pod=facts(finalizer=False), listed=False))
    for event, actions in events:
        step(model, actions)
        apply_event(model, event)
    run_until_empty(model)
    assert model.starts <= 1
    if not model.exists:
        assert model.record is None


def step(model: HostModel, actions: int) -> None:
    """Apply so many actions."""
    while actions > 0:
        plan = plan_pod(model.snapshot(), SETTINGS, model.now)
        if not plan or isinstance(plan[-1], do.Wait | do.Ignore):
            return
        for action in plan[:actions]:
            model.apply(action)
        actions -= len(plan)


def apply_event(model: HostModel, event: str) -> None:
    vm, pod = model.vm, model.pod
    up = vm is not None and vm.state in (VmState.BOOTING, VmState.RUNNING)
    if event == "boot" and vm is not None and vm.state is VmState.BOOTING:
        model.vm = view(VmState.RUNNING)
    elif event == "end" and up:
        model.vm = view(VmState.EXITED, exit_code=1)
    elif event == "vanish":
        model.vm = None
    elif event == "delete" and pod is not None:
        model.pod = msgspec.structs.replace(pod, deleting=True)
    elif event == "crash":
        model.crash()
    elif event == "force-delete":
        model.pod, model.exists = None, False
    elif event == "evict" and pod is not None:
        model.pod = msgspec.structs.replace(pod, phase="Failed", reason="Evicted")
    elif event == "lose-record" and model.record is not None:
        model.record, model.suspect = None, True
        model.crash()


def test_a_vm_is_created_from_the_recorded_image() -> None:
    created = plan_pod(snapshot(record=record(), image=HELD), SETTINGS, NOW)[0]
    assert isinstance(created, do.CreateVm) and created.image == IMAGE


def test_the_digest_of_a_tag_is_recorded_before_the_vm_is_created() -> None:
    tagged = record(image="registry/runner:1")
    held = ImageFacts(state=ImageState.HELD, pinned=IMAGE)
    saved, created, _ = plan_pod(snapshot(record=tagged, image=held), SETTINGS, NOW)
    assert isinstance(saved, do.SaveRecord) and saved.record.pinned == IMAGE
    assert isinstance(created, do.CreateVm) and created.image == IMAGE


def test_a_tag_that_moves_meanwhile_does_not_change_the_vm_of_a_pod() -> None:
    pinned = record(image="registry/runner:1", pinned=IMAGE)
    (pull,) = plan_pod(snapshot(record=pinned, image=ImageFacts()), SETTINGS, NOW)
    assert isinstance(pull, do.PullImage) and pull.image == IMAGE


def test_a_pull_that_advances_is_published_and_noted_for_the_start_deadline() -> None:
    pull = PullState(percent=37.4, bytes_total=52_100_000_000, rate=110e6, at=NOW)
    pulling = ImageFacts(state=ImageState.PULLING, pull=pull)
    waiting = snapshot(record=record(), image=pulling)
    published, stamped = plan_pod(waiting, SETTINGS, NOW)
    assert isinstance(published, do.PublishStatus)
    assert published.report.waiting == "Pulling"
    assert published.report.message == describe(pull)
    assert isinstance(stamped, do.StampProgress) and stamped.at == NOW
    lately = facts(progress_at=NOW - SETTINGS.stamp_every + 1)
    (only,) = plan_pod(snapshot(record=record(), image=pulling, pod=lately), SETTINGS, NOW)
    assert isinstance(only, do.PublishStatus)
    earlier = facts(progress_at=NOW - SETTINGS.stamp_every)
    plan = plan_pod(snapshot(record=record(), image=pulling, pod=earlier), SETTINGS, NOW)
    assert isinstance(plan[-1], do.StampProgress)


@pytest.mark.parametrize(
    ("pull", "line"),
    {
        "unknown": (None, ""),
        "everything": (
            PullState(percent=37.4, bytes_total=52_100_000_000, rate=110e6, at=NOW),
            "37 % of 52.1 GB, 110 MB/s, about 5 min left",
        ),
        "percent only": (PullState(percent=4.6, at=NOW), "5 %"),
        "no rate": (PullState(percent=0.0, bytes_total=10**9, at=NOW), "0 % of 1.0 GB"),
        "no size": (PullState(percent=50.0, rate=2e6, at=NOW), "50 %, 2 MB/s"),
    }.values(),
)
def test_what_is_not_known_of_a_pull_is_not_shown(pull: PullState | None, line: str) -> None:
    assert describe(pull) == line
