"""The fourteen rules of dispatch, as far as the state machine enforces them."""

import itertools
import math

import msgspec
import pytest
from tests.dispatch.machine.machine_bench import (
    CASES,
    NAME,
    TENANT,
    UID,
    Bench,
    bench,
    job,
    offer,
    slot,
)

from runyard.dispatch.machine.events import (
    Adopt,
    Arm,
    FenceAnswer,
    Fenced,
    JobEnded,
    JobQueued,
    JobStarted,
    JobStillQueued,
    JobWaiting,
    MintFailed,
    PodGone,
    Polled,
    Retire,
)
from runyard.dispatch.machine.table import (
    Deadlines,
    Found,
    Question,
    Rules,
    due,
    question,
    time_limit,
)
from runyard.dispatch.machine.transition import PollVerdict, answer_poll
from runyard.dispatch.machine.values import Fence, JobState, Slot, SlotState
from runyard.wire.reasons_dispatch import Refused, Why

REFUSED = Why.MINT_REFUSED.because(kind="rejected", message="")
GONE = Why.POD_NOT_FOUND.because()
LEAKED = Why.STAMPED_WITHOUT_CLAIM.because()

SLOTS = [found for found, _ in CASES.values() if found is not None]


def started(job_id: int, name: str = NAME) -> JobStarted:
    return JobStarted(job_id=job_id, tenant=TENANT, runner_name=name)


def ended(job_id: int, name: str = NAME) -> JobEnded:
    return JobEnded(job_id=job_id, tenant=TENANT, runner_name=name, conclusion="success")


def answered(answer: FenceAnswer) -> Fenced:
    return Fenced(generation=7, answer=answer, scope_read=True)


def test_rule_1_no_jit_leaves_before_the_stamp_is_acknowledged() -> None:
    rows = bench("offered")
    unstamped = Arm(generation=7, runner_id=5, jit=b"jit", stamped=False)
    assert rows.slot_event(UID, unstamped).refused
    assert answer_poll(rows.slots[UID]).jit is None
    rows.slot_event(UID, msgspec.structs.replace(unstamped, stamped=True))
    assert answer_poll(rows.slots[UID]).jit == b"jit"
    assert rows.slots[UID].stamped


@pytest.mark.parametrize("answer", [FenceAnswer.DELETED, FenceAnswer.ABSENT])
def test_rule_2_the_fence_frees_the_job_but_not_the_budget(answer: FenceAnswer) -> None:
    rows = bench("armed")
    rows.slot_event(UID, answered(answer))
    after = rows.slots[UID]
    assert (after.state, after.fence, after.jit) == (SlotState.DRAINING, Fence.DONE, None)
    assert after.claims
    assert rows.jobs[1] == job(1, JobState.QUEUED, verified=False)


def test_rule_2_a_busy_runner_is_executing_and_may_execute_its_own_job() -> None:
    rows = bench("armed")
    rows.slot_event(UID, answered(FenceAnswer.BUSY))
    after = rows.slots[UID]
    assert (after.state, after.executing_job, after.intended_job) == (SlotState.EXECUTING, None, 1)
    assert rows.jobs[1].state is JobState.BOUND


@pytest.mark.parametrize("case", ["offered", "armed", "executing", "unknown"])
def test_rule_3_a_pod_that_is_gone_leaves_its_fence_due(case: str) -> None:
    rows = bench(case)
    jobs = dict(rows.jobs)
    rows.slot_event(UID, PodGone(reason=GONE))
    assert (rows.slots[UID].state, rows.slots[UID].fence) == (SlotState.CLOSED, Fence.DUE)
    assert rows.jobs == jobs  # nothing is freed before GitHub has answered
    assert rows.slot_event(UID, PodGone(reason=GONE)).refused


def test_rule_3_a_gone_pod_that_was_idle_or_drained_needs_no_fence() -> None:
    for case in ("idle", "draining"):
        rows = bench(case)
        rows.slot_event(UID, PodGone(reason=GONE))
        assert question(rows.slots[UID]) is Question.NOTHING


def test_rule_4_a_runner_that_got_another_job_requeues_its_own() -> None:
    rows = bench("armed")
    rows.job_fact(started(2))
    after = rows.slots[UID]
    assert (after.state, after.executing_job, after.intended_job) == (SlotState.EXECUTING, 2, None)
    assert rows.jobs[1] == job(1, JobState.QUEUED, verified=False)
    assert rows.jobs[2].state is JobState.RUNNING


