"""Which silent runners are retired, which are not, and when none is."""

import pytest

from runyard.dispatch.machine.values import Fence, SlotState
from runyard.dispatch.plans.silent import Verdict, Watched, judge_silence
from runyard.dispatch.plans.stamped import PodView, SlotView

GRACE = 300.0


def pod(number: int, *, running: bool = True, ending: bool = False) -> PodView:
    return PodView(
        uid=f"u{number}",
        name=f"p{number}",
        pool="mac",
        owner="",
        created_at=0.0,
        ending=ending,
        running=running,
    )


def slot(number: int, state: SlotState = SlotState.IDLE, *, silent: bool = False) -> SlotView:
    return SlotView(
        pod_uid=f"u{number}", state=state, generation=7, fence=Fence.NONE, silent=silent
    )


def judge(
    slots: tuple[SlotView, ...],
    *,
    pods: tuple[PodView, ...] = tuple(map(pod, range(6))),
    since: float = 0.0,
    now: float = 1000.0,
    limit: int = 5,
) -> Verdict:
    watched = tuple(Watched(each.uid, since) for each in pods)
    return judge_silence(pods, slots, watched=watched, now=now, grace=GRACE, limit=limit)


def spoke(*silent: int) -> tuple[SlotView, ...]:
    return tuple(slot(number, silent=number in silent) for number in range(6))


def test_a_silent_runner_is_retired_by_its_generation() -> None:
    (leak,) = judge(spoke(2)).leaks
    assert (leak.uid, leak.event.generation, leak.age) == ("u2", 7, 1000.0)


def test_a_runner_that_never_polled_is_retired_too() -> None:
    slots = tuple(each for each in spoke() if each.pod_uid != "u3")
    (leak,) = judge(slots).leaks
    assert (leak.uid, leak.event.generation) == ("u3", None)


def test_silence_counts_from_the_first_snapshot_for_the_whole_grace() -> None:
    pods = tuple(pod(number) for number in range(6))
    first = judge_silence(pods, spoke(1), watched=(), now=50.0, grace=GRACE, limit=5)
    assert first == Verdict(leaks=(), watched=(Watched("u1", 50.0),))
    early = judge_silence(pods, spoke(1), watched=first.watched, now=349.0, grace=GRACE, limit=5)
    assert early.leaks == ()
    late = judge_silence(pods, spoke(1), watched=early.watched, now=350.0, grace=GRACE, limit=5)
    assert [leak.uid for leak in late.leaks] == ["u1"]


def test_a_poll_restarts_the_grace() -> None:
    pods = tuple(pod(number) for number in range(6))
    heard = judge_silence(
        pods, spoke(), watched=(Watched("u1", 0.0),), now=900.0, grace=GRACE, limit=5
    )
    assert heard.watched == ()


@pytest.mark.parametrize(
    "state", [SlotState.OFFERED, SlotState.ARMED, SlotState.EXECUTING, SlotState.DRAINING]
)
def test_a_runner_with_a_claim_is_never_silent(state: SlotState) -> None:
    slots = tuple(slot(number, state, silent=True) for number in range(6))
    assert judge(slots).leaks == ()


@pytest.mark.parametrize(
    "other", [pod(0, running=False), pod(0, ending=True)], ids=["boots", "ends"]
)
def test_a_runner_that_boots_or_ends_is_not_retired(other: PodView) -> None:
    pods = (other, *(pod(number) for number in range(1, 6)))
    assert judge(spoke()[1:], pods=pods).leaks == ()


def test_if_most_runners_are_silent_none_is_retired() -> None:
    assert judge(spoke(0, 1, 2, 3)) == Verdict(leaks=(), watched=())
    assert len(judge(spoke(0, 1, 2)).leaks) == 3


def test_no_more_than_the_limit_at_a_time() -> None:
    assert len(judge(spoke(0, 1, 2), limit=2).leaks) == 2


def test_runners_that_could_not_be_retired_do_not_block_others() -> None:
    pods = tuple(pod(number) for number in range(6))
    watched = tuple(Watched(each.uid, 0.0) for each in pods)
    turns, after = [], ""
    for _ in range(3):
        (leak,) = judge_silence(
            pods, spoke(0, 1, 2), watched=watched, now=900.0, grace=GRACE, limit=1, after=after
        ).leaks
        turns.append(after := leak.uid)
    assert turns == ["u0", "u1", "u2"]
