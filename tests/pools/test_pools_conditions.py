"""Tests that a pool's conditions have the reason and the numbers of the plan."""

import pytest
from tests.pools.pool_builders import NOW, OLD, make_pool, make_runner

from runyard.pools.plans.actions import Condition, PoolPlan
from runyard.pools.plans.conditions import changed, conditions
from runyard.pools.plans.pool import plan_pool
from runyard.pools.plans.reasons import PoolReason
from runyard.pools.plans.views import FleetView, PoolView, RunnerView, Snapshot
from runyard.pools.settings import Settings
from runyard.wire import names
from runyard.wire.reasons import render
from runyard.wire.runnerpool import PoolCondition


def plan(
    pool: PoolView, *runners: RunnerView, fleet: FleetView | None = None, held_for: float = 0.0
) -> PoolPlan:
    snapshot = Snapshot(pool=pool, runners=runners, fleet=fleet, held_for=held_for)
    return plan_pool(snapshot, Settings(), NOW)


def condition_of(decided: PoolPlan, type_: str) -> Condition:
    assert decided.status is not None
    return next(each for each in decided.status.conditions if each.type == type_)


@pytest.mark.parametrize(
    ("fleet", "held_for", "reason", "numbers"),
    [
        (None, 40.0, names.REASON_BACKOFF, {"missing": 10, "replicas": 10, "pause": 40}),
        (
            FleetView(ceiling=4, provisioning=0, provisioning_here=0, healthy_nodes=0),
            0.0,
            names.REASON_NO_HEALTHY_HOST,
            {"missing": 10, "replicas": 10, "healthy_hosts": 0},
        ),
        (
            FleetView(ceiling=4, provisioning=1, provisioning_here=1, healthy_nodes=2),
            0.0,
            names.REASON_PROVISIONING_CEILING,
            {"missing": 7, "replicas": 10, "starting": 1, "ceiling": 4},
        ),
        (
            FleetView(
                ceiling=4, provisioning=2, provisioning_here=2, healthy_nodes=2, starved_siblings=2
            ),
            0.0,
            names.REASON_PROVISIONING_SHARE,
            {
                "missing": 10,
                "replicas": 10,
                "starting": 2,
                "ceiling": 4,
                "here": 2,
                "hungry_siblings": 2,
            },
        ),
    ],
    ids=["backoff", "no host", "ceiling", "share"],
)
def test_the_condition_says_why_runners_are_missing_with_numbers(
    fleet: FleetView | None, held_for: float, reason: str, numbers: dict[str, float]
) -> None:
    pool = make_pool(10, os="linux", runtime_class="kata-qemu")
    decided = plan(pool, fleet=fleet, held_for=held_for)
    filled = condition_of(decided, names.POOL_FILLED)
    assert (filled.holds, filled.camel, dict(filled.numbers)) == (False, reason, numbers)
    assert all(f"{value:g}" in render(filled.reason) for value in numbers.values() if value)


def test_a_full_pool_and_an_empty_pool_are_both_filled() -> None:
    full = condition_of(plan(make_pool(1), make_runner(1)), names.POOL_FILLED)
    assert (full.holds, full.camel) == (True, names.REASON_AS_ASKED)
    none = condition_of(plan(make_pool(0)), names.POOL_FILLED)
    assert (none.holds, none.camel) == (True, names.REASON_SCALED_TO_ZERO)


def test_the_condition_of_a_roll_has_its_cap_and_says_whether_it_waits() -> None:
    stale = tuple(make_runner(number, image=OLD) for number in range(4))
    moves = condition_of(plan(make_pool(4), *stale), names.POOL_ROLLED)
    assert (moves.holds, moves.camel) == (False, names.REASON_ROLLING)
    assert dict(moves.numbers) == {"stale": 4, "unavailable": 1, "cap": 1, "replicas": 4}
    starting = make_runner(9, phase="Pending")
    waits = condition_of(plan(make_pool(4), *stale[:3], starting), names.POOL_ROLLED)
    assert waits.camel == names.REASON_ROLL_CAPPED
    assert dict(waits.numbers)["unavailable"] == 1


def test_the_condition_of_a_deleted_pool_says_what_it_waits_for() -> None:
    pool = make_pool(2, deleting=True, finalizers=(names.POOL_DRAIN_FINALIZER,))
    leaving = condition_of(plan(pool, make_runner(1, owner="acme")), names.POOL_FILLED)
    assert leaving.camel == names.REASON_DELETING
    assert "1 busy runners" in render(leaving.reason)


def test_a_changed_status_or_reason_is_written_and_an_unchanged_status_keeps_its_transition_time() -> (
    None
):
    def one(code: PoolReason, count: int, *, holds: bool = False) -> Condition:
        more = {"pause": 1.0} if code is PoolReason.BACKOFF else {"selector": "fleet=mac"}
        reason = code.because(missing=count, replicas=9, **more)
        return Condition(type="Filled", holds=holds, reason=reason)

    written = (PoolCondition(type="Filled", status="False", reason="Backoff"),)
    assert not changed((one(PoolReason.BACKOFF, 3),), written)
    assert changed((one(PoolReason.NO_HEALTHY_HOST, 3),), written)
    assert changed((one(PoolReason.BACKOFF, 3, holds=True),), written)
    assert changed((one(PoolReason.BACKOFF, 3),), ())
    since = (PoolCondition(type="Filled", status="False", last_transition_time="then"),)
    assert (
        conditions((one(PoolReason.BACKOFF, 3),), since, now="now")[0]["lastTransitionTime"]
        == "then"
    )
    flipped = conditions((one(PoolReason.BACKOFF, 3, holds=True),), since, now="now")
    assert flipped[0]["lastTransitionTime"] == "now"
    assert flipped[0]["numbers"] == {"missing": 3, "replicas": 9, "pause": 1.0}