def test_rule_4_the_slot_that_the_job_was_intended_for_becomes_vacant() -> None:
    other = slot(SlotState.ARMED, pod_uid="uid-2", runner_name="runner-2", intended_job=2)
    first = slot(SlotState.ARMED, intended_job=1)
    rows = Bench(first, other, jobs=(job(1, JobState.BOUND), job(2, JobState.BOUND)))
    rows.job_fact(started(2))
    assert rows.slots["uid-2"].vacant
    assert rows.slots["uid-2"].claims  # the budget stays with every slot that may run
    assert rows.jobs[1].state is JobState.QUEUED


@pytest.mark.parametrize("case", ["executing", "closed", "draining"])
def test_rule_4_a_job_that_started_is_never_requeued(case: str) -> None:
    rows = bench(case)
    rows.slot_event(UID, PodGone(reason=GONE))
    generation = rows.slots[UID].generation
    for answer in FenceAnswer:
        asked = Fenced(generation=generation, answer=answer, scope_read=True)
        rows.slot_event(UID, asked)
    rows.job_fact(JobStillQueued(job_id=1))
    assert rows.jobs[1].state in (JobState.RUNNING, JobState.DONE)


@pytest.mark.parametrize(
    "release", [JobQueued(job_id=9, tenant=TENANT), JobStillQueued(job_id=9)], ids=["hook", "read"]
)
def test_a_job_is_not_offered_before_its_approval(
    release: JobQueued | JobStillQueued,
) -> None:
    rows = bench("idle")
    rows.job_fact(JobWaiting(job_id=9, tenant=TENANT))
    assert rows.jobs[9].state is JobState.WAITING
    assert rows.slot_event(UID, offer(9, generation=7)).refused
    rows.job_fact(release)
    assert not rows.slot_event(UID, offer(9, generation=7)).refused


def test_a_late_waiting_event_changes_no_job() -> None:
    rows = bench("idle")
    rows.job_fact(JobQueued(job_id=9, tenant=TENANT))
    assert rows.job_fact(JobWaiting(job_id=9, tenant=TENANT)).refused
    assert rows.jobs[9].offerable


def test_rule_5_no_second_offer_without_a_fresh_read() -> None:
    rows = bench("offered")
    rows.slot_event(UID, MintFailed(generation=7, reason=REFUSED))
    assert rows.slot_event(UID, offer(1, generation=8)).refused
    rows.job_fact(JobStillQueued(job_id=1))
    assert not rows.slot_event(UID, offer(1, generation=8)).refused


def test_rule_5_an_adopted_runner_keeps_its_deadline() -> None:
    rows = bench("vacant")
    decision = rows.slot_event(UID, Adopt(generation=7, job_id=2))
    assert rows.slots[UID].intended_job == 2
    assert rows.jobs[2].state is JobState.BOUND
    assert decision.slots[0].wait is None


def test_rule_5_another_tenants_job_is_not_adopted() -> None:
    rows = bench("vacant")
    rows.jobs[2] = msgspec.structs.replace(rows.jobs[2], tenant="other")
    assert rows.slot_event(UID, Adopt(generation=7, job_id=2)).refused


def test_rule_6_a_job_is_kept_whatever_pools_exist() -> None:
    rows = Bench()
    rows.job_fact(JobQueued(job_id=1, tenant=TENANT))
    assert rows.jobs[1].offerable


def test_rule_7_an_end_without_a_start_is_attributed_by_the_runner_name() -> None:
    rows = bench("armed")
    rows.job_fact(ended(2))
    assert rows.slots[UID].state is SlotState.DRAINING
    assert rows.slots[UID].executing_job == 2
    assert rows.jobs[1].state is JobState.QUEUED
    assert rows.jobs[2].state is JobState.DONE


def test_rule_7_the_same_delivery_twice_changes_nothing() -> None:
    rows = bench("armed")
    for fact in (started(1), ended(1)):
        rows.job_fact(fact)
        before = dict(rows.slots), dict(rows.jobs)
        rows.job_fact(fact)
        assert (rows.slots, rows.jobs) == before


def test_rule_8_the_same_uid_gets_the_same_jit_and_later_none() -> None:
    armed = bench("armed").slots[UID]
    assert answer_poll(armed) == answer_poll(armed)
    assert answer_poll(armed).jit == b"jit"
    for found in SLOTS:
        answer = answer_poll(found)
        waits = found.state in (SlotState.IDLE, SlotState.OFFERED)
        runs = found.state is SlotState.ARMED
        assert answer.verdict is (
            PollVerdict.WAIT if waits else PollVerdict.RUN if runs else PollVerdict.DRAIN
        )


