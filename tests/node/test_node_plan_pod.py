"""The Pod plan: each decision as a row, and what must hold whatever happens in between."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.node.podworld import (
    IMAGE,
    NOW,
    SETTINGS,
    VM,
    World,
    facts,
    record,
    snapshot,
    view,
)
from tests.tiers import examples

from runyard.node.plans import actions as do
from runyard.node.plans.pod import ImageFacts, ImageState, PodFacts, Snapshot, outcome_of, plan_pod
from runyard.node.plans.reasons import Why
from runyard.node.plans.values import Outcome, Phase, Record, bounded, vm_name
from runyard.vm.contract import VmState, VmView
from runyard.wire import names

HELD = ImageFacts(state=ImageState.HELD)
PULLING = ImageFacts(state=ImageState.PULLING)
FAILED = ImageFacts(state=ImageState.FAILED, error="401 from the registry", retry_in=12.0)
RESULT = Outcome(exit_code=0, reason="Completed", finished_at=990.0)
STARTED = record(phase=Phase.STARTED, started_at=950.0)
BOOTED = record(phase=Phase.STARTED, started_at=950.0, booted_at=960.0)
ENDED = record(phase=Phase.EXITED, started_at=950.0, result=RESULT)
DELETING = facts(deleting=True)
RUNNING_POD = facts(phase="Running", ready=True, pod_ip="10.0.0.2", container="running")

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
    "new, held back": (snapshot(), (do.SaveRecord,)),
    "finished before we knew it": (snapshot(pod=facts(phase="Failed")), ()),
    "intended, image absent": (snapshot(record=record()), (do.PullImage,)),
    "intended, image coming": (snapshot(record=record(), image=PULLING), (do.PublishStatus,)),
    "intended, said so already": (
        snapshot(record=record(), image=PULLING, pod=facts(container="waiting:PullingImage")),
        (),
    ),
    "intended, pull failed": (snapshot(record=record(), image=FAILED), (do.PublishStatus, do.Wait)),
    "intended, image here": (snapshot(record=record(), image=HELD), (do.CreateVm, do.SaveRecord)),
    "intended, failed just now": (snapshot(record=record(), image=HELD, hold=3.0), (do.Wait,)),
    "intended, half made": (snapshot(record=record(), vm=view(VmState.STOPPED)), (do.DeleteVm,)),
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
    "started behind the record's back": (
        snapshot(record=record(phase=Phase.CREATED), vm=view(VmState.RUNNING)),
        (do.SaveRecord, do.PublishStatus),
    ),
    "booting": (snapshot(record=STARTED, vm=view(VmState.BOOTING)), (do.PublishStatus,)),
    "up": (snapshot(record=STARTED, vm=view(VmState.RUNNING)), (do.SaveRecord, do.PublishStatus)),
    "up, said so": (snapshot(record=BOOTED, vm=view(VmState.RUNNING), pod=RUNNING_POD), ()),
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
    "result acknowledged, answer lost": (
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
    "somebody set the status back": (
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
    "deleting, driver does not answer": (
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
    "deleting, never ours to hold back": (
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
    "Pod missing, nothing of ours": (snapshot(pod=None, vm=view(VmState.RUNNING)), ()),
}


@pytest.mark.parametrize(("given_", "expected"), ROWS.values(), ids=ROWS)
def test_the_decision_is(given_: Snapshot, expected: tuple[type[do.Action], ...]) -> None:
    assert tuple(map(type, plan_pod(given_, SETTINGS, NOW))) == expected


def test_the_start_is_on_record_before_it_happens() -> None:
    start = snapshot(record=record(phase=Phase.CREATED), vm=view(VmState.STOPPED))
    saved = plan_pod(start, SETTINGS, NOW)[0]
    assert isinstance(saved, do.SaveRecord)
    assert (saved.record.phase, saved.record.started_at) == (Phase.STARTED, NOW)


def test_a_guest_gets_what_is_left_of_its_grace_period() -> None:
    start = snapshot(pod=facts(deleting=True, grace=17.5), record=BOOTED)
    assert plan_pod(start, SETTINGS, NOW)[0] == do.StopVm(
        uid=BOOTED.uid, vm=VM, grace=17.5, reason=Why.POD_DELETING
    )


def test_writes_carry_the_version_that_they_were_decided_on() -> None:
    (added,) = plan_pod(snapshot(pod=facts(finalizer=False)), SETTINGS, NOW)
    assert isinstance(added, do.AddFinalizer) and added.resource_version == "7"


OUTCOMES = {
    "clean": (0, "", (0, "Completed")),
    "failed": (3, "", (3, "Error")),
    "driver failed": (None, "VZErrorDomain", (1, names.REASON_RUN_FAILED)),
    "no word from anybody": (None, "", (0, names.REASON_RUN_EXITED)),
}


@pytest.mark.parametrize(("code", "reason", "expected"), OUTCOMES.values(), ids=OUTCOMES)
def test_an_end_is_reported_as_what_it_was(
    code: int | None, reason: str, expected: tuple[int, str]
) -> None:
    ended = outcome_of(view(VmState.EXITED, exit_code=code, exit_reason=reason), NOW)
    assert (ended.exit_code, ended.reason) == expected


def test_what_a_guest_says_cannot_flood_a_status() -> None:
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


# ── whatever happens ────────────────────────────────────────────────────────────────────────────

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
        container=draw(st.sampled_from(["", "waiting:PullingImage", "running", "terminated"])),
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


def run_to_rest(world: World, *, crash_after: int | None = None) -> None:
    """Plan and act until there is nothing to do; optionally lose the agent after so many actions."""
    done = 0
    for _ in range(60):
        plan = plan_pod(world.snapshot(), SETTINGS, world.now)
        if not plan or isinstance(plan[-1], do.Wait | do.Ignore):
            return
        for action in plan:
            world.apply(action)
            done += 1
            if done == crash_after:
                world.crash()
                break
    raise AssertionError(f"no rest: {plan_pod(world.snapshot(), SETTINGS, world.now)}")


@given(starting_points(), st.none() | st.integers(1, 12))
@settings(max_examples=examples(400))
def test_every_starting_point_comes_to_rest_and_stays_there(
    start: Snapshot, crash_after: int | None
) -> None:
    world = World(start)
    run_to_rest(world, crash_after=crash_after)
    before = world.snapshot()
    run_to_rest(world)
    assert world.snapshot() == before


@given(starting_points())
@settings(max_examples=examples(400))
def test_a_deletion_wins_over_everything(start: Snapshot) -> None:
    if start.pod is None:
        return
    start = msgspec.structs.replace(
        start, pod=msgspec.structs.replace(start.pod, deleting=True, finalizer=True)
    )
    forward = (do.CreateVm, do.StartVm, do.PullImage, do.PublishStatus, do.AddFinalizer, do.Wait)
    assert not [a for a in plan_pod(start, SETTINGS, NOW) if isinstance(a, forward)]
    world = World(start)
    run_to_rest(world)
    assert (world.pod, world.record, world.vm) == (None, None, None)


EVENTS = ["boot", "end", "vanish", "delete", "crash", "force-delete", "evict", "lose-record"]


@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 6)), max_size=12))
@settings(max_examples=examples(600))
def test_a_uid_runs_at_most_once_whatever_happens_to_it(story: list[tuple[str, int]]) -> None:
    world = World(snapshot(pod=facts(finalizer=False), listed=False))
    for event, actions in story:
        step(world, actions)
        happen(world, event)
    run_to_rest(world)
    assert world.starts <= 1
    if not world.exists:
        assert world.record is None


def step(world: World, actions: int) -> None:
    """Let the agent do so many actions, no more."""
    while actions > 0:
        plan = plan_pod(world.snapshot(), SETTINGS, world.now)
        if not plan or isinstance(plan[-1], do.Wait | do.Ignore):
            return
        for action in plan[:actions]:
            world.apply(action)
        actions -= len(plan)


def happen(world: World, event: str) -> None:
    vm, pod = world.vm, world.pod
    up = vm is not None and vm.state in (VmState.BOOTING, VmState.RUNNING)
    if event == "boot" and vm is not None and vm.state is VmState.BOOTING:
        world.vm = view(VmState.RUNNING)
    elif event == "end" and up:
        world.vm = view(VmState.EXITED, exit_code=1)
    elif event == "vanish":
        world.vm = None
    elif event == "delete" and pod is not None:
        world.pod = msgspec.structs.replace(pod, deleting=True)
    elif event == "crash":
        world.crash()
    elif event == "force-delete":
        world.pod, world.exists = None, False
    elif event == "evict" and pod is not None:
        world.pod = msgspec.structs.replace(pod, phase="Failed", reason="Evicted")
    elif event == "lose-record" and world.record is not None:
        world.record, world.suspect = None, True
        world.crash()


def test_the_image_of_a_pod_is_the_one_on_record() -> None:
    created = plan_pod(snapshot(record=record(), image=HELD), SETTINGS, NOW)[0]
    assert isinstance(created, do.CreateVm) and created.image == IMAGE
