"""No sequence of events makes the machine raise or breaks the invariants of its rows."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.dispatch.machine.machine_bench import TENANT, Bench, offer

from runyard.dispatch.machine.events import (
    Adopt,
    Arm,
    Event,
    FenceAnswer,
    Fenced,
    Inconclusive,
    JobEnded,
    JobQueued,
    JobStarted,
    JobStillQueued,
    JobWaiting,
    MintAbandoned,
    MintFailed,
    PodGone,
    Polled,
    Retire,
)
from runyard.dispatch.machine.values import CLAIMS, Decision, Fence, JobState, SlotState
from runyard.wire.reasons_dispatch import Why

REFUSED = Why.MINT_REFUSED.because(kind="rejected", message="")
UNCLEAR = Why.STAMP_FAILED.because(stamp="unclear")
GONE = Why.POD_NOT_FOUND.because()
LEAKED = Why.STAMPED_WITHOUT_CLAIM.because()

UIDS = ("p1", "p2", "p3")
PODS = st.sampled_from(UIDS)
JOBS = st.integers(1, 3)
NAMES = st.sampled_from([*UIDS, "", "stranger"])
GENERATIONS = st.sampled_from([0, 0, 0, 0, -1, 1, 99])  # relative to the slot's own: mostly right
FLAGS = st.booleans()
Happening = tuple[str, Event, int]


def _events(uid: str) -> st.SearchStrategy[Event]:
    job = {"job_id": JOBS}
    tenant = st.just(TENANT)
    return st.one_of(
        st.just(Polled(pod_uid=uid, pod_name=uid, pool="pool")),
        JOBS.map(lambda number: offer(number, generation=0, name=uid)),
        st.builds(Adopt, generation=st.just(0), **job),
        st.builds(
            Arm, generation=st.just(0), runner_id=st.just(1), jit=st.just(b"jit"), stamped=FLAGS
        ),
        st.builds(
            MintFailed,
            generation=st.just(0),
            reason=st.just(REFUSED),
        ),
        st.builds(
            MintAbandoned,
            generation=st.just(0),
            reason=st.just(UNCLEAR),
            runner_id=st.sampled_from([None, 1]),
            answered=FLAGS,
        ),
        st.builds(
            Fenced,
            generation=st.just(0),
            answer=st.sampled_from(FenceAnswer),
            scope_read=FLAGS,
            cleared=FLAGS,
        ),
        st.builds(Inconclusive, generation=st.just(0)),
        st.just(
            Retire(
                pod_uid=uid,
                pod_name=uid,
                pool="pool",
                generation=0,
                reason=LEAKED,
            )
        ),
        st.just(PodGone(reason=GONE)),
        st.builds(JobWaiting, tenant=tenant, **job),
        st.builds(JobQueued, tenant=tenant, **job),
        st.builds(JobStarted, tenant=tenant, runner_name=NAMES, **job),
        st.builds(JobEnded, tenant=tenant, runner_name=NAMES, conclusion=st.just("success"), **job),
        st.builds(JobStillQueued, **job),
    )


HAPPENINGS = PODS.flatmap(lambda uid: st.tuples(st.just(uid), _events(uid), GENERATIONS))


def play(rows: Bench, happening: Happening) -> Decision:
    """Apply an event; an answer's generation is meant relative to its slot's own."""
    uid, event, offset = happening
    if hasattr(event, "generation") and uid in rows.slots:
        event = msgspec.structs.replace(event, generation=rows.slots[uid].generation + offset)
    return rows.apply(uid, event)


@pytest.mark.slow
@given(st.lists(HAPPENINGS, max_size=60))
def test_no_sequence_of_events_breaks_the_rows(happenings: list[Happening]) -> None:
    rows = Bench(limit=8)
    for happening in happenings:
        before, jobs = dict(rows.slots), dict(rows.jobs)
        decision = play(rows, happening)
        _decision_is_sound(decision)
        _generations_grow(before, rows)
        _rows_are_sound(rows)
        for number, was in jobs.items():
            if was.state is JobState.DONE:
                assert rows.jobs[number] == was
            if was.state is JobState.RUNNING:
                assert rows.jobs[number].state in (JobState.RUNNING, JobState.DONE)


def _decision_is_sound(decision: Decision) -> None:
    if decision.refused:
        assert decision.slots == ()
        assert decision.jobs == ()
    else:
        assert decision.slots or decision.jobs
    assert all(change.reason for change in decision.slots)
    assert all(change.reason for change in decision.jobs)
    waits = [change.wait for change in decision.slots]
    assert all(wait is None or wait >= 0 for wait in waits)


def _generations_grow(before: dict[str, object], rows: Bench) -> None:
    for uid, after in rows.slots.items():
        was = before.get(uid)
        if was is None or was == after:
            continue
        assert after.generation == was.generation + 1  # type: ignore[attr-defined] # rows of the bench


def _rows_are_sound(rows: Bench) -> None:
    intended = [found.intended_job for found in rows.slots.values() if found.intended_job]
    assert len(intended) == len(set(intended))
    bound = [number for number, found in rows.jobs.items() if found.state is JobState.BOUND]
    assert sorted(intended) == sorted(bound)
    for found in rows.slots.values():
        if found.state in CLAIMS and found.runner_name:
            assert found.tenant == TENANT
        if found.state in CLAIMS and not found.runner_name:
            assert found.vcpus == 0  # retired before it was ever offered: it holds nothing
        assert (found.jit is None) or found.state.value == "armed"
    assert rows.left() >= 0


@pytest.mark.slow
@given(st.lists(HAPPENINGS, max_size=60))
def test_only_a_pod_that_never_had_a_jit_becomes_idle_again(happenings: list[Happening]) -> None:
    rows = Bench(limit=8)
    armed: set[str] = set()
    for happening in happenings:
        before = dict(rows.slots)
        decision = play(rows, happening)
        for change in decision.slots:
            uid, now = change.slot.pod_uid, change.slot
            if now.state is SlotState.ARMED:
                armed.add(uid)
            if now.state is not SlotState.IDLE or change.source in (None, SlotState.IDLE):
                continue
            assert change.source is SlotState.OFFERED
            assert uid not in armed
            assert now.generation == before[uid].generation + 1, "late answers must find another"
            left = (now.tenant, now.runner_name, now.runner_id, now.jit, now.fence, now.vcpus)
            assert left == ("", "", None, None, Fence.NONE, 0)
            if isinstance(happening[1], Fenced):
                assert before[uid].fence is Fence.DUE
                assert happening[1].cleared and happening[1].answer is not FenceAnswer.BUSY
                assert happening[1].scope_read or happening[1].answer is FenceAnswer.DELETED


FACTS = st.lists(
    st.sampled_from(
        [
            JobQueued(job_id=1, tenant=TENANT),
            JobStarted(job_id=1, tenant=TENANT, runner_name="p1"),
            JobEnded(job_id=1, tenant=TENANT, runner_name="p1", conclusion="success"),
        ]
    ),
    min_size=1,
    max_size=6,
).flatmap(lambda facts: st.tuples(st.just(facts), st.permutations(facts)))


@given(FACTS)
def test_facts_about_a_job_commute(both: tuple[list[Event], list[Event]]) -> None:
    ends = []
    for facts in both:
        rows = Bench()
        for fact in facts:
            rows.apply("p1", fact)
        ends.append(rows.jobs[1])
    assert ends[0] == ends[1]
