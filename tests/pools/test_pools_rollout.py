"""Tests how many runners a roll retires at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pools.pool_builders import NEW, OLD, make_pool, make_runner

from runyard.pools.plans import predicates
from runyard.pools.plans.rollout import cap, plan_roll, unavailable

runners = st.builds(
    dict,
    image=st.sampled_from([NEW, OLD]),
    phase=st.sampled_from(["Pending", "Running", "Unknown"]),
    owner=st.sampled_from(["", "", "acme"]),
    poller=st.sampled_from(["", "running", "terminated"]),
    marked=st.booleans(),
    readable=st.sampled_from([True, True, True, False]),
)
fleets = st.lists(runners, max_size=30).map(
    lambda all_: tuple(make_runner(number, **more) for number, more in enumerate(all_))
)


@pytest.mark.parametrize(
    ("replicas", "percent", "expected"),
    [
        (9, 5, 1),
        (20, 5, 1),
        (39, 5, 1),
        (40, 5, 2),
        (100, 5, 5),
        (40, 10, 4),
        (0, 5, 1),
        (7, 0, 1),
        (3, 100, 3),
    ],
)
def test_the_cap_is_the_floor_of_the_share_and_at_least_one(replicas, percent, expected):
    assert cap(replicas, percent) == expected


@given(
    alive=fleets,
    replicas=st.integers(0, 60),
    percent=st.integers(1, 100),
    expected=st.integers(0, 5),
    os=st.sampled_from(["darwin", "linux"]),
)
def test_no_runner_is_retired_while_the_cap_is_used_up(alive, replicas, percent, expected, os):
    """A roll that ignores missing replicas empties a whole pool."""
    pool = make_pool(replicas, percent=percent, os=os)
    before = unavailable(alive, pool, expected=expected)
    roll = plan_roll(alive, pool, expected=expected)
    retired = len(roll.reap) + len(roll.mark)
    assert retired == 0 or before + retired <= roll.cap
    if before >= roll.cap:
        assert retired == 0
    for runner in (*roll.reap, *roll.mark):
        assert predicates.idle(runner)
        assert predicates.stale(runner, pool)
        assert not runner.marked
    assert all(predicates.stale_image(runner, pool) for runner in roll.mark)


@given(alive=fleets, replicas=st.integers(1, 40), percent=st.integers(1, 100))
def test_a_roll_below_its_cap_always_retires_the_next_runner(alive, replicas, percent):
    pool = make_pool(replicas, percent=percent)
    roll = plan_roll(alive, pool)
    candidates = [
        r for r in alive if predicates.idle(r) and predicates.stale(r, pool) and not r.marked
    ]
    left = max(0, roll.cap - unavailable(alive, pool))
    assert len(roll.reap) + len(roll.mark) == min(left, len(candidates))


def test_a_marked_runner_that_became_busy_frees_its_roll_slot():
    pool = make_pool(3)
    waiting = make_runner(1, image=OLD, marked=True)
    others = (make_runner(2, image=OLD), make_runner(3, image=OLD))
    assert plan_roll((waiting, *others), pool).mark == ()
    busy = make_runner(1, image=OLD, marked=True, owner="acme")
    assert [runner.name for runner in plan_roll((busy, *others), pool).mark] == [others[0].name]


def test_scaling_up_without_a_roll_is_not_called_rolling():
    roll = plan_roll(tuple(make_runner(n, phase="Pending") for n in range(5)), make_pool(9))
    assert (roll.rolling, roll.stale) == (0, 0)


def test_runners_that_are_not_warm_are_rolled_first():
    pool = make_pool(40)
    alive = (
        *(make_runner(n, image=OLD) for n in range(38)),
        *(make_runner(n, image=OLD, phase="Pending") for n in (38, 39)),
    )
    roll = plan_roll(alive, pool)
    assert [runner.uid for runner in roll.reap] == ["uid-38", "uid-39"]
    assert roll.mark == ()


def test_a_running_pod_of_an_old_runtime_class_is_left_to_finish():
    pool = make_pool(3, os="linux", runtime_class="kata-qemu", runtime_revision="r2")
    running = make_runner(1, runtime_revision="r1", poller="running")
    waiting = make_runner(2, runtime_revision="r1", poller="running", phase="Pending")
    third = make_runner(3, runtime_revision="r2", poller="running", phase="Pending")
    roll = plan_roll((running, waiting, third), pool)
    assert [runner.uid for runner in roll.reap] == ["uid-2"]
    assert roll.mark == ()
