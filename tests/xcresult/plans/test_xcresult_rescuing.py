"""Tests that runs and deliveries are repaired according to the row, and that a valid lease is not touched."""

from typing import Literal

import pytest

from runyard.wire.reasons_results import Unprocessed
from runyard.xcresult.plans.attempts import Retrying
from runyard.xcresult.plans.rescuing import Redeliver, Rescue, Seen, plan


def seen(
    state: Literal["queued", "processing"],
    *,
    lapsed: bool = False,
    delivered: bool = False,
    spent: int = 0,
) -> Seen:
    return Seen(
        run_id="r",
        shard=0,
        state=state,
        attempt=9,
        claims=spent + 1,
        spent=spent,
        owner="w",
        lapsed=lapsed,
        delivered=delivered,
    )


@pytest.mark.parametrize(
    "run",
    [
        seen("processing", delivered=True),
        seen("processing", delivered=False),
        seen("queued", delivered=True),
    ],
)
def test_a_consistent_run_is_not_changed(run: Seen) -> None:
    assert plan((run,), settings=Retrying()) == ()


@pytest.mark.parametrize("delivered", [True, False])
def test_a_lapsed_lease_is_an_attempt_lost_that_goes_back_at_once(delivered: bool) -> None:
    (action,) = plan((seen("processing", lapsed=True, delivered=delivered),), settings=Retrying())
    assert isinstance(action, Rescue)
    assert (action.decision.verdict, action.decision.delay, action.decision.spent) == ("lost", 0, 1)
    assert action.decision.reason == Unprocessed.WORKER_LOST.because(owner="w")


def test_a_run_that_kills_each_of_its_workers_is_given_up() -> None:
    (action,) = plan((seen("processing", lapsed=True, spent=4),), settings=Retrying())
    assert isinstance(action, Rescue)
    assert (action.decision.verdict, action.decision.code) == ("failed", Unprocessed.WORKER_LOST)


def test_a_queued_run_that_nothing_delivers_is_put_back_into_the_queue() -> None:
    run = seen("queued")
    assert plan((run,), settings=Retrying()) == (Redeliver(run=run),)