def test_rule_9_a_late_mint_is_refused_and_deletes_its_registration() -> None:
    rows = bench("offered")
    rows.slot_event(UID, answered(FenceAnswer.ABSENT))
    late = rows.slot_event(UID, Arm(generation=7, runner_id=5, jit=b"jit", stamped=True))
    assert late.refused == Refused.OFFER_OVER.because()


@pytest.mark.parametrize("found", SLOTS, ids=list(CASES)[1:])
def test_rule_10_after_an_outage_nothing_is_swept_at_once(found: Slot) -> None:
    asks = question(found) is not Question.NOTHING
    assert not due(found, overdue=True, settled=False)
    assert not due(found, overdue=False, settled=True)
    assert due(found, overdue=True, settled=True) is asks


@pytest.mark.parametrize("found", SLOTS, ids=list(CASES)[1:])
def test_rule_11_every_open_slot_has_a_finite_deadline_and_a_question(found: Slot) -> None:
    is_open = found.state is not SlotState.CLOSED or found.fence is Fence.DUE
    assert (question(found) is not Question.NOTHING) is is_open
    assert math.isfinite(time_limit(found, Deadlines()))
    assert time_limit(found, Deadlines()) > 0 or found.state is SlotState.CLOSED


def test_rule_12_only_a_poll_or_the_reaper_opens_a_slot() -> None:
    rows = Bench(jobs=(job(1, JobState.QUEUED),))
    for fact in (started(1), ended(1)):
        rows.job_fact(fact)
    assert rows.slot_event(UID, offer(1)).refused
    assert rows.slots == {}
    rows.slot_event(UID, Polled(pod_uid=UID, pod_name=NAME, pool="pool"))
    assert rows.slots[UID].state is SlotState.IDLE
    leak = Retire(
        pod_uid="uid-2",
        pod_name="runner-2",
        pool="pool",
        generation=None,
        reason=LEAKED,
    )
    rows.slot_event("uid-2", leak)
    assert rows.slots["uid-2"].state is SlotState.DRAINING
    assert rows.slots["uid-2"].vcpus == 0  # it holds no budget


def test_rule_13_a_runner_name_is_claimed_before_it_is_registered() -> None:
    rows = bench("idle")
    rows.slot_event(UID, offer(2))
    assert (rows.slots[UID].runner_name, rows.slots[UID].runner_id) == (NAME, None)


def test_rule_14_every_change_has_a_source_and_a_reason() -> None:
    rows = bench("idle")
    events = [
        offer(2),
        Arm(generation=8, runner_id=5, jit=b"jit", stamped=True),
        Fenced(generation=9, answer=FenceAnswer.DELETED, scope_read=True),
        PodGone(reason=GONE),
    ]
    states = [SlotState.IDLE]
    for event in events:
        change = rows.slot_event(UID, event).slots[0]
        assert change.source is states[-1]
        assert change.reason
        states.append(change.slot.state)
    assert states == [
        SlotState.IDLE,
        SlotState.OFFERED,
        SlotState.ARMED,
        SlotState.DRAINING,
        SlotState.CLOSED,
    ]


def test_the_budget_is_held_by_every_claim_until_the_pod_is_gone() -> None:
    rows = bench("idle")
    rows.limit = 4
    assert not rows.slot_event(UID, offer(2)).refused
    waiting = msgspec.structs.replace(slot(SlotState.IDLE), pod_uid="uid-2", pod_name="runner-2")
    rows.slots["uid-2"] = waiting
    rows.slot_event(UID, Fenced(generation=8, answer=FenceAnswer.ABSENT, scope_read=True))
    assert rows.slot_event("uid-2", offer(1, name="runner-2")).refused
    rows.slot_event(UID, PodGone(reason=GONE))
    assert not rows.slot_event("uid-2", offer(1, name="runner-2")).refused


def test_production_runs_with_every_guard() -> None:
    rules = msgspec.structs.asdict(Rules())
    assert rules.pop("no_deadline_for") == ()
    assert rules.pop("idle_by_poll") == (SlotState.IDLE,)
    assert rules.pop("job_on_hold") is JobState.WAITING
    assert rules.pop("end_spends") == (Found.BY_RUNNER,)
    assert all(value is True for value in rules.values())


def test_facts_about_one_job_commute_for_its_slot_too() -> None:
    facts = [JobQueued(job_id=1, tenant=TENANT), started(1), ended(1)]
    ends = []
    for order in itertools.permutations(facts):
        rows = bench("armed")
        for fact in order:
            rows.job_fact(fact)
        after = msgspec.structs.replace(rows.slots[UID], generation=0)
        ends.append((after, rows.jobs[1]))
    assert all(end == ends[0] for end in ends)
