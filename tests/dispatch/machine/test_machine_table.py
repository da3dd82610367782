"""Every event in every state has an entry in an explicit table, so that nothing happens by accident.

A new state or a new event without a row or a column fails here first.
"""

from typing import get_args

import msgspec
import pytest
from tests.dispatch.machine.machine_bench import CASES, NAME, TENANT, UID, bench, offer

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
from runyard.dispatch.machine.values import Decision, SlotState
from runyard.wire.reasons_dispatch import Why

REFUSED = Why.MINT_REFUSED.because(kind="rejected", message="")
UNCLEAR = Why.STAMP_FAILED.because(stamp="unclear")
GONE = Why.POD_NOT_FOUND.because()
LEAKED = Why.STAMPED_WITHOUT_CLAIM.because()


def fenced(answer: FenceAnswer, *, scope_read: bool = True, cleared: bool = False) -> Fenced:
    return Fenced(generation=7, answer=answer, scope_read=scope_read, cleared=cleared)


EVENTS: dict[str, Event] = {
    "polled": Polled(pod_uid=UID, pod_name=NAME, pool="pool"),
    "offer": offer(2),
    "adopt": Adopt(generation=7, job_id=2),
    "arm": Arm(generation=7, runner_id=5, jit=b"jit", stamped=True),
    "arm unstamped": Arm(generation=7, runner_id=5, jit=b"jit", stamped=False),
    "mint failed": MintFailed(generation=7, reason=REFUSED),
    "mint abandoned": MintAbandoned(generation=7, reason=UNCLEAR),
    "deleted": fenced(FenceAnswer.DELETED),
    "busy": fenced(FenceAnswer.BUSY),
    "absent": fenced(FenceAnswer.ABSENT),
    "deleted cleared": fenced(FenceAnswer.DELETED, cleared=True),
    "absent cleared": fenced(FenceAnswer.ABSENT, cleared=True),
    "absent unread": fenced(FenceAnswer.ABSENT, scope_read=False),
    "inconclusive": Inconclusive(generation=7),
    "retire": Retire(
        pod_uid=UID,
        pod_name=NAME,
        pool="pool",
        generation=7,
        reason=LEAKED,
    ),
    "gone": PodGone(reason=GONE),
    "waiting": JobWaiting(job_id=1, tenant=TENANT),
    "queued": JobQueued(job_id=1, tenant=TENANT),
    "started": JobStarted(job_id=1, tenant=TENANT, runner_name=NAME),
    "ended": JobEnded(job_id=1, tenant=TENANT, runner_name=NAME, conclusion="success"),
    "still queued": JobStillQueued(job_id=1),
}

# x refused, j only jobs change, = the slot stays as it is and only its deadline moves; otherwise the
# state that the slot moves to, with a new generation: Idle Offered Armed Executing Draining Closed.
# An idle slot has no runner name, so GitHub's reports about jobs cannot find it.
TABLE = """
                none idle offered given-up armed vacant executing unknown draining closed due
polled          I    =    x       x        x     x      x         x       x        x      x
offer           x    O    x       x        x     x      x         x       x        x      x
adopt           x    x    x       x        x     A      x         x       x        x      x
arm             x    x    A       x        x     x      x         x       x        x      x
arm_unstamped   x    x    x       x        x     x      x         x       x        x      x
mint_failed     x    x    I       x        x     x      x         x       x        x      x
mint_abandoned  x    x    O       x        x     x      x         x       x        x      x
deleted         x    x    D       D        D     D      x         D       x        x      C
busy            x    x    E       E        E     E      x         =       x        x      =
absent          x    x    D       D        D     D      x         D       x        x      C
deleted_cleared x    x    D       I        D     D      x         D       x        x      C
absent_cleared  x    x    D       I        D     D      x         D       x        x      C
absent_unread   x    x    x       x        x     x      x         x       x        x      x
inconclusive    x    =    =       =        =     =      =         =       =        =      =
retire          D    D    x       x        x     x      x         x       x        x      x
gone            x    C    C       C        C     C      C         C       C        x      x
waiting         x    x    x       x        x     x      x         x       x        x      x
queued          x    x    x       x        x     x      x         x       x        x      x
started         j    j    E       E        E     E      =         E       x        x      C
ended           j    j    D       D        D     D      D         D       x        x      C
still_queued    j    j    j       j        j     j      x         E       x        x      j
"""
STATES = {state.value[0].upper(): state for state in SlotState}


def table() -> list[tuple[str, str, str]]:
    head, *rows = [line.split() for line in TABLE.strip().splitlines()]
    return [
        (row[0].replace("_", " "), case, cell)
        for row in rows
        for case, cell in zip(head, row[1:], strict=True)
    ]


def outcome(before: int | None, decision: Decision) -> str:
    if decision.refused:
        return "x"
    if not decision.slots:
        return "j"
    assert len(decision.slots) == 1
    after = decision.slots[0].slot
    return "=" if after.generation == before else after.state.value[0].upper()


def test_the_table_is_complete() -> None:
    assert len(STATES) == len(SlotState)
    assert {type(event) for event in EVENTS.values()} == set(get_args(Event))
    assert {slot.state for slot, _ in CASES.values() if slot is not None} == set(SlotState)
    assert {(event, case) for event, case, _ in table()} == {(e, c) for e in EVENTS for c in CASES}


@pytest.mark.parametrize(
    ("event", "case", "expected"), table(), ids=[f"{e}-{c}" for e, c, _ in table()]
)
def test_each_event_in_each_state_matches_the_table(event: str, case: str, expected: str) -> None:
    rows = bench(case)
    happened = EVENTS[event]
    before = rows.slots[UID].generation if UID in rows.slots else None
    decision = rows.apply(UID, happened)
    assert outcome(before, decision) == expected
    assert all(change.reason for change in decision.slots)
    assert all(change.reason for change in decision.jobs)


ANSWERS = [name for name, event in EVENTS.items() if hasattr(event, "generation")]


@pytest.mark.parametrize("case", [case for case in CASES if case != "none"])
@pytest.mark.parametrize("event", ANSWERS)
def test_an_answer_for_an_earlier_generation_changes_nothing(event: str, case: str) -> None:
    rows = bench(case)
    before = dict(rows.slots), dict(rows.jobs)
    late = msgspec.structs.replace(EVENTS[event], generation=6)
    assert rows.apply(UID, late).refused
    assert (rows.slots, rows.jobs) == before
